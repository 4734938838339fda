"""Texts as Zhang et al. (2015) publish them, read once and kept in a compact form on the disk.

Their files have no header, a class number from 1 in the first column and the text in the others, quotes doubled. They
are read row by row, whether plain, gzipped or in an archive: neither the file nor its texts are ever in memory as a
whole. Shapes: N rows.
"""

import csv
import gzip
import hashlib
import json
import tarfile
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.data.archives import BROKEN_ARCHIVE
from adaptive_labels.data.cache import hash_of, kept, mapped
from adaptive_labels.data.dataset import DataError
from adaptive_labels.data.readers.tables import fields_of_any_size
from adaptive_labels.data.splits import text_digest
from adaptive_labels.data.stored_texts import StoredTexts

_FORMAT = 1
"""Of the entries in the cache: another number makes all of them anew."""

_LONGEST_FIELD = 1 << 30
_WRITTEN_AT_A_TIME = 1 << 23  # bytes


@dataclass(frozen=True)
class Source:
    """A CSV file: plain, gzipped (by its name), or a member of an archive."""

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        return str(self.path if self.member is None else self.path / self.member)


@dataclass(frozen=True)
class Style:
    """How rows are written: the number of columns of text, and what a backslash stands for.

    In `line_ends="escaped"` a line break is a backslash and an n, and a quote may have a backslash before it; in
    `"backslash"` a backslash alone is where a line broke, and an n after it is the next line's first letter.
    """

    text_columns: int
    line_ends: str = "escaped"

    def unescape(self, text: str) -> str:
        """The text without backslashes that stand for something else.

        >>> Style(1).unescape(r'one\\ntwo, \\"three\\"')
        'one\\ntwo, "three"'
        >>> Style(2, "backslash").unescape("over a\\\\network")
        'over a network'
        """
        if "\\" not in text:
            return text
        if self.line_ends == "backslash":
            return text.replace("\\", " ")
        return text.replace("\\n", "\n").replace('\\"', '"')


@dataclass(frozen=True, eq=False)
class StoredRows:
    """The rows of a file as they lie in the cache.

    Args:
        texts: N texts; one without any visible character is kept, and empty.
        labels: (N,) int16, class numbers as the file has them, from 1.
        lines: (N,) uint32, the line that each row begins at.
        digests: (N, 32), of the texts (see `splits.text_digest`).
        md5: of the CSV itself, decompressed.
        file_md5: of the file that it was read from.
    """

    texts: StoredTexts
    labels: NDArray[np.int16]
    lines: NDArray[np.uint32]
    digests: NDArray[np.uint8]
    md5: str
    file_md5: str


def stored_rows(source: Source, style: Style, check: Callable[[StoredRows], None]) -> StoredRows:
    """Return the rows of a file, from the cache if this content was read before.

    Args:
        source: the file.
        style: how it is written.
        check: raises a DataError if the rows are not what they should be; they are then not kept.
    """
    with source.path.open("rb") as file:
        size, md5 = source.path.stat().st_size, hashlib.file_digest(file, "md5").hexdigest()
    key = hash_of([_FORMAT, size, md5, source.member, style.text_columns, style.line_ends])

    def make(folder: Path) -> None:
        _write(folder, source, style)
        check(_open(folder, key, md5))

    rows = _open(kept("texts", key, make), key, md5)
    check(rows)
    return rows


def _open(folder: Path, key: str, file_md5: str) -> StoredRows:
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    offsets, characters = mapped(folder / "offsets.bin", "<i8"), mapped(folder / "characters.bin", "<i4")
    texts = StoredTexts(folder / "texts.bin", offsets, characters, key)
    digests = mapped(folder / "digests.bin", np.uint8).reshape(len(texts), -1)
    return StoredRows(
        texts,
        mapped(folder / "labels.bin", "<i2"),
        mapped(folder / "lines.bin", "<u4"),
        digests,
        about["md5"],
        file_md5,
    )


def _write(folder: Path, source: Source, style: Style) -> None:
    """Read the file once, row by row, and write what `_open` reads."""
    md5 = hashlib.md5(usedforsecurity=False)
    offsets, characters, labels, lines = array("q", [0]), array("i"), array("h"), array("L")
    waiting: list[bytes] = []
    size = 0
    with (folder / "texts.bin").open("wb") as texts, (folder / "digests.bin").open("wb") as digests:
        for label, text, line in _rows(source, style, md5):
            content = text.encode("utf-8", "surrogatepass")
            waiting.append(content)
            size += len(content)
            digests.write(text_digest(text))
            offsets.append(offsets[-1] + len(content))
            characters.append(len(text))
            labels.append(label)
            lines.append(line)
            if size >= _WRITTEN_AT_A_TIME:
                texts.write(b"".join(waiting))
                waiting, size = [], 0
        texts.write(b"".join(waiting))
    if not labels:
        raise DataError(f"{source} has no rows.")
    columns = {"offsets": (offsets, "<i8"), "characters": (characters, "<i4"), "labels": (labels, "<i2")}
    for name, (numbers, kind) in {**columns, "lines": (lines, "<u4")}.items():
        np.asarray(numbers).astype(kind).tofile(folder / f"{name}.bin")
    (folder / "about.json").write_text(json.dumps({"source": str(source), "md5": md5.hexdigest()}), encoding="utf-8")


def _rows(source: Source, style: Style, md5: "hashlib._Hash") -> Iterator[tuple[int, str, int]]:
    """Yield label, text and line of each row; the digest gets what is read."""
    place = 1
    try:
        with _content(source) as content, fields_of_any_size(_LONGEST_FIELD):
            reader = csv.reader(_decoded(content, md5))
            for row in reader:
                if row:
                    parts = (style.unescape(part).strip() for part in row[1:])
                    yield _label(row, source, place, style), " ".join(part for part in parts if part), place
                place = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{source} line {place} cannot be parsed: {error}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{source} is not UTF-8 text ({error.reason}, after line {place}).") from error
    except BROKEN_ARCHIVE as error:
        raise DataError(f"{source} cannot be read: {error}.") from error


def _label(row: list[str], source: Source, place: int, style: Style) -> int:
    if len(row) != style.text_columns + 1:
        raise DataError(
            f"{source} line {place} has {len(row)} columns; a class number and {style.text_columns} of text are needed."
        )
    label = row[0].strip()
    if not (label.isdecimal() and 1 <= int(label) < 2**15):
        raise DataError(f"{source} line {place} begins with {row[0][:50]!r} where a class number from 1 is needed.")
    return int(label)


def _decoded(content: Iterable[bytes], md5: "hashlib._Hash") -> Iterator[str]:
    """Yield the lines as text; the digest gets what is read."""
    encoding = "utf-8-sig"
    for line in content:
        md5.update(line)
        yield line.decode(encoding)
        encoding = "utf-8"


@contextmanager
def _content(source: Source) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """The bytes of the CSV, decompressed as they are read."""
    if source.member is not None:
        with tarfile.open(source.path) as archive:
            for member in archive:
                if member.isfile() and PurePosixPath(member.name).name == source.member:
                    file = archive.extractfile(member)
                    assert file is not None  # it is a regular file
                    with file:
                        yield file
                    return
        raise DataError(f"The archive {source.path} has no {source.member}.")
    with source.path.open("rb") as plain:
        if not source.path.name.lower().endswith(".gz"):
            yield plain
            return
        with gzip.open(plain) as unpacked:
            yield unpacked
