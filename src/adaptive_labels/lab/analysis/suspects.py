"""Suspects: examples whose label looks wrong; how good a ranking of them is, and their file."""

import csv
import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from adaptive_labels.errors import UserError
from adaptive_labels.lab.files import read_json, read_text
from adaptive_labels.lab.tables import as_csv

COLUMNS = ("rank", "split", "index", "source", "text", "label", "suggested", "score", "probability_wrong")
CORRECTION = "correct_label"  # the column of the CSV that is left for a person to fill in


def average_precision(scores: ArrayLike, wrong: ArrayLike) -> float:
    """The area under the precision–recall curve of a ranking, Σ_n (R_n − R_{n−1}) P_n over the distinct scores.

    P_n and R_n are precision and recall of everything with at least the n-th largest score, so that the order of equal
    scores does not matter. 1 is a perfect ranking; a random one has the share of wrong labels, on average.

    ``scores`` (N,) are larger for more suspicious labels; ``wrong`` (N,) says which are wrong, at least one.

    >>> average_precision([0.9, 0.8, 0.7, 0.1], [True, False, True, False])  # 1/2 · 1 + 1/2 · 2/3
    0.8333333333333333
    """
    values, truth = np.asarray(scores, dtype=np.float64), np.asarray(wrong, dtype=bool)
    if values.ndim != 1 or values.shape != truth.shape:
        raise ValueError(f"scores has shape {values.shape} and wrong {truth.shape}; both must be (N,).")
    if np.isnan(values).any():
        raise ValueError("scores holds NaN.")
    if not truth.any():
        raise ValueError("wrong names no example; a ranking cannot be judged without one.")
    order = np.argsort(-values, kind="stable")
    values, found = values[order], np.cumsum(truth[order])
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))  # the last place of each score
    precision, recall = found[last] / (last + 1), found[last] / found[-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


@dataclass(frozen=True)
class Suspect:
    """One example whose label looks wrong."""

    rank: int  # 1 is the most suspicious
    split: str
    index: int  # its place in the split
    source: str | None  # the file, and for tables the line, it came from, if the data says so
    text: str | None  # None for images
    label: str  # the label it has
    suggested: str  # the class that fits best among the others
    score: float  # how well the label fits, from 0 to 1
    probability_wrong: float
    conflict: bool = False  # whether equal inputs have the other label as often
    true_label: str | None = None  # the label before noise was injected; None where none was
    png: str | None = None  # a small picture of an image, PNG in base64


@dataclass(frozen=True)
class Suspects:
    """Examples of all splits whose label looks wrong, the most suspicious first."""

    dataset: str  # the name or path of the data set
    examples: int  # how many were judged, and in all splits are
    estimated_wrong: int
    suspects: tuple[Suspect, ...]  # the first of them
    sure: int  # how many are wrong with a probability of 60% or more
    conflicts: int  # how many have inputs that are there with another label, too
    rare_classes: tuple[str, ...]  # which have too few examples to be judged
    wrong_labels: int | None = None  # how many labels injected noise made wrong; None without it
    average_precision: float | None = None  # in finding these


def suspects_to_dict(suspects: Suspects) -> dict[str, Any]:
    """What the JSON file holds, as plain data."""
    return asdict(suspects)


def suspects_to_csv(suspects: Suspects) -> str:
    """A table that a spreadsheet opens without running anything, with a column to fill in."""
    rows = [[getattr(suspect, name) for name in COLUMNS] + [None] for suspect in suspects.suspects]
    return as_csv([*COLUMNS, CORRECTION], rows)


def read_suspects(path: str | Path) -> Suspects:
    """Read the JSON that `alr suspects DATA -o FILE` wrote, to be shown again."""
    content = read_json(path)
    try:
        listed = tuple(Suspect(**entry) for entry in content["suspects"])
        found = Suspects(**{**content, "suspects": listed, "rare_classes": tuple(content["rare_classes"])})
    except (KeyError, TypeError):
        found = None
    if found is None or not all(map(_is_whole, listed)):
        raise UserError(f"{path} holds no suspects; `alr suspects DATA -o FILE` writes such a file")
    return found


def _is_whole(suspect: Suspect) -> bool:
    texts = (suspect.label, suspect.suggested, suspect.text or "", suspect.source or "", suspect.png or "")
    return all(isinstance(text, str) for text in texts) and isinstance(suspect.probability_wrong, int | float)


@dataclass(frozen=True)
class Correction:
    """What a file of suspects says of one example."""

    where: str  # in the file
    split: str
    index: int
    label: str
    corrected: str  # by a person, or else the suggestion; empty if a person has confirmed the label


def read_corrections(path: str | Path) -> list[Correction]:
    """Read what `alr suspects DATA -o FILE` wrote, JSON or CSV, perhaps with corrections filled in.

    Where a person has filled in the label that is there already, the label is right, and the example stays as it is.
    """
    path = Path(path)
    if path.suffix.lower() == ".csv":
        reader = csv.DictReader(io.StringIO(read_text(path, encoding="utf-8-sig"), newline=""))
        rows = [{name: _plain(cell) for name, cell in row.items()} for row in reader]
        entries: Any = [(f"{path}, row {number}", row) for number, row in enumerate(rows, start=2)]
    else:
        content = read_json(path)
        listed = content.get("suspects") if isinstance(content, dict) else None
        if not isinstance(listed, list):
            raise UserError(f"{path} holds no suspects; `alr suspects DATA -o FILE` writes such a file")
        entries = [(f"{path}, suspect {number}", entry) for number, entry in enumerate(listed, start=1)]
    return [_correction(where, entry) for where, entry in entries]


def _correction(where: str, entry: Any) -> Correction:
    needed = ("split", "index", "label", "suggested")
    if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str | int) for name in needed):
        raise UserError(f"{where} lacks one of {', '.join(needed)}; `alr suspects DATA -o FILE` writes such a file")
    index = str(entry["index"])
    if not index.isdecimal():
        raise UserError(f"{where} has {index!r} as its index; it must be a whole number")
    filled = str(entry.get(CORRECTION) or "").strip()
    return Correction(where, str(entry["split"]), int(index), str(entry["label"]), filled or str(entry["suggested"]))


def _plain(cell: Any) -> Any:
    """A cell without the mark that `as_csv` puts before what looks like a formula."""
    return cell[1:] if isinstance(cell, str) and cell.startswith(("'=", "'+", "'-", "'@", "'\t")) else cell
