"""The columns of a Parquet file."""

from pathlib import Path
from typing import Any

from adaptive_labels.lab import limits
from adaptive_labels.lab.data.dataset import DataError
from adaptive_labels.lab.files import open_regular, parse_json
from adaptive_labels.lab.words import first_line


def read_parquet(path: Path) -> tuple[list[str], list[list[Any]]]:
    """The names and the columns of a Parquet file; labels that have names there are read as these."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f'Reading {path} needs pyarrow: pip install "adaptive-labels[parquet]".') from error
    try:
        with open_regular(path) as file, pyarrow.parquet.ParquetFile(file) as parquet:
            about = parquet.metadata
            limits.check(limits.COLUMNS, about.num_columns, path)
            sizes = (about.row_group(group).total_byte_size for group in range(about.num_row_groups))
            limits.check(limits.FILE, sum(sizes), path)
            content = parquet.read()
            columns = [column.to_pylist() for column in content.columns]
    except limits.LimitError:
        raise
    except (OSError, pyarrow.ArrowException, ValueError, OverflowError) as error:  # also of texts, dates and the like
        reason = getattr(error, "strerror", None) or first_line(error).rstrip(".")
        raise DataError(f"{path} is no readable Parquet file: {reason}.") from error
    if content.num_rows == 0 or content.num_columns == 0:
        raise DataError(f"{path} has no rows.")
    for name, classes in _class_labels(content.schema.metadata).items():
        if name in content.column_names:
            place = content.column_names.index(name)
            known = dict(enumerate(classes))
            columns[place] = [known.get(k) for k in columns[place]]  # −1 is how a label is missing there
    return list(content.column_names), columns


def _class_labels(metadata: Any) -> dict[str, list[str]]:
    """The class names of columns, where Hugging Face's `datasets` has written them into a Parquet file."""
    try:
        features = parse_json(metadata[b"huggingface"])["info"]["features"]
        return {
            name: list(map(str, feature["names"]))
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError):  # none, or in another form
        return {}
