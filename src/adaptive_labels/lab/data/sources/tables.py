"""Reading a table from a file: CSV, TSV, JSON Lines, Parquet, TREC's or fastText's lines; text also gzipped."""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from adaptive_labels.lab import limits
from adaptive_labels.lab.data.dataset import DataError
from adaptive_labels.lab.data.sources.parquet import read_parquet
from adaptive_labels.lab.files import open_regular, parse_json, read_bytes
from adaptive_labels.lab.words import counted

JSON_SUFFIXES = (".jsonl", ".ndjson")
_TEXT_SUFFIXES = (".csv", ".tsv", *JSON_SUFFIXES, ".label")
TABLE_SUFFIXES = (*_TEXT_SUFFIXES, *(suffix + ".gz" for suffix in _TEXT_SUFFIXES), ".parquet")
LABEL_MARK = "__label__"  # fastText's, at the beginning of a line; such files may have any of these names
_MARKED_SUFFIXES = (".txt", ".train", ".valid", ".test", ".dev", ".val")

LABEL_NAMES = (
    "label_text", "label_name", "label", "labels", "category", "class", "intent", "stars", "target", "sentiment",
    "topic", "rating", "genre", "class_name", "class_index", "class_label", "tag", "emotion", "language", "score", "y",
    "coarse", "species", "diagnosis", "outcome", "survived", "income", "quality", "churn",
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

_SNIFFED_RECORDS, _COMPARED_ROWS, _SAMPLED_ROWS = 50, 2_000, 5_000
_PART = re.compile(r"-\d+-of-\d+")
_LABELLED = re.compile(r"([^\s:]+):(\S+)(.*)")
_LINE = re.compile(r"[^\r\n]*+(?:\r\n?|\n)|[^\r\n]++")  # with its end, as `csv` wants it
_NUMBER = re.compile(r"[-+]?\d*\.?\d+(e[-+]?\d+)?", re.IGNORECASE)
# The ways quotes are written, the standard first; a later one is tried only if the file does not parse otherwise.
_QUOTING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("", {"strict": True}),
    ("quotes inside fields are escaped with a backslash", {"strict": True, "escapechar": "\\"}),
    ("quotes are taken as ordinary characters", {"quoting": csv.QUOTE_NONE}),
)


@dataclass(frozen=True)
class Table:
    """A file's columns as read; delimited files hold strings, the others whatever the file holds."""

    path: Path
    names: list[str]  # "1", "2", … without a header line
    columns: Sequence[Sequence[object]]
    places: list[int]  # the physical line of each row, from 1; of Parquet its number
    has_header: bool = True
    unit: str = "line"  # what the places count
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.places)

    def where(self, row: int) -> str:
        """The file and line of a row, for messages."""
        return f"{self.path} {self.unit} {self.places[row]}"

    @property
    def sampled_rows(self) -> range:
        """Some rows, from all over the table: many files are sorted by class."""
        return range(0, len(self), -(-len(self) // _SAMPLED_ROWS))

    def sample(self, column: int) -> list[object]:
        """The values of a column in some of the rows, as read."""
        return [self.columns[column][row] for row in self.sampled_rows]

    def texts(self, column: int) -> list[str]:
        """A column as strings without spaces around them; a missing value is the empty string."""
        texts = [
            (value if isinstance(value, str) else self._to_text(value, column, row)).strip()
            for row, value in enumerate(self.columns[column])
        ]
        longest = max(range(len(texts)), key=lambda row: len(texts[row]))
        limits.check(limits.FIELD, len(texts[longest]), self.where(longest))
        return texts

    def _to_text(self, value: object, column: int, row: int) -> str:
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int | float):
            return "" if value != value else str(value)  # NaN is how some writers spell a missing value
        raise DataError(
            f"Column {self.names[column]!r} at {self.where(row)} holds a {type(value).__name__}, "
            "where a text or a number is needed."
        )


def is_table(path: Path) -> bool:
    """Whether this module reads the file, by its name; or, of some names, by how it begins."""
    return path.name.lower().endswith(TABLE_SUFFIXES) or is_marked(path)


def is_marked(path: Path) -> bool:
    """Whether the lines of a file begin with labels as fastText marks them."""
    if path.suffix.lower() not in _MARKED_SUFFIXES:
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(LABEL_MARK)).decode("ascii", "replace") == LABEL_MARK
    except OSError:
        return False


def tables_in(folder: Path) -> list[Path]:
    """The tables in a folder, by name."""
    return sorted(path for path in folder.iterdir() if path.is_file() and is_table(path))


def read_table(
    path: Path, *, header: bool | None = None, known_names: Sequence[str] = (), least_columns: int = 2
) -> Table:
    """Read a whole file.

    `header` says whether a delimited file's first line names the columns; None looks at the content, where a first line
    that has any of `known_names` in it is a header.
    """
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".parquet"):
        names, columns = read_parquet(path)
        table = Table(path, names, columns, list(range(1, len(columns[0]) + 1)), unit="row")
    elif is_marked(path):
        table = _parse_marked_lines(path, *_read_text(path, "cp1252"))
    elif name.endswith(".label"):
        # TREC's files are Latin-1, which is nothing to remark on.
        table = _parse_label_lines(path, _read_text(path, "latin-1")[0])
    elif name.endswith(JSON_SUFFIXES):
        table = _parse_json_lines(path, *_read_text(path, "cp1252"))
    else:
        delimiter = "\t" if name.endswith(".tsv") else None
        table = _parse_delimited(path, *_read_text(path, "cp1252"), delimiter, header, known_names)
    if len(table.names) < least_columns:
        raise DataError(f"{path} has one column only ({table.names[0]!r}); a text and a label column are needed.")
    # Columns are found by their names, so that a second one of a name, or without any, gets its number behind it.
    numbered = [f"{name} ({i + 1})".strip() if name in table.names[:i] else name for i, name in enumerate(table.names)]
    return replace(table, names=numbered)


def read_parts(paths: Sequence[Path], *, header: bool | None = None, known_names: Sequence[str] = ()) -> Table:
    """Read a table that is in several files, whose rows are counted through; or in one."""
    tables = [read_table(path, header=header, known_names=known_names) for path in paths]
    first = tables[0]
    if len(tables) == 1:
        return first
    for table in tables[1:]:
        if table.names != first.names:
            raise DataError(f"{table.path} has other columns than {first.path.name}, of which it is a part.")
    columns = [[value for table in tables for value in table.columns[i]] for i in range(len(first.names))]
    notes = list(dict.fromkeys(note for table in tables for note in table.notes))
    places = list(range(1, sum(map(len, tables)) + 1))
    path = first.path.with_name(_PART.sub("-*", first.path.name))
    return Table(path, first.names, columns, places, first.has_header, "row", notes)


def _read_text(path: Path, other_encoding: str) -> tuple[str, list[str]]:
    """The file's text, and notes on how it was decoded; what is not UTF-8 is read in the other encoding."""
    try:
        if path.name.lower().endswith(".gz"):
            with open_regular(path) as packed, gzip.open(packed) as file:
                raw = file.read(limits.value(limits.FILE) + 1)
            limits.check(limits.FILE, len(raw), path)
        else:
            raw = read_bytes(path)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    text, notes = _decode(path, raw, other_encoding)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path} holds NUL characters at line {line}: it is no text file.")
    if not text or text.isspace():
        raise DataError(f"{path} is empty.")
    return text, notes


def _decode(path: Path, raw: bytes, other_encoding: str) -> tuple[str, list[str]]:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return raw.decode("utf-16"), []
        except UnicodeDecodeError as error:
            raise DataError(f"{path} starts like UTF-16 but is not valid UTF-16 ({error.reason}).") from error
    for encoding, notes in (
        ("utf-8-sig", []),
        (other_encoding, [f"{path.name} is not UTF-8 and was read as Windows-1252."]),
    ):
        try:
            return raw.decode(encoding), notes
        except UnicodeDecodeError:
            continue
    return raw.decode("latin-1"), [f"{path.name} is neither UTF-8 nor Windows-1252 and was read as Latin-1."]


def _parse_delimited(
    path: Path, text: str, notes: list[str], delimiter: str | None, header: bool | None, known_names: Sequence[str]
) -> Table:
    if delimiter is None:
        delimiter = _sniff_delimiter(text)
        if delimiter != ",":
            notes.append(f"The fields of {path.name} are separated by {delimiter!r}.")
    errors = []
    for quoting, options in _QUOTING:
        try:
            rows, places = _parse_rows(path, text, delimiter, options)
        except DataError as error:
            errors.append(DataError(str(error)))  # without its traceback, which holds what was read so far
        else:
            notes += [f"{path.name} does not parse with standard quotes: {quoting}."] if quoting else []
            break
    else:
        raise errors[0]
    return _with_names(path, rows, places, notes, header, known_names)


def _with_names(
    path: Path,
    rows: Sequence[Sequence[Any]],
    places: list[int],
    notes: list[str],
    header: bool | None,
    known_names: Sequence[str],
    unit: str = "line",
) -> Table:
    """The table of these rows, of which the first may name the columns (see `read_table`)."""
    first, *rest = [["" if cell is None else str(cell).strip() for cell in row] for row in rows[: _COMPARED_ROWS + 1]]
    has_header = looks_like_header(first, rest, known_names) if header is None else header
    names = first if has_header else [str(i + 1) for i in range(len(first))]
    if has_header:
        rows, places = rows[1:], places[1:]
    if not rows:
        raise DataError(f"{path} has a header line and no rows.")
    return Table(path, names, list(zip(*rows, strict=True)), places, has_header, unit, notes)


def _parse_rows(path: Path, text: str, delimiter: str, options: dict[str, Any]) -> tuple[list[list[str]], list[int]]:
    """The rows, all of one length, and the line that each begins at."""
    rows: list[list[str]] = []
    places: list[int] = []
    # Line by line: an io.StringIO would be another copy of the text, with four bytes for each character.
    lines = map(re.Match.group, _LINE.finditer(text))
    for place, row in csv_rows(path, lines, delimiter=delimiter, **options):
        if not rows:
            limits.check(limits.COLUMNS, len(row), path)
        elif len(row) != len(rows[0]):
            raise DataError(
                f"{path} line {place} has {counted(len(row), 'field')} where line {places[0]} has {len(rows[0])}."
            )
        rows.append(row)
        places.append(place)
    return rows, places


def csv_rows(path: Path, lines: Iterable[str], **options: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file that are not empty, each after the number of its first line."""
    place = 1
    with _long_fields():
        reader = csv.reader(lines, **options)
        try:
            for row in reader:
                if row:
                    yield place, row
                place = reader.line_num + 1  # a quoted field may hold line breaks, so a row may span several lines
        except csv.Error as error:
            if "field limit" in str(error):
                raise DataError(str(limits.exceeded(limits.FIELD, f"{path} line {place}"))) from error
            reason = "a quoted field that is never closed" if "unexpected end" in str(error) else str(error)
            raise DataError(f"{path} line {place} cannot be parsed: {reason}.") from error
        except UnicodeDecodeError as error:  # where lines are decoded as they are read
            raise DataError(f"{path} is not UTF-8 text ({error.reason}, after line {place}).") from error


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let `csv` read fields of up to our own limit; its limit is put back for whoever else uses it here."""
    before = csv.field_size_limit(limits.value(limits.FIELD))
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _sniff_delimiter(text: str) -> str:
    """The first of , ; tab | that cuts the first records into the same number of fields, more than one."""
    start = text[:200_000]
    with _long_fields():
        for delimiter in (",", ";", "\t", "|"):
            reader = csv.reader(io.StringIO(start, newline=""), delimiter=delimiter)
            try:
                rows = list(islice(filter(None, reader), _SNIFFED_RECORDS))
            except csv.Error:  # a field that is too long, of which the parser that follows speaks
                continue
            if len(start) < len(text) and len(rows) < _SNIFFED_RECORDS:
                del rows[-1:]  # cut off in the middle
            widths = {len(row) for row in rows}
            if len(widths) == 1 and widths != {1}:
                return delimiter
    return ","


def normalise_name(name: str) -> str:
    """A column name in lower case with underscores: 'Class Index' → 'class_index'."""
    return re.sub(r"[\s\-.]+", "_", name.strip().casefold())


def looks_like_header(first: Sequence[str], rest: Sequence[Sequence[str]], known_names: Sequence[str] = ()) -> bool:
    """Whether the first row names the columns.

    It does if it has one of `known_names`, or both a usual text and a usual label name; it does not if a cell is a
    number or comes again in its own column (as a label would); else it does if it has a usual column name, or if all
    its cells are as short as names are. Numbers that count up beside a usual label name are names: pandas writes those.
    """
    cells = [cell.strip() for cell in first]
    names = {normalise_name(cell) for cell in cells}
    has_label, has_text = not names.isdisjoint(LABEL_NAMES), not names.isdisjoint(WHOLE_TEXT_NAMES + PART_TEXT_NAMES)
    if any(name in cells for name in known_names) or (has_label and has_text):
        return True
    named = [cell for cell in cells if cell]
    numbers = list(filter(_NUMBER.fullmatch, named))
    counted_up = [str(int(numbers[0]) + i) for i in range(len(numbers))] if numbers and numbers[0].isdecimal() else []
    numbered = has_label and len(numbers) > 1 and numbers == counted_up
    if len(set(named)) < len(named) or (numbers and not numbered):
        return False
    for i, cell in enumerate(cells):
        if cell and not (numbered and cell in numbers) and any(row[i].strip() == cell for row in rest[:_COMPARED_ROWS]):
            return False
    short = (0 < len(cell) <= 30 and len(cell.split()) <= 3 and cell[-1] not in ".?!" for cell in cells)
    return has_label or has_text or all(short)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that is not empty, after its number from 1."""
    # Not splitlines(): that also breaks at characters, such as U+2028, which JSON allows inside a string.
    return ((place, line) for place, line in enumerate(text.split("\n"), start=1) if line.strip())


def _parse_json_lines(path: Path, text: str, notes: list[str]) -> Table:
    records: list[dict[str, object]] = []
    places: list[int] = []
    names: dict[str, None] = {}
    for place, line in _lines(text):
        try:
            record = parse_json(line)
        except JSONDecodeError as error:
            raise DataError(f"{path} line {place} is not valid JSON: {error.msg} at column {error.colno}.") from error
        except ValueError as error:
            raise DataError(f"{path} line {place} is not a row of a table: {error}.") from None
        if not isinstance(record, dict):
            raise DataError(f"{path} line {place} is not a JSON object but a {type(record).__name__}.")
        names.update(dict.fromkeys(record))
        limits.check(limits.COLUMNS, len(names), path)
        records.append(record)
        places.append(place)
    if not names:
        raise DataError(f"{path} has no columns: its JSON objects are empty.")
    return Table(path, list(names), [[record.get(name) for record in records] for name in names], places, notes=notes)


def _parse_label_lines(path: Path, text: str) -> Table:
    """Read lines such as "NUM:dist How far is it ?": the coarse label, the fine one, and the text.

    A fine label keeps the coarse one before it, since some of them (`other`) are of several.
    """
    rows: list[tuple[str, str, str]] = []
    places: list[int] = []
    for place, line in _lines(text):
        found = _LABELLED.fullmatch(line.strip())
        if found is None:
            raise DataError(
                f"{path} line {place} does not begin with a coarse and a fine label, as in 'NUM:dist How far is it ?'."
            )
        coarse, fine, rest = found.groups()
        rows.append((coarse, f"{coarse}:{fine}", rest))
        places.append(place)
    return Table(path, ["coarse", "fine", "text"], list(zip(*rows, strict=True)), places)


def _parse_marked_lines(path: Path, text: str, notes: list[str]) -> Table:
    """Read lines such as "__label__NUM How far is it ?"; of several labels the first counts."""
    rows, places, several = [], [], 0
    for place, line in _lines(text):
        labels, rest = [], line.strip()
        while rest.startswith(LABEL_MARK):
            label, _, rest = rest.partition(" ")
            labels.append(label.removeprefix(LABEL_MARK))
        several += len(labels) > 1
        rows.append((labels[0] if labels else "", rest))
        places.append(place)
    if several:
        notes.append(f"Of {counted(several, 'line')} of {path.name} with several labels, the first is read.")
    return Table(path, ["label", "text"], list(zip(*rows, strict=True)), places, notes=notes)
