"""The names that text and label columns usually have, and whether a file's first line is a header."""

import re
from collections.abc import Sequence

LABEL_NAMES = (
    "label_text", "label_name", "label", "labels", "category", "class", "intent", "stars", "target", "sentiment",
    "topic", "rating", "genre", "class_name", "class_index", "class_label", "tag", "emotion", "language", "score", "y",
    "coarse",
)  # fmt: skip
# A column of one of these names is the whole text …
WHOLE_TEXT_NAMES = (
    "text", "sentence", "review", "question", "utterance", "comment", "tweet", "message", "query", "document",
    "review_text", "full_text", "input", "name",
)  # fmt: skip
# … and columns of these names are parts of it, to be joined.
PART_TEXT_NAMES = (
    "title", "headline", "subject", "question_title", "summary", "description", "content", "body", "abstract",
    "question_content", "best_answer", "article",
)  # fmt: skip
_LABELS = frozenset(LABEL_NAMES)
_KNOWN = frozenset((*LABEL_NAMES, *WHOLE_TEXT_NAMES, *PART_TEXT_NAMES))
_NUMBER = re.compile(r"[-+]?\d*\.?\d+(e[-+]?\d+)?", re.IGNORECASE)
_COMPARED_ROWS = 2_000


def normalise_name(name: str) -> str:
    """A column name in lower case with underscores: 'Class Index' → 'class_index'."""
    return re.sub(r"[\s\-.]+", "_", name.strip().casefold())


def is_number(text: str) -> bool:
    """Whether the text is a plain number."""
    return _NUMBER.fullmatch(text.strip()) is not None


def looks_like_header(first: Sequence[str], rest: Sequence[Sequence[str]], known_names: Sequence[str] = ()) -> bool:
    """Whether the first row names the columns.

    It does if it has one of `known_names`, or both a usual text and a usual label name; it does not if a cell is a
    number or comes again in its own column (as a label would); else it does if it has a usual column name, or if all
    its cells are as short as names are.
    """
    cells = [cell.strip() for cell in first]
    usual = {normalise_name(cell) for cell in cells} & _KNOWN
    if any(name in cells for name in known_names) or (usual - _LABELS and usual & _LABELS):
        return True
    named = [cell for cell in cells if cell]
    if len(set(named)) < len(named) or any(is_number(cell) for cell in named):
        return False
    for i, cell in enumerate(cells):
        if cell and any(row[i].strip() == cell for row in rest[:_COMPARED_ROWS]):
            return False
    return bool(usual) or all(
        0 < len(cell) <= 30 and len(cell.split()) <= 3 and cell[-1] not in ".?!" for cell in cells
    )
