"""`ag_news`, `yahoo_answers` and `yelp_full`: three of the text sets of Zhang, Zhao and LeCun (2015), as published.

Their files have no header, a class number from 1 in the first column and the text in the others, quotes doubled. They
are read row by row, whether plain, gzipped or in an archive, and kept in a compact form on the disk: neither the file
nor its texts are ever in memory as a whole. Shapes: N rows.
"""

import csv
import gzip
import hashlib
import io
import json
import tarfile
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from adaptive_labels.data.archives import ARCHIVE_SUFFIXES, BROKEN_ARCHIVE
from adaptive_labels.data.cache import CACHE, cache_folder, hash_of, kept, mapped
from adaptive_labels.data.dataset import DataError, Examples, SplitName, counted
from adaptive_labels.data.download import download
from adaptive_labels.data.readers.registry import register_dataset
from adaptive_labels.data.readers.tables import fields_of_any_size
from adaptive_labels.data.splits import Part, RawDataset, text_digest
from adaptive_labels.data.stored_texts import LineSources, StoredTexts

_AG_NEWS = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
# A mirror: the makers' own archives are on Google Drive, which asks a question before it gives out a large file.
_MIRROR = "https://s3.amazonaws.com/fast-ai-nlp/"
_BY_PATH = "A folder of your own is read without this check if you give its path instead of the name."

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


def _rows(source: Source, style: Style, md5: Any) -> Iterator[tuple[int, str, int]]:
    """Yield label, text and line of each row; the digest gets what is read."""
    place = 1
    try:
        with _content(source) as content, fields_of_any_size(_LONGEST_FIELD):
            lines = io.TextIOWrapper(io.BufferedReader(_Digested(content, md5), 1 << 20), "utf-8-sig", newline="")
            reader = csv.reader(lines)
            for row in reader:
                if row:
                    yield _label(row, source, place, style), _joined(row[1:], style), place
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


def _joined(parts: list[str], style: Style) -> str:
    return " ".join(part for part in (style.unescape(part).strip() for part in parts) if part)


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


class _Digested(io.RawIOBase):
    """A stream of bytes whose content goes into a digest as it is read."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, digest: Any) -> None:
        self.stream, self.digest = stream, digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self.stream.read(len(buffer))
        self.digest.update(content)
        buffer[: len(content)] = content
        return len(content)


@dataclass(frozen=True)
class Published:
    """A file on the web: its address, its place in the data folder, and one of its sums."""

    url: str
    place: str
    md5: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class ZhangTexts:
    """One of the data sets.

    Args:
        name: here.
        folder: with train.csv and test.csv in it, or these gzipped; an archive has the same name.
        classes: their names, in the order of their numbers.
        per_class: how many rows of each class train and test have.
        style: how the rows are written.
        published: what is downloaded.
        md5: of train and test, where it is known; the others are known by their counts.
        archive_md5: of the archive that the makers publish.
    """

    name: str
    folder: str
    classes: tuple[str, ...]
    per_class: Mapping[str, int]
    style: Style
    published: tuple[Published, ...]
    md5: Mapping[str, str] = field(default_factory=dict)
    archive_md5: str | None = None

    def read(self, data_dir: Path | None = None) -> RawDataset:
        """The official test split, and a validation split made from train; the texts stay on the disk."""
        rows = {split: self._rows(split, source) for split, source in self._find(data_dir).items()}
        parts = {split: _part(f"{split}.csv", found) for split, found in rows.items()}
        return RawDataset(self.name, "text", self.classes, parts, self._notes(rows))

    def fetch(self, data_dir: Path, progress: Callable[[int, int | None], None]) -> list[str]:
        """Download what is not in `data_dir` yet; what was done, in sentences."""
        done: list[str] = []
        if data_dir.is_file() or self._sources(data_dir) is not None:
            return done
        for file in self.published:
            path = data_dir / file.place
            if not path.is_file():
                download(file.url, path, md5=file.md5, sha256=file.sha256, progress=progress)
                done.append(f"Downloaded {path} from {file.url}.")
        return done

    def _find(self, data_dir: Path | None) -> dict[SplitName, Source]:
        root = Path() if data_dir is None else data_dir.expanduser()
        found = self._sources(root)
        if found is not None:
            return found
        where = f"in {root}" if data_dir is not None else "in the current folder"
        raise DataError(
            f"The data set {self.name} is neither as {self.folder}/ (train.csv and test.csv) nor as "
            f"{self.folder}.tar.gz {where}; name the folder that has it with --data-dir, or have it fetched from "
            f"{self.published[0].url} by `alr data prepare {self.name} --data-dir DIR`."
        )

    def _sources(self, root: Path) -> dict[SplitName, Source] | None:
        """Where train and test are: in the folder, in `root` itself, or in an archive; None if they are not there."""
        splits: tuple[SplitName, ...] = ("train", "test")
        for folder in (root / self.folder, root):
            found = {split: Source(path) for split in splits for path in [_csv(folder, split)] if path is not None}
            if len(found) == len(splits):
                return found
        for archive in [root] if root.is_file() else [root / (self.folder + suffix) for suffix in ARCHIVE_SUFFIXES]:
            if archive.is_file():
                return {split: Source(archive, f"{split}.csv") for split in splits}
        return None

    def _rows(self, split: SplitName, source: Source) -> StoredRows:
        return stored_rows(source, self.style, lambda rows: self._check(rows, split, source))

    def _check(self, rows: StoredRows, split: str, source: Source) -> None:
        """Refuse a file that is not the published one, by its MD5 where that is known and by its counts."""
        counts = np.bincount(rows.labels, minlength=len(self.classes) + 1)[1:]
        if len(counts) > len(self.classes):
            first = int(np.flatnonzero(rows.labels > len(self.classes))[0])
            raise DataError(
                f"{source} line {rows.lines[first]} has the class number {rows.labels[first]}; {self.name} has "
                f"{len(self.classes)} classes. {_BY_PATH}"
            )
        expected = self.per_class[split]
        if (counts != expected).any():
            found = ", ".join(f"{count:,}" for count in counts)
            raise DataError(
                f"{source} is not the published file of {self.name}: its classes have {found} rows where {expected:,} "
                f"each are expected. {_BY_PATH}"
            )
        if rows.md5 != self.md5.get(split, rows.md5):
            raise DataError(
                f"{source} is not the published file of {self.name}: the MD5 of the CSV is {rows.md5}, expected is "
                f"{self.md5[split]}. {_BY_PATH}"
            )

    def _notes(self, rows: Mapping[SplitName, StoredRows]) -> list[str]:
        archived = all(found.file_md5 == self.archive_md5 for found in rows.values())
        how = "their MD5" if self.md5 else "the archive's MD5" if archived else "their numbers of rows and classes"
        notes = [
            f"The files are those that were published, by {how}.",
            f"The texts are kept in a compact form in {cache_folder()} (environment variable {CACHE}) and read from "
            "there when they are needed.",
        ]
        for split, found in rows.items():
            empty = int((found.texts.lengths == 0).sum())
            if empty:
                notes.append(
                    f"{counted(empty, 'text')} of {split}.csv {'is' if empty == 1 else 'are'} empty, and kept."
                )
        return notes


def _part(file: str, rows: StoredRows) -> Part:
    labels = torch.from_numpy(rows.labels.astype(np.int64) - 1)
    return Part(Examples(rows.texts, labels, sources=LineSources(file, rows.lines)), rows.digests)


def _csv(folder: Path, split: str) -> Path | None:
    for name in (f"{split}.csv", f"{split}.csv.gz"):
        if (folder / name).is_file():
            return folder / name
    return None


AG_NEWS = ZhangTexts(
    name="ag_news",
    folder="ag_news_csv",
    classes=("World", "Sports", "Business", "Sci/Tech"),
    per_class={"train": 30_000, "test": 1_900},
    style=Style(text_columns=2, line_ends="backslash"),
    published=(
        Published(_AG_NEWS + "train.csv", "ag_news_csv/train.csv", md5="b1a00f826fdfbd249f79597b59e1dc12"),
        Published(_AG_NEWS + "test.csv", "ag_news_csv/test.csv", md5="d52ea96a97a2d943681189a97654912d"),
    ),
    md5={"train": "b1a00f826fdfbd249f79597b59e1dc12", "test": "d52ea96a97a2d943681189a97654912d"},
)
YAHOO_ANSWERS = ZhangTexts(
    name="yahoo_answers",
    folder="yahoo_answers_csv",
    classes=(
        "Society & Culture",
        "Science & Mathematics",
        "Health",
        "Education & Reference",
        "Computers & Internet",
        "Sports",
        "Business & Finance",
        "Entertainment & Music",
        "Family & Relationships",
        "Politics & Government",
    ),
    per_class={"train": 140_000, "test": 6_000},
    style=Style(text_columns=3),
    published=(
        Published(
            _MIRROR + "yahoo_answers_csv.tgz",
            "yahoo_answers_csv.tgz",
            sha256="2d4277855faf8b35259009425fa8f7fe1888b5644b47165508942d000f4c96ae",
        ),
    ),
    archive_md5="f3f9899b997a42beb24157e62e3eea8d",
)
YELP_FULL = ZhangTexts(
    name="yelp_full",
    folder="yelp_review_full_csv",
    classes=("1 star", "2 stars", "3 stars", "4 stars", "5 stars"),
    per_class={"train": 130_000, "test": 10_000},
    style=Style(text_columns=1),
    published=(
        Published(
            _MIRROR + "yelp_review_full_csv.tgz",
            "yelp_review_full_csv.tgz",
            sha256="56006b0a17a370f1e366504b1f2c3e3754e4a3dda17d3e718a885c552869a559",
        ),
    ),
    archive_md5="f7ddfafed1033f68ec72b9267863af6c",
)
for _texts, _description in (
    (AG_NEWS, "news, title and text, 4 classes, 127,600 texts"),
    (YAHOO_ANSWERS, "questions with their best answer, 10 classes, 1.46 million texts"),
    (YELP_FULL, "reviews, 1 to 5 stars, 700,000 texts"),
):
    register_dataset(_texts.name, _description, fetch=_texts.fetch)(_texts.read)
