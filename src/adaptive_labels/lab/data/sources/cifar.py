"""`cifar10` and `cifar100`: 60,000 colour photographs of 32×32 pixels (Krizhevsky 2009), from the official files."""

import hashlib
import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adaptive_labels.lab.data import archives, downloads
from adaptive_labels.lab.data.dataset import DataError, Examples, SplitName
from adaptive_labels.lab.data.sources import register_dataset
from adaptive_labels.lab.data.splits import RawDataset
from adaptive_labels.lab.files import read_bytes
from adaptive_labels.lab.limits import check_limit, limit_of

_SITE = "https://www.cs.toronto.edu/~kriz/"

_RECONSTRUCT = np.empty(0).__reduce__()[0]  # numpy's own, wherever this version of numpy keeps it
# A pickle may name any function to be called; these hold plain values and numpy arrays, and nothing else.
_ALLOWED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is no part of an array")
        return _ALLOWED[module, name]


def read_pickle(content: bytes, where: str) -> Any:
    """The value of a pickle, its Python 2 texts as bytes; a DataError that names `where` if it asks for more.

    >>> read_pickle(pickle.dumps({"data": [1, 2]}), "train")
    {'data': [1, 2]}
    """
    try:
        return _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a broken pickle raises nearly anything
        raise DataError(f"{where} cannot be opened: {error}.") from error


@dataclass(frozen=True)
class Cifar:
    name: str
    folder: str  # of the published pickles
    md5: Mapping[str, str]  # of each of them
    archive: str  # the published .tar.gz of the folder, without that suffix; other archives are read as well
    archive_md5: str
    train: tuple[str, ...]  # its files
    test: str  # its file
    meta: str  # the file with the class names
    labels_key: bytes  # in the files of train and test
    classes_key: bytes  # in the meta file
    url: str  # of the archive

    def read(self, data_dir: Path | None = None) -> RawDataset:
        """Images as uint8 (N, 3, 32, 32), the official test split, and a validation split made from train."""
        files = self._files(data_dir)
        classes = [name.decode() for name in files[self.meta][self.classes_key]]
        splits: dict[SplitName, Examples] = {
            "train": self._examples("train", [files[name] for name in self.train]),
            "test": self._examples("test", [files[self.test]]),
        }
        note = "Images are RGB, 32×32 pixels; the files are those that were published (MD5)."
        return RawDataset(self.name, "image", classes, splits, [note])

    def fetch(self, data_dir: Path, progress: downloads.OnProgress) -> list[str]:
        """Download the archive, unless the data is in `data_dir` already; what was done, in sentences."""
        archive = data_dir / f"{self.archive}.tar.gz"
        return [] if self._find(data_dir) else downloads.fetch({archive: (self.url, self.archive_md5)}, progress)

    def _find(self, root: Path) -> Path | None:
        return downloads.find_published(root, self.folder, self.archive, lambda folder: not self._absent(folder))

    def _absent(self, folder: Path) -> list[str]:
        return [name for name in self.md5 if not (folder / name).is_file()]

    def _files(self, data_dir: Path | None) -> dict[str, Mapping[bytes, Any]]:
        root, where = downloads.place_of(data_dir)
        path = self._find(root)
        if path is None:
            folder = root / self.folder if (root / self.folder).is_dir() else root
            absent = self._absent(folder)
            if len(absent) < len(self.md5):
                where += f" ({folder} lacks {', '.join(absent)})"
            raise downloads.not_found(self.name, f"{self.folder}/", self.archive, where, self.url)
        contents = self._contents(path)
        return {name: read_pickle(contents.pop(name), str(path / name)) for name in self.md5}

    def _contents(self, path: Path) -> dict[str, bytes]:
        """The content of each file in the folder or the archive at `path`; a DataError if one is not as published."""
        if path.is_dir():
            contents = {name: read_bytes(path / name) for name in self.md5}
        else:
            contents = _read_archive(path, self.folder, list(self.md5))
        for name, expected in self.md5.items():
            md5 = hashlib.md5(contents[name], usedforsecurity=False).hexdigest()
            if md5 != expected:
                raise DataError(
                    f"{path / name} is not the published file of {self.name}: its MD5 is {md5}, expected is {expected}."
                )
        return contents

    def _examples(self, split: str, files: list[Mapping[bytes, Any]]) -> Examples:
        # (N, 3072): red, green, blue, each row by row. A single file's 150 MB are not copied.
        rows = files[0][b"data"] if len(files) == 1 else np.concatenate([file[b"data"] for file in files])
        labels = np.concatenate([np.asarray(file[self.labels_key], dtype=np.int64) for file in files])
        names = [name.decode("latin-1") for file in files for name in file[b"filenames"]]
        images = torch.from_numpy(rows.reshape(-1, 3, 32, 32))
        return Examples(images, torch.from_numpy(labels), sources=[f"{split}/{name}" for name in names])


def _read_archive(path: Path, folder: str, names: list[str]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    try:
        for member, file in archives.members(path):
            if member.name in names and member.parent.name == folder:
                contents[member.name] = file.read(limit_of("file") + 1)
                check_limit("file", len(contents[member.name]), f"{member} in {path}")
            if len(contents) == len(names):  # what follows need not be decompressed
                return contents
    except archives.BROKEN_ARCHIVE as error:
        raise DataError(f"The archive {path} cannot be read: {archives.why_broken(error)}.") from error
    lacking = next(name for name in names if name not in contents)
    raise DataError(f"The archive {path} has no {folder}/{lacking}.")


CIFAR10 = Cifar(
    name="cifar10",
    folder="cifar-10-batches-py",
    md5={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
    archive="cifar-10-python",
    archive_md5="c58f30108f718f92721af3b95e74349a",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    labels_key=b"labels",
    classes_key=b"label_names",
    url=_SITE + "cifar-10-python.tar.gz",
)
CIFAR100 = Cifar(
    name="cifar100",
    folder="cifar-100-python",
    md5={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
    archive="cifar-100-python",
    archive_md5="eb9058c3a382ffc7106e4002c42a8d85",
    train=("train",),
    test="test",
    meta="meta",
    labels_key=b"fine_labels",
    classes_key=b"fine_label_names",
    url=_SITE + "cifar-100-python.tar.gz",
)
register_dataset("cifar10", "photographs, 32×32 RGB, 10 classes, 60,000 images", fetch=CIFAR10.fetch)(CIFAR10.read)
register_dataset("cifar100", "photographs, 32×32 RGB, 100 classes, 60,000 images", fetch=CIFAR100.fetch)(CIFAR100.read)
