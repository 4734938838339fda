"""What is fuzzed: functions that take bytes as one of the readers does. Only a `UserError` may come out of them."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import json
import os
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from adaptive_labels.errors import UserError
from adaptive_labels.lab.analysis import group_records, read_run_records, verdict
from adaptive_labels.lab.data import load_dataset
from adaptive_labels.lab.data.frames import TABLE_SUFFIXES
from adaptive_labels.lab.data.sources.images import decode_files
from adaptive_labels.lab.files import file_hash, parse_json
from adaptive_labels.lab.paper.study import load_study
from adaptive_labels.lab.runs import RunFolder, find_problems, integrity
from adaptive_labels.lab.training.checkpoints import read_checkpoint, write_checkpoint
from run_maker import Maker, sealed_again

IMAGE_KINDS = ("png", "jpeg", "gif", "bmp", "webp", "tiff")
# A mutated header may claim more than is worth the time.
LIMITS = {"ALR_MAX_PIXELS": "4000000", "ALR_MAX_FILE": "50000000"}


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="alr-fuzz-"))
    os.environ.setdefault("ALR_CACHE", str(folder / "cache"))
    return folder


def read_table(data: bytes) -> None:
    """A table; the first byte says of which kind."""
    path = _folder() / f"table{TABLE_SUFFIXES[data[0] % len(TABLE_SUFFIXES)] if data else '.csv'}"
    path.write_bytes(data[1:])
    try:
        load_dataset(str(path), min_per_class=1)
    except UserError:
        pass
    finally:
        path.unlink()
        shutil.rmtree(_folder() / "cache", ignore_errors=True)


def read_image(data: bytes) -> None:
    """An image."""
    path = _folder() / "image.png"
    path.write_bytes(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            decode_files([path], (8, 8))
    except UserError:
        pass


@functools.cache
def _run() -> Path:
    """A whole run, and a checkpoint beside it."""
    run = Maker(_folder() / "runs").whole("alr", 0, classes=["a", "b", "c"], examples=20).path
    write_checkpoint(_folder() / "checkpoint", 3, {"weight": torch.ones(2)}, {"history": []})
    return run


@functools.cache
def _files(folder: str) -> dict[str, bytes]:
    _run()
    return {path.name: path.read_bytes() for path in sorted((_folder() / folder).rglob("*.*")) if path.is_file()}


def read_run(data: bytes) -> None:
    """A file of a run folder, sealed so that it is parsed and not refused; the first byte says which."""
    run, files = _run(), _files("runs")
    name = list(files)[data[0] % len(files)] if data else "config.json"
    (run / name).write_bytes(data[1:])
    try:
        if name != "result.json":
            sealed_again(run)
        find_problems(RunFolder(run))
        for group in group_records(read_run_records([RunFolder(run)])):
            verdict(group)
    except UserError:
        pass
    finally:
        for changed in (name, "result.json"):
            (run / changed).write_bytes(files[changed])


def read_checkpoint_file(data: bytes) -> None:
    """The tensors or the plain part of a checkpoint, sealed; the first byte says which."""
    _files("checkpoint")
    write_checkpoint(_folder() / "checkpoint", 3, {"weight": torch.ones(2)}, {"history": []})
    manifest, tensors = (_folder() / "checkpoint" / f"epoch-3.{kind}" for kind in ("json", "safetensors"))
    content = json.loads(manifest.read_text())
    if data and data[0] % 2:
        tensors.write_bytes(data[1:])
    else:
        with contextlib.suppress(ValueError, RecursionError):
            content = parse_json(data[1:].decode())
    if isinstance(content, dict):
        content.pop("seal", None)
        manifest.write_text(json.dumps(integrity.seal(content, {tensors.name: file_hash(tensors)})))
    with contextlib.suppress(UserError):
        read_checkpoint(_folder() / "checkpoint")


def read_study(data: bytes) -> None:
    """A study, whose tasks are configurations."""
    path = _folder() / "study.toml"
    path.write_bytes(data)
    with contextlib.suppress(UserError):
        load_study(path)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "table": read_table,
    "image": read_image,
    "run": read_run,
    "checkpoint": read_checkpoint_file,
    "study": read_study,
}


@functools.cache
def seeds(target: str) -> list[bytes]:
    """Whole files of each kind, to be damaged."""
    if target == "table":
        return _tables()
    if target == "image":
        return _images()
    if target in ("run", "checkpoint"):
        files = _files("runs" if target == "run" else target)
        return [bytes([i]) + content for i, content in enumerate(files.values())]
    text = 'title = "a"\nquestion = "b"\nseeds = 3\nmethods = ["baseline"]\n[task.t]\ndata = {name = "towns"}\n'
    text += 'model = {name = "fasttext", options = {dim = 8}}\ntraining = {epochs = 3, milestones = [1, 2]}\n'
    text += '[[variant]]\nname = "alr {attraction}"\nmethod = "alr"\ngrid = {attraction = [1.0, -2.0]}\n'
    return [text.encode(), b'"a" = [[1], {b = 1979-05-27T07:32:00Z}]\n', b"seeds = 1\nseeds = 2\n"]


def _tables() -> list[bytes]:
    import pyarrow
    import pyarrow.parquet

    rows = [("good bread", "food"), ("a song, played", "music"), ('the "match"', "sport")] * 4
    quoted = [(text.replace('"', '""'), label) for text, label in rows]
    delimited = "text,label\n" + "".join(f'"{text}",{label}\n' for text, label in quoted)
    tabs = delimited.replace(",", "\t")
    lines = "".join(
        f'{{"text": "{label}\\u2028", "label": "{label}", "n": {i}}}\n' for i, (_, label) in enumerate(rows)
    )
    labels = "".join(f"NUM:{label} {text} ?\n" for text, label in rows)
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": [t for t, _ in rows], "label": [k for _, k in rows]}), file)
    content = {".csv": delimited, ".tsv": tabs, ".jsonl": lines, ".ndjson": lines, ".label": labels}
    found = []
    for number, suffix in enumerate(TABLE_SUFFIXES):
        plain = content.get(suffix.removesuffix(".gz"), "").encode() or file.getvalue()
        found.append(bytes([number]) + (gzip.compress(plain, mtime=0) if suffix.endswith(".gz") else plain))
    return found


def _images() -> list[bytes]:
    from PIL import Image

    found = []
    for mode in ("RGB", "L", "P", "RGBA", "1"):
        for kind in IMAGE_KINDS:
            if not (kind == "jpeg" and mode in ("P", "RGBA")):
                file = io.BytesIO()
                Image.effect_noise((9, 7), 90).convert(mode).save(file, kind)
                found.append(file.getvalue())
    return found


def mutated(data: bytes, draw: random.Random) -> bytes:
    """A file with a few places changed, cut, doubled or filled with what readers stumble over."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 6)):
        place = draw.randint(1, max(len(changed), 1))  # the first byte may choose the kind
        kind = draw.randrange(7)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del changed[place : place + draw.choice([1, 4, 50, 10_000])]
        elif kind == 2:
            changed[place:place] = draw.choice(STUMBLES)
        elif kind == 3:
            changed[place:place] = changed[place : place + draw.choice([1, 8, 100])]
        elif kind == 4:
            changed[place : place + 4] = draw.randbytes(4)
        elif kind == 5:
            changed[place : place + 8] = b"\xff" * 8
        else:
            end = draw.randint(1, max(len(changed), 1))
            changed[place:place] = bytes(changed[end : end + 20])
    return bytes(changed)


STUMBLES = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b'"', b'""', b",", b"\n", b"\r", b"\t", b";", b"[" * 2000, b"{" * 2000, b"NaN",
    b"1e999", b"-1", b"99999999999999999999", b"null", b"{}", b"[]", b'"\\ud800"', b"\\", b"a" * 140_000,
    b"=cmd()", b"\x1b[31m", b"true", b"0", b"{", b"}", b"[", b"]", b":", b".5", b"__class__", b"1_0", b"''' ", b"#",
)  # fmt: skip
