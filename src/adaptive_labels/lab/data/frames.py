"""A table's file as a pandas frame, with the line of each row: CSV, TSV, JSON Lines, Parquet and TREC's lines.

The first line of a CSV or TSV file names the columns, unless a number stands there, or what its column has again below.
Text formats may be gzipped.
"""

import contextlib
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.lab.data.dataset import DataError
from adaptive_labels.lab.files import open_regular, parse_json, read_bytes
from adaptive_labels.lab.limits import LimitError, check_limit, limit_of
from adaptive_labels.lab.words import first_line

if TYPE_CHECKING:
    import pandas as pd

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_LOOKED_AT = 1_000  # rows, to tell whether the first one is a header
_JSON = (".jsonl", ".ndjson")
_TEXT_SUFFIXES = (*_DELIMITERS, *_JSON, ".label")
TABLE_SUFFIXES = (*_TEXT_SUFFIXES, *(suffix + ".gz" for suffix in _TEXT_SUFFIXES), ".parquet")
LABEL_NAMES = ("label", "labels", "class", "target", "category", "y")
"""What the column of the label is called where nobody says which it is."""

_NUMBER = re.compile(r"[-+]?\d*\.?\d+(e[-+]?\d+)?", re.IGNORECASE)
_LABELLED = re.compile(r"([^\s:]+):(\S+)(.*)")
_TOO_MANY = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")
_NOT_CLOSED = re.compile(r"EOF inside string starting at row (\d+)")


@dataclass(frozen=True)
class Table:
    """A file's columns as read; those of CSV and TSV hold texts, the others whatever the file holds."""

    path: Path
    frame: "pd.DataFrame"  # its columns are named "1", "2", … without a header line
    lines: NDArray[np.int64]  # where each row begins, from 1; of Parquet its number
    has_header: bool = True
    unit: str = "line"  # what `lines` counts

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def names(self) -> list[str]:
        return list(self.frame.columns)

    def where(self, row: int) -> str:
        return f"{self.path} {self.unit} {self.lines[row]}"

    def texts(self, name: str) -> list[str]:
        """A column as texts without spaces around them; a missing value is the empty text."""
        texts = [
            (value if isinstance(value, str) else self._to_text(value, name, row)).strip()
            for row, value in enumerate(self.frame[name].tolist())
        ]
        longest = max(range(len(texts)), key=lambda row: len(texts[row]))
        check_limit("field", len(texts[longest]), self.where(longest))
        return texts

    def _to_text(self, value: object, name: str, row: int) -> str:
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int | float):
            return "" if value != value else str(value)  # NaN is how some writers spell a missing value
        kind = type(value).__name__
        raise DataError(f"Column {name!r} at {self.where(row)} holds a {kind}, where a text or a number is needed.")


def is_table(path: Path) -> bool:
    return path.name.lower().endswith(TABLE_SUFFIXES)


def normalise_name(name: str) -> str:
    """A column name in lower case with underscores: 'Class Index' → 'class_index'."""
    return re.sub(r"[\s\-.]+", "_", name.strip().casefold())


def read_table(path: Path, *, header: bool | None = None, known_names: Sequence[str] = ()) -> Table:
    """Read a whole file.

    ``header`` says whether the first line of a CSV or TSV file names the columns; None for the rule above. One of
    `LABEL_NAMES` or of ``known_names`` in it makes it such a line, too; a single column has no other header.
    """
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    if kind == ".parquet":
        table = _read_parquet(path)
    elif kind in _JSON:
        table = _read_json_lines(path, _read_text(path))
    elif kind == ".label":
        table = _read_label_lines(path, _read_text(path, "latin-1"))
    else:
        text = _read_text(path)
        content = text.lstrip("\n")
        first, line = content.partition("\n")[0], len(text) - len(content) + 1
        check_limit("columns", first.count(_DELIMITERS[kind]) + 1, path)
        (table,) = _delimited(path, io.BytesIO(content.encode()), _DELIMITERS[kind], known_names, header, line)
    if not len(table):
        raise DataError(f"{path} has a header line and no rows." if table.unit == "line" else f"{path} has no rows.")
    return table


def table_chunks(path: Path, rows: int, known_names: Sequence[str], file: Any = None) -> Iterator[Table]:
    """Yield so many rows at a time; of a CSV or TSV file, or of an open CSV ``file``, no more are in memory.

    The other formats are read as a whole. See `read_table` for ``known_names``.
    """
    packed = path.name.lower().endswith(".gz")
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    if file is None and kind not in _DELIMITERS:
        table = read_table(path, known_names=known_names)
        for start in range(0, len(table), rows):
            part = slice(start, start + rows)
            yield replace(table, frame=table.frame[part], lines=table.lines[part])
        return
    with contextlib.ExitStack() as opened:
        if file is None:
            file = opened.enter_context(open_regular(path))
            file = opened.enter_context(gzip.open(file)) if packed else file
        try:
            yield from _delimited(path, file, _DELIMITERS.get(kind, ","), known_names, rows=rows)
        except (EOFError, zlib.error) as error:
            raise DataError(f"{path} cannot be read: {error}.") from error


def _delimited(
    path: Path,
    file: Any,
    delimiter: str,
    known: Sequence[str],
    header: bool | None = None,
    line: int = 1,
    rows: int | None = None,
) -> Iterator[Table]:
    """Yield an open CSV file, all at once or so many rows at a time; the first line may name the columns."""
    names: list[str] = []
    for frame, lines in read_csv(path, file, delimiter, line, rows):
        above = 0
        if not names:
            cells = list(frame.iloc[0])
            header = _is_header(frame, known) if header is None else header
            names, above = _unique(cells if header else range(1, len(cells) + 1)), int(header)
        yield Table(path, frame.set_axis(names, axis=1)[above:], lines[above:], bool(header))


def _unique(names: Iterable[object]) -> list[str]:
    """Names of columns: a second one of a name, or without any, gets its number behind it."""
    cleaned = [str(name).strip() for name in names]
    return [f"{name} ({i + 1})".strip() if not name or name in cleaned[:i] else name for i, name in enumerate(cleaned)]


def _is_header(frame: "pd.DataFrame", known: Sequence[str]) -> bool:
    """Whether the cells of a file's first line are the names of its columns."""
    cells = [cell.strip() for cell in frame.iloc[0]]
    numbers = {cell for cell in cells if _NUMBER.fullmatch(cell)}
    named = any(cell in known or normalise_name(cell) in LABEL_NAMES for cell in cells if cell not in numbers)
    below = frame.iloc[1:_LOOKED_AT]
    again = any(cell and (below.iloc[:, place] == cell).sum() > 1 for place, cell in enumerate(cells))  # a class
    return named or (len(cells) > 1 and not numbers and not again)


def _read_text(path: Path, other_encoding: str | None = None) -> str:
    """A file's text, decompressed, its line ends as one character; what is not UTF-8 is in the other encoding."""
    try:
        if path.name.lower().endswith(".gz"):
            with open_regular(path) as packed, gzip.open(packed) as file:
                raw = file.read(limit_of("file") + 1)
            check_limit("file", len(raw), path)
        else:
            raw = read_bytes(path)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if other_encoding is None:
            line = raw.count(b"\n", 0, error.start) + 1
            raise DataError(
                f"{path} line {line} is not UTF-8; save the file as UTF-8 (in Excel: CSV UTF-8)."
            ) from error
        text = raw.decode(other_encoding)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path} holds NUL characters at line {line}: it is no text file.")
    if not text.strip():
        raise DataError(f"{path} is empty.")
    return text


def read_csv(
    path: Path, file: Any, delimiter: str = ",", first: int = 1, rows: int | None = None
) -> "Iterator[tuple[pd.DataFrame, NDArray[np.int64]]]":
    """Yield an open CSV file's fields as texts with the line of each row; all at once, or so many ``rows`` at a time.

    Empty lines are left out, unless there is only one column. What does not parse is a DataError with file and line.
    """
    import pandas as pd

    options: dict[str, Any] = {"sep": delimiter, "header": None, "dtype": str, "keep_default_na": False}
    options |= {"skip_blank_lines": False, "encoding": "utf-8-sig"}
    line = first
    try:
        with pd.read_csv(file, chunksize=rows or 2**40, **options) as chunks:
            for frame in chunks:
                columns = [frame[column].tolist() for column in frame]
                breaks = np.array([[cell.count("\n") for cell in cells] for cells in columns]).sum(0)
                lines = line + np.cumsum(breaks + 1) - breaks - 1
                for cells in columns:
                    longest = max(range(len(cells)), key=lambda row: len(cells[row]))
                    check_limit("field", len(cells[longest]), f"{path} line {lines[longest]}")
                line += int((breaks + 1).sum())
                written = np.ones(len(frame), bool) if frame.shape[1] == 1 else (frame != "").any(axis=1).to_numpy()
                yield frame[written], lines[written]
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason}, after line {line}).") from error
    except pd.errors.ParserError as error:
        raise DataError(_why_not_parsed(path, str(error), file, options, first)) from None


def _why_not_parsed(path: Path, message: str, file: Any, options: dict[str, Any], first: int) -> str:
    """What is wrong with which line of a CSV file: pandas counts rows, which may span several lines."""
    import pandas as pd

    def line_of(rows_before: int) -> int:
        file.seek(0)
        rows = pd.read_csv(file, nrows=rows_before, **options) if rows_before else pd.DataFrame()
        breaks = sum(int(cell.count("\n")) for column in rows for cell in rows[column])
        return first + rows_before + breaks

    if match := _TOO_MANY.search(message):
        expected, row, seen = map(int, match.groups())
        return f"{path} line {line_of(row - 1)} has {seen} fields where line {first} has {expected}."
    if match := _NOT_CLOSED.search(message):
        return f"{path} line {line_of(int(match[1]))} cannot be parsed: a quoted field that is never closed."
    return f"{path} cannot be parsed: {message.strip()}."


def _read_json_lines(path: Path, text: str) -> Table:
    records: list[dict[str, object]] = []
    lines: list[int] = []
    for place, line in _lines(text):
        try:
            record = parse_json(line)
        except JSONDecodeError as error:
            raise DataError(f"{path} line {place} is not valid JSON: {error.msg} at column {error.colno}.") from error
        except ValueError as error:
            raise DataError(f"{path} line {place} is not a row of a table: {error}.") from None
        if not isinstance(record, dict):
            raise DataError(f"{path} line {place} is not a JSON object but a {type(record).__name__}.")
        records.append(record)
        lines.append(place)
    names = dict.fromkeys(name for record in records for name in record)
    if not names:
        raise DataError(f"{path} has no columns: its JSON objects are empty.")
    check_limit("columns", len(names), path)
    return _table_of(path, list(names), [[record.get(name) for record in records] for name in names], lines)


def _read_label_lines(path: Path, text: str) -> Table:
    """Lines such as "NUM:dist How far is it ?": the coarse label, the fine one, and the text.

    A fine label keeps the coarse one before it, since some of them (`other`) are of several.
    """
    rows, lines = [], []
    for place, line in _lines(text):
        match = _LABELLED.fullmatch(line.strip())
        if match is None:
            raise DataError(
                f"{path} line {place} does not begin with a coarse and a fine label, as in 'NUM:dist How far is it ?'."
            )
        coarse, fine, rest = match.groups()
        rows.append((coarse, f"{coarse}:{fine}", rest))
        lines.append(place)
    return _table_of(path, ["label", "fine", "text"], list(zip(*rows, strict=True)), lines)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that is not empty, after its number from 1."""
    # Not splitlines(): that also breaks at characters, such as U+2028, which JSON allows inside a string.
    return ((place, line) for place, line in enumerate(text.split("\n"), start=1) if line.strip())


def _table_of(
    path: Path, names: Sequence[str], columns: Sequence[Sequence[object]], lines: Sequence[int], unit: str = "line"
) -> Table:
    import pandas as pd

    frame = pd.DataFrame({i: pd.Series(column, dtype=object) for i, column in enumerate(columns)})
    return Table(path, frame.set_axis(_unique(names), axis=1), np.array(lines, np.int64), unit=unit)


def _read_parquet(path: Path) -> Table:
    """The columns of a Parquet file; labels that have names there are read as these."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f'Reading {path} needs pyarrow: pip install "adaptive-labels[parquet]".') from error
    try:
        with open_regular(path) as file, pyarrow.parquet.ParquetFile(file) as parquet:
            about = parquet.metadata
            check_limit("columns", about.num_columns, path)
            sizes = (about.row_group(group).total_byte_size for group in range(about.num_row_groups))
            check_limit("file", sum(sizes), path)
            content = parquet.read()
            columns = [column.to_pylist() for column in content.columns]
    except LimitError:
        raise
    except (OSError, pyarrow.ArrowException, ValueError, OverflowError) as error:  # also of texts, dates and the like
        reason = getattr(error, "strerror", None) or first_line(error).rstrip(".")
        raise DataError(f"{path} is no readable Parquet file: {reason}.") from error
    names = list(content.column_names)
    if content.num_rows == 0 or not names:
        raise DataError(f"{path} has no rows.")
    for name, classes in _class_labels(content.schema.metadata).items():
        if name in names:
            known = dict(enumerate(classes))
            columns[names.index(name)] = [known.get(k) for k in columns[names.index(name)]]  # −1 is a missing label
    return _table_of(path, names, columns, range(1, content.num_rows + 1), "row")


def _class_labels(metadata: Any) -> dict[str, list[str]]:
    """The class names of columns, where Hugging Face's `datasets` has written them into a Parquet file."""
    try:
        features = parse_json(metadata[b"huggingface"])["info"]["features"]
        return {
            name: list(map(str, feature["names"]))
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError, AttributeError):  # none, or in another form
        return {}
