"""`ag_news`, `yahoo_answers` and `yelp_full`: three of the text sets of Zhang, Zhao and LeCun (2015), as published.

Their CSV files have no header, a class number from 1 in the first column and the text in the others, quotes doubled.
They are read once, some rows at a time, into a compact form on disk: neither a file nor its texts are ever in memory
as a whole.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import torch

from adaptive_labels.lab.data import archives, downloads
from adaptive_labels.lab.data.cache import CACHE, cache_folder, cached, hash_of, memmap
from adaptive_labels.lab.data.dataset import DataError, Examples, SplitName
from adaptive_labels.lab.data.frames import read_csv
from adaptive_labels.lab.data.sources import register_dataset
from adaptive_labels.lab.data.splits import RawDataset, text_digest
from adaptive_labels.lab.data.stored_texts import LineSources, StoredTexts
from adaptive_labels.lab.files import open_regular
from adaptive_labels.lab.words import plural

# A mirror: the makers' own archives are on Google Drive, which asks a question before it gives out a large file.
_MIRROR = "https://s3.amazonaws.com/fast-ai-nlp/"
_ROWS_AT_A_TIME = 50_000
_FORMAT = 2  # of the entries in the cache: another number makes all of them anew
_SPLITS: tuple[SplitName, ...] = ("train", "test")
Check = Callable[["array[int]", "array[int]"], None]
_COLUMNS = {"offsets": "<i8", "characters": "<i4", "labels": "<i2", "lines": "<u4", "digests": "|u1"}  # of an entry


@dataclass(frozen=True)
class ZhangTexts:
    name: str
    description: str
    folder: str  # with train.csv and test.csv in it; an archive has the same name
    classes: tuple[str, ...]  # in the order of their numbers
    per_class: Mapping[str, int]  # how many rows of each class train and test have
    text_columns: int
    site: str  # the address of what is downloaded
    files: Mapping[str, str]  # its places in the data folder, with their checksums
    line_ends: str = "escaped"  # see `unescape`
    md5: Mapping[str, str] = field(default_factory=dict)  # of train and test, where it is known

    def read(self, data_dir: Path | None = None) -> RawDataset:
        """The official test split, and a validation split made from train; the texts stay on disk."""
        root, where = downloads.place_of(data_dir)
        sources = self._find(root)
        if not sources:
            url = self._url(next(iter(self.files)))
            raise downloads.not_found(self.name, f"{self.folder}/ (train.csv and test.csv)", self.folder, where, url)
        splits: dict[SplitName, Examples] = {}
        digests: dict[SplitName, np.ndarray] = {}
        how = "MD5" if self.md5 else "numbers of rows and classes"
        notes = [
            f"The files are those that were published, by their {how}.",
            f"The texts are kept in a compact form in {cache_folder()} (environment variable {CACHE}) and read from "
            "there when they are needed.",
        ]
        for split, source in sources.items():
            check = partial(self._check, split, source)
            splits[split], digests[split] = read_stored(source, self.text_columns, self.line_ends, check)
            empty = int((splits[split].inputs.lengths == 0).sum())  # type: ignore[union-attr]
            verb = "is" if empty == 1 else "are"
            notes += [f"{plural(empty, 'text')} of {split}.csv {verb} empty, and kept."] if empty else []
        return RawDataset(self.name, "text", self.classes, splits, notes, digests)

    def fetch(self, data_dir: Path, progress: downloads.OnProgress) -> list[str]:
        files = {data_dir / place: (self._url(place), checksum) for place, checksum in self.files.items()}
        return [] if self._find(data_dir) else downloads.fetch(files, progress)

    def _url(self, place: str) -> str:
        return self.site + Path(place).name

    def _find(self, root: Path) -> dict[SplitName, Path]:
        """Where train and test are: in the folder, in `root` itself, or in an archive; empty if they are not there."""
        place = downloads.find_published(
            root, self.folder, self.folder, lambda folder: all(map(Path.is_file, _files(folder).values()))
        )
        return {} if place is None else _files(place)

    def _check(self, split: str, source: Path, numbers: "array[int]", lines: "array[int]") -> None:
        """Refuse a file that is not the published one, by its counts and by its MD5 where that is known."""
        counts = np.bincount(numbers, minlength=len(self.classes) + 1)[1:]
        expected, unpublished = self.per_class[split], f"{source} is not the published file of {self.name}:"
        if len(counts) > len(self.classes):
            first = next(i for i, number in enumerate(numbers) if number > len(self.classes))
            wrong = f"{source} line {lines[first]} has the class number {numbers[first]}; {self.name} has "
            wrong += f"{len(self.classes)} classes"
        elif (counts != expected).any():
            rows = ", ".join(f"{count:,}" for count in counts)
            wrong = f"{unpublished} its classes have {rows} rows where {expected:,} each are expected"
        elif self.md5 and (md5 := _md5(source)) != self.md5[split]:
            wrong = f"{unpublished} the MD5 of the CSV is {md5}, expected is {self.md5[split]}"
        else:
            return
        raise DataError(
            f"{wrong}. A folder of your own is read without this check if you give its path instead of the name."
        )


def _files(place: Path) -> dict[SplitName, Path]:
    """The CSV files in a folder or an archive."""
    return {split: place / f"{split}.csv" for split in _SPLITS}


def unescape(text: str, line_ends: str) -> str:
    r"""The text without backslashes that stand for something else.

    Where line ends are "escaped", a line break is a backslash and an n, and a quote may have a backslash before it. In
    "backslash" a backslash alone is where a line broke, and an n after it is the next line's first letter.

    >>> unescape(r'one\ntwo, \"three\"', "escaped")
    'one\ntwo, "three"'
    >>> unescape(r"over a\network", "backslash")
    'over a network'
    """
    if line_ends == "backslash":
        return text.replace("\\", " ")
    return text.replace("\\n", "\n").replace('\\"', '"')


def read_stored(source: Path, columns: int, line_ends: str, check: Check | None = None) -> tuple[Examples, np.ndarray]:
    """Return the rows of a file with so many columns of text, and the digests of the texts; from the cache if cached.

    ``check`` is given the class numbers and the lines before they are cached.
    """
    state = (source.parent if source.parent.is_file() else source).stat()
    key = hash_of([_FORMAT, str(source.resolve()), state.st_size, state.st_mtime_ns, columns, line_ends])
    folder = cached("texts", key, lambda entry: _write(entry, source, columns, line_ends, check))
    arrays = {name: memmap(folder / f"{name}.bin", dtype) for name, dtype in _COLUMNS.items()}
    texts = StoredTexts(folder / "texts.bin", arrays["offsets"], arrays["characters"], key)
    labels = torch.from_numpy(arrays["labels"].astype(np.int64) - 1)
    examples = Examples(texts, labels, sources=LineSources(source.name, arrays["lines"]))
    return examples, arrays["digests"].reshape(len(texts), -1)


def _write(folder: Path, source: Path, columns: int, line_ends: str, check: Check | None) -> None:
    """Read the file once, some rows at a time, and write what `read_stored` reads."""
    offsets, characters, labels, lines = array("q", [0]), array("i"), array("h"), array("L")
    try:
        with (
            _content(source) as content,
            (folder / "texts.bin").open("wb") as texts,
            (folder / "digests.bin").open("wb") as digests,
        ):
            for frame, places in read_csv(source, content, rows=_ROWS_AT_A_TIME):
                cells = [frame[column].tolist() for column in frame]
                if len(cells) != columns + 1:
                    needed = f"a class number and {columns} of text are needed"
                    raise DataError(f"{source} line {places[0]} has {len(cells)} columns; {needed}.")
                for label, place, *parts in zip(cells[0], places.tolist(), *cells[1:], strict=True):
                    if not (label.strip().isdecimal() and 1 <= int(label) < 2**15):
                        wrong = f"begins with {label[:50]!r} where a class number from 1 is needed"
                        raise DataError(f"{source} line {place} {wrong}.")
                    text = " ".join(filter(None, (unescape(part, line_ends).strip() for part in parts)))
                    encoded = text.encode("utf-8", "surrogatepass")
                    texts.write(encoded)
                    digests.write(text_digest(text))
                    offsets.append(offsets[-1] + len(encoded))
                    characters.append(len(text))
                    labels.append(int(label))
                    lines.append(place)
        if check is not None:
            check(labels, lines)
    except archives.BROKEN_ARCHIVE as error:
        raise DataError(f"{source} cannot be read: {archives.why_broken(error)}.") from error
    columns_of_numbers = {"offsets": offsets, "characters": characters, "labels": labels, "lines": lines}
    for name, numbers in columns_of_numbers.items():
        np.asarray(numbers).astype(_COLUMNS[name]).tofile(folder / f"{name}.bin")


@contextmanager
def _content(source: Path) -> Iterator[IO[bytes]]:
    """The bytes of the CSV: a file's, or those of a member of an archive, decompressed as they are read."""
    if source.parent.is_file():
        for member, file in archives.members(source.parent):
            if member.name == source.name:
                yield file
                return
        raise DataError(f"The archive {source.parent} has no {source.name}.")
    with open_regular(source) as file:
        yield file


def _md5(source: Path) -> str:
    with _content(source) as content:
        return hashlib.file_digest(content, "md5").hexdigest()  # type: ignore[arg-type]


_AG_NEWS_MD5 = {"train": "b1a00f826fdfbd249f79597b59e1dc12", "test": "d52ea96a97a2d943681189a97654912d"}
AG_NEWS = ZhangTexts(
    name="ag_news",
    description="news, title and text, 4 classes, 127,600 texts",
    folder="ag_news_csv",
    classes=("World", "Sports", "Business", "Sci/Tech"),
    per_class={"train": 30_000, "test": 1_900},
    text_columns=2,
    site="https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/",
    files={f"ag_news_csv/{split}.csv": md5 for split, md5 in _AG_NEWS_MD5.items()},
    line_ends="backslash",
    md5=_AG_NEWS_MD5,
)
YAHOO_ANSWERS = ZhangTexts(
    name="yahoo_answers",
    description="questions with their best answer, 10 classes, 1.46 million texts",
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
    text_columns=3,
    site=_MIRROR,
    files={"yahoo_answers_csv.tgz": "2d4277855faf8b35259009425fa8f7fe1888b5644b47165508942d000f4c96ae"},
)
YELP_FULL = ZhangTexts(
    name="yelp_full",
    description="reviews, 1 to 5 stars, 700,000 texts",
    folder="yelp_review_full_csv",
    classes=("1 star", "2 stars", "3 stars", "4 stars", "5 stars"),
    per_class={"train": 130_000, "test": 10_000},
    text_columns=1,
    site=_MIRROR,
    files={"yelp_review_full_csv.tgz": "56006b0a17a370f1e366504b1f2c3e3754e4a3dda17d3e718a885c552869a559"},
)
for _texts in (AG_NEWS, YAHOO_ANSWERS, YELP_FULL):
    register_dataset(_texts.name, _texts.description, fetch=_texts.fetch)(_texts.read)
