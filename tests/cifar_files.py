"""Small files in the format of the official ones: pickles as Python 2 wrote them, with numpy arrays inside."""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from adaptive_labels.lab.data.sources.cifar import CIFAR10, CIFAR100, Cifar

CLASSES = {"cifar10": ["cat", "dog", "ship"], "cifar100": ["apple", "bee", "cloud", "dolphin"]}


class Python2Pickler(pickle._Pickler):
    """Writes texts and bytes alike as Python 2's strings."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value: str | bytes) -> None:
        content = value.encode() if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)

    dispatch[str] = dispatch[bytes] = save_string


def python2_pickle(value: Any) -> bytes:
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def batch(cifar: Cifar, name: str, number: int, seed: int) -> tuple[bytes, np.ndarray, list[int]]:
    """A file of `number` images a class, and what is in it."""
    classes = len(CLASSES[cifar.name])
    images = np.random.default_rng(seed).integers(0, 256, (number * classes, 3, 32, 32), dtype=np.uint8)
    labels = [i % classes for i in range(len(images))]
    value = {
        "batch_label": name,
        cifar.labels_key: labels,
        "data": images.reshape(len(images), -1),
        "filenames": [f"{name}_{i}.png" for i in range(len(images))],
    }
    if cifar is CIFAR100:
        value["coarse_labels"] = [0] * len(images)
    return python2_pickle(value), images, labels


def make_cifar(cifar: Cifar) -> tuple[Cifar, dict[str, bytes], dict[str, tuple[np.ndarray, np.ndarray]]]:
    """The data set with sums of small files; the files by name; images and labels of train and test."""
    files, splits = {}, {}
    for split, names, number in (("train", cifar.train, 10), ("test", (cifar.test,), 3)):
        made = [batch(cifar, name, number, seed + 10 * number) for seed, name in enumerate(names)]
        files |= dict(zip(names, (content for content, _, _ in made), strict=True))
        splits[split] = (
            np.concatenate([images for _, images, _ in made]),
            np.concatenate([labels for _, _, labels in made]),
        )
    files[cifar.meta] = python2_pickle({cifar.classes_key: CLASSES[cifar.name]})
    sums = {name: hashlib.md5(files[name]).hexdigest() for name in cifar.md5}
    return replace(cifar, md5=sums), files, splits


def write_folder(name: str, files: dict[str, bytes], root: Path) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def write_archive(folder: str, files: dict[str, bytes], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = "w:" + {".gz": "gz", ".tgz": "gz", ".xz": "xz", ".bz2": "bz2"}.get(path.suffix, "")
    with tarfile.open(path, mode) as archive:
        for name, content in {"readme.html": b"...", **files}.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


BOTH = (CIFAR10, CIFAR100)
