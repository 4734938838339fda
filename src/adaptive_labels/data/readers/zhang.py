"""`ag_news`, `yahoo_answers` and `yelp_full`: three of the text sets of Zhang, Zhao and LeCun (2015), as published."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch

from adaptive_labels.data.archives import ARCHIVE_SUFFIXES
from adaptive_labels.data.cache import CACHE, cache_folder
from adaptive_labels.data.dataset import DataError, Examples, SplitName, counted
from adaptive_labels.data.download import download
from adaptive_labels.data.readers.registry import register_dataset
from adaptive_labels.data.readers.zhang_csv import Source, StoredRows, Style, stored_rows
from adaptive_labels.data.splits import Part, RawDataset
from adaptive_labels.data.stored_texts import LineSources

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
        description: what it is, in a line.
        folder: with train.csv and test.csv in it, or these gzipped; an archive has the same name.
        classes: their names, in the order of their numbers.
        per_class: how many rows of each class train and test have.
        style: how the rows are written.
        published: what is downloaded.
        md5: of train and test, where it is known; the others are known by their counts.
        archive_md5: of the archive that the makers publish.
    """

    name: str
    description: str
    folder: str
    classes: tuple[str, ...]
    per_class: Mapping[str, int]
    style: Style
    published: tuple[Published, ...]
    md5: Mapping[str, str] = field(default_factory=dict)
    archive_md5: str | None = None

    def read(self, data_dir: Path | None = None) -> RawDataset:
        """The official test split, and a validation split made from train; the texts stay on the disk."""
        rows = {
            split: stored_rows(source, self.style, partial(self._check, split, source))
            for split, source in self._find(data_dir).items()
        }
        parts = {}
        for split, found in rows.items():
            labels = torch.from_numpy(found.labels.astype(np.int64) - 1)
            examples = Examples(found.texts, labels, sources=LineSources(f"{split}.csv", found.lines))
            parts[split] = Part(examples, found.digests)
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
            found = {
                split: Source(folder / f"{split}{suffix}")
                for split in splits
                for suffix in (".csv.gz", ".csv")  # the last one found counts
                if (folder / f"{split}{suffix}").is_file()
            }
            if len(found) == len(splits):
                return found
        for archive in [root] if root.is_file() else [root / (self.folder + suffix) for suffix in ARCHIVE_SUFFIXES]:
            if archive.is_file():
                return {split: Source(archive, f"{split}.csv") for split in splits}
        return None

    def _check(self, split: str, source: Source, rows: StoredRows) -> None:
        """Refuse a file that is not the published one, by its MD5 where that is known and by its counts."""
        counts = np.bincount(rows.labels, minlength=len(self.classes) + 1)[1:]
        expected, unpublished = self.per_class[split], f"{source} is not the published file of {self.name}:"
        if len(counts) > len(self.classes):
            first = int(np.flatnonzero(rows.labels > len(self.classes))[0])
            wrong = f"{source} line {rows.lines[first]} has the class number {rows.labels[first]}; {self.name} has "
            wrong += f"{len(self.classes)} classes"
        elif (counts != expected).any():
            found = ", ".join(f"{count:,}" for count in counts)
            wrong = f"{unpublished} its classes have {found} rows where {expected:,} each are expected"
        elif rows.md5 != self.md5.get(split, rows.md5):
            wrong = f"{unpublished} the MD5 of the CSV is {rows.md5}, expected is {self.md5[split]}"
        else:
            return
        raise DataError(
            f"{wrong}. A folder of your own is read without this check if you give its path instead of the name."
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


def _on_mirror(archive: str, sha256: str) -> tuple[Published, ...]:
    return (Published(_MIRROR + archive, archive, sha256=sha256),)


_AG_NEWS_MD5 = {"train": "b1a00f826fdfbd249f79597b59e1dc12", "test": "d52ea96a97a2d943681189a97654912d"}
AG_NEWS = ZhangTexts(
    name="ag_news",
    description="news, title and text, 4 classes, 127,600 texts",
    folder="ag_news_csv",
    classes=("World", "Sports", "Business", "Sci/Tech"),
    per_class={"train": 30_000, "test": 1_900},
    style=Style(text_columns=2, line_ends="backslash"),
    published=tuple(
        Published(f"{_AG_NEWS}{split}.csv", f"ag_news_csv/{split}.csv", md5=md5) for split, md5 in _AG_NEWS_MD5.items()
    ),
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
    style=Style(text_columns=3),
    published=_on_mirror("yahoo_answers_csv.tgz", "2d4277855faf8b35259009425fa8f7fe1888b5644b47165508942d000f4c96ae"),
    archive_md5="f3f9899b997a42beb24157e62e3eea8d",
)
YELP_FULL = ZhangTexts(
    name="yelp_full",
    description="reviews, 1 to 5 stars, 700,000 texts",
    folder="yelp_review_full_csv",
    classes=("1 star", "2 stars", "3 stars", "4 stars", "5 stars"),
    per_class={"train": 130_000, "test": 10_000},
    style=Style(text_columns=1),
    published=_on_mirror(
        "yelp_review_full_csv.tgz", "56006b0a17a370f1e366504b1f2c3e3754e4a3dda17d3e718a885c552869a559"
    ),
    archive_md5="f7ddfafed1033f68ec72b9267863af6c",
)
for _texts in (AG_NEWS, YAHOO_ANSWERS, YELP_FULL):
    register_dataset(_texts.name, _texts.description, fetch=_texts.fetch)(_texts.read)
