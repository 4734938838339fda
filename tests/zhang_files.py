"""Small files in the format of Zhang et al. (2015), and the data sets that expect so few rows."""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
from dataclasses import replace
from pathlib import Path

from adaptive_labels.lab.data.sources.zhang import ZhangTexts

PER_CLASS = {"train": 12, "test": 3}


def make_zhang(official: ZhangTexts, per_class: dict[str, int] | None = None) -> tuple[ZhangTexts, dict[str, bytes]]:
    """The data set with the counts and sums of small files; the files by name."""
    per_class = per_class or PER_CLASS
    files = {f"{split}.csv": content(official, split, count) for split, count in per_class.items()}
    sums = {split: hashlib.md5(files[f"{split}.csv"]).hexdigest() for split in official.md5}
    return replace(official, per_class=per_class, md5=sums), files


def content(official: ZhangTexts, split: str, count: int) -> bytes:
    """Rows of all classes in turn: the class's number and its words, with the quotes and breaks of the real files."""
    draw = random.Random(f"{official.name} {split}")
    lines = []
    for number in range(count * len(official.classes)):
        label = 1 + number % len(official.classes)
        word = f"word{label}"
        cells = [f"{split} {number}", *(f"{word} x{draw.randrange(99)}, é" for _ in range(official.text_columns))]
        cells = cells[: official.text_columns]
        cells[-1] += f' {word} a "quoted" one'
        quoted = ",".join('"' + cell.replace('"', '""') + '"' for cell in [str(label), *cells])
        lines.append(quoted + "\n")
    return "".join(lines).encode()


def write_folder(texts: ZhangTexts, files: dict[str, bytes], root: Path) -> Path:
    folder = root / texts.folder
    folder.mkdir(parents=True)
    for name, file in files.items():
        (folder / name).write_bytes(file)
    return folder


def write_archive(texts: ZhangTexts, files: dict[str, bytes], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz" if path.suffix in (".gz", ".tgz") else "w") as archive:
        for name, file in {"readme.txt": b"...", "._train.csv": b"!", **files}.items():
            member = tarfile.TarInfo(f"{texts.folder}/{name}")
            member.size = len(file)
            archive.addfile(member, io.BytesIO(file))
    return path
