"""Rows of a table as numbers: standardised numbers and one-hot categories, both fitted on the training rows.

Shapes: N rows, C columns, D features.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_labels.errors import UserError, check_positive
from adaptive_labels.lab.data.encoders import Encoder, register_encoder
from adaptive_labels.lab.data.encoders.embeddings import Vectors
from adaptive_labels.lab.data.rows import TableRows, to_number

FURTHEST = 10.0  # standard deviations: what is beyond, a mistyped number perhaps, is drawn in


@register_encoder("columns")
@dataclass(frozen=True)
class ColumnEncoder(Encoder):
    """Columns to features.

    A number becomes (x − mean) / std; a missing one 0, and 1 in a feature of its own if training rows lack it, too. A
    category becomes one feature for each of the most frequent values in training; "missing" is one of them.

    Args:
        columns: for each column its name, and its mean, std and whether it may be missing; or its categories.
    """

    options: ClassVar[frozenset[str]] = frozenset({"max_categories"})

    columns: Sequence[Mapping[str, Any]]

    @classmethod
    def fit(cls, inputs: TableRows, **options: Any) -> "ColumnEncoder":
        """Return the encoder for rows like these, the training rows; at most 50 categories, or `max_categories`."""
        max_categories = options.get("max_categories", 50)
        check_positive(max_categories=max_categories)
        columns: list[dict[str, Any]] = []
        for name, numeric, cells in zip(inputs.names, inputs.numeric, inputs.cells.T, strict=True):
            if numeric:
                values = _numbers(cells)
                known = values[~np.isnan(values)]
                std = float(known.std()) if len(known) else 0.0
                mean = float(known.mean()) if len(known) else 0.0
                lacks = len(known) < len(values)
                columns.append({"name": name, "mean": mean, "std": std if std > 1e-12 else 1.0, "missing": lacks})
            else:
                frequent = sorted(Counter(cells).items(), key=lambda item: (-item[1], item[0]))[:max_categories]
                columns.append({"name": name, "categories": [value for value, _ in frequent]})
        return cls(columns)

    @property
    def sizes(self) -> dict[str, int]:
        kinds = ((column.get("categories"), column.get("missing", False)) for column in self.columns)
        return {"in_features": sum(1 + missing if values is None else len(values) for values, missing in kinds)}

    @property
    def names(self) -> list[str]:
        return [column["name"] for column in self.columns]

    @property
    def numeric(self) -> list[bool]:
        return ["mean" in column for column in self.columns]

    def encode(self, inputs: TableRows) -> Vectors:
        lacking = [name for name in self.names if name not in inputs.names]
        if lacking:
            raise UserError(f"the rows have no column {', '.join(map(repr, lacking))}, which the network reads")
        parts: list[NDArray[np.float32]] = []
        for column in self.columns:
            cells = inputs.cells[:, inputs.names.index(column["name"])]
            if "categories" in column:
                parts.append((cells[:, None] == np.array(column["categories"], dtype=object)).astype(np.float32))
                continue
            values = ((_numbers(cells) - column["mean"]) / column["std"])[:, None]
            missing = np.isnan(values)
            parts.append(np.clip(np.where(missing, 0.0, values), -FURTHEST, FURTHEST).astype(np.float32))
            parts += [missing.astype(np.float32)] if column["missing"] else []
        return Vectors(torch.from_numpy(np.concatenate(parts, axis=1)), torch.arange(len(inputs)))


def _numbers(cells: NDArray[np.object_]) -> NDArray[np.float64]:
    return np.array([to_number(cell) for cell in cells], dtype=np.float64)
