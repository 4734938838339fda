"""`ag_news`, `yahoo_answers` and `yelp_full`: three of the text sets of Zhang, Zhao and LeCun (2015), as published."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from adaptive_labels.data.archives import ARCHIVE_SUFFIXES
from adaptive_labels.data.assemble import Part, assemble
from adaptive_labels.data.cache import CACHE, cache_folder
from adaptive_labels.data.dataset import DataError, Dataset, Examples
from adaptive_labels.data.download import download
from adaptive_labels.data.readers.zhang_format import Source, StoredRows, Style, stored_rows
from adaptive_labels.data.wording import counted

_AG_NEWS = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
# A mirror: the makers' own archives are on Google Drive, which asks a question before it gives out a large file.
_MIRROR = "https://s3.amazonaws.com/fast-ai-nlp/"


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

    def load(self, *, split_seed: int = 0, train_fraction: float = 1.0, data_dir: Path | None = None) -> Dataset:
        """The official test split, and a validation split made from train; the texts stay on the disk."""
        sources = self._find(data_dir)
        rows = {split: self._rows(split, source) for split, source in sources.items()}
        return assemble(
            self.name,
            "text",
            self.classes,
            self._part("train", rows["train"]),
            None,
            self._part("test", rows["test"]),
            notes=self._notes(rows),
            split_seed=split_seed,
            train_fraction=train_fraction,
        )

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

    def _find(self, data_dir: Path | None) -> dict[str, Source]:
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

    def _sources(self, root: Path) -> dict[str, Source] | None:
        """Where train and test are: in the folder, in `root` itself, or in an archive; None if they are not there."""
        archives = [root] if root.is_file() else [root / (self.folder + suffix) for suffix in ARCHIVE_SUFFIXES]
        for folder in (root / self.folder, root):
            found = {split: _csv(folder, split) for split in ("train", "test")}
            if all(found.values()):
                return {split: Source(path) for split, path in found.items() if path is not None}
        for archive in archives:
            if archive.is_file():
                return {split: Source(archive, f"{split}.csv") for split in ("train", "test")}
        return None

    def _rows(self, split: str, source: Source) -> StoredRows:
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

    def _part(self, split: str, rows: StoredRows) -> Part:
        labels = torch.from_numpy(rows.labels.astype(np.int64) - 1)
        return Part(Examples(rows.texts, labels, sources=rows.sources(f"{split}.csv")), rows.digests)

    def _notes(self, rows: Mapping[str, StoredRows]) -> list[str]:
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


_BY_PATH = "A folder of your own is read without this check if you give its path instead of the name."


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
