"""The table of bad inputs: kind of file × what is wrong with it → one sentence on standard error, never a traceback."""

from __future__ import annotations

import gzip
import io
import itertools
import os
import shutil
import socket
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from test_cli_integrity import FILES

from adaptive_labels.errors import UserError
from adaptive_labels.lab.data.frames import read_table

RAISED = "the environment variable {} raises this limit"
ROWS = [("bread and soup", "food"), ("a song", "music"), ("the match", "sport")] * 4
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".label", ".parquet")
PACKED = tuple(f"{suffix}.gz" for suffix in TABLES[:-1])
IMAGES = (".png", ".jpg", ".webp", ".bmp", ".gif", ".tif")


def table(suffix: str, rows=ROWS, names=("text", "label")) -> bytes:
    """A whole table of a kind."""
    kind = suffix.removesuffix(".gz")
    if kind == ".parquet":
        file, columns = io.BytesIO(), zip(*rows, strict=True) if rows else [[] for _ in names]
        pyarrow.parquet.write_table(pyarrow.table(dict(zip(names, map(list, columns), strict=True))), file)
        return file.getvalue()
    if kind == ".label":
        lines = [f"{row[-1]}:fine {' '.join(row[:-1])}" for row in rows]
    elif kind in (".csv", ".tsv"):
        lines = [{".csv": ",", ".tsv": "\t"}[kind].join(row) for row in (names, *rows)]
    else:
        cells = [", ".join(f'"{name}": "{cell}"' for name, cell in zip(names, row, strict=True)) for row in rows]
        lines = [f"{{{line}}}" for line in cells]
    plain = "".join(f"{line}\n" for line in lines).encode()
    return gzip.compress(plain) if suffix.endswith(".gz") else plain


def picture(suffix: str) -> bytes:
    """A whole image of a kind."""
    file = io.BytesIO()
    kind = {"jpg": "jpeg", "tif": "tiff"}.get(suffix[1:], suffix[1:])
    Image.effect_noise((24, 16), 90).convert("RGB").save(file, kind)
    return file.getvalue()


def put(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        before = Path.cwd()
        os.chdir(path.parent)  # the names of sockets are short
        try:
            one.bind(path.name)
        finally:
            os.chdir(before)


# What may lie where a file is expected, whatever its kind; no row opens the device, which would be seen as a hang.
SPECIAL: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "it is a pipe, and only ordinary files are opened"),
    "a link to a pipe": (
        lambda path: (os.mkfifo(path.with_name("pipe")), path.symlink_to("pipe")),
        "it is a pipe, and only ordinary files are opened",
    ),
    "a link to /dev/zero": (
        lambda path: path.symlink_to("/dev/zero"),
        "it is a device, and only ordinary files are opened",
    ),
    "a link to /dev/tty": (
        lambda path: path.symlink_to("/dev/tty"),
        "it is a device, and only ordinary files are opened",
    ),
    "a socket": (bind, "it is a socket, and only ordinary files are opened"),
}


def bad_tables() -> dict[str, tuple[str, Callable[[Path], object], dict[str, str], str]]:
    """By name: the file's name, what makes it, the limits that are set, and words of the sentence."""
    found = {}

    def row(suffix: str, damage: str, make: Callable[[Path], object], words: str, **limits: int) -> None:
        found[f"{suffix} {damage}"] = (f"data{suffix}", make, {k: str(v) for k, v in limits.items()}, words)

    for suffix in (*TABLES, *PACKED):
        packed, parquet, labels = suffix.endswith(".gz"), suffix == ".parquet", ".label" in suffix
        pack = gzip.compress if packed else bytes
        for damage, (make, words) in SPECIAL.items():
            row(suffix, damage, make, words)
        row(suffix, "a folder", Path.mkdir, "is empty")
        row(suffix, "a link to nothing", lambda path: path.symlink_to("nothing"), "no such path exists")
        row(suffix, "a link to itself", lambda path: path.symlink_to(path.name), "no such path exists")
        empty = "no readable Parquet file" if parquet else "is empty"
        row(suffix, "empty", put(b""), empty)
        row(suffix, "spaces", put(pack(b" \n\n ")), empty)
        row(suffix, "NUL", put(pack(b"text,label\na\0b,c\n" * 9)), "Parquet" if parquet else "NUL characters at line 2")
        if parquet or packed:
            whole = table(suffix)
            words = "no readable Parquet file" if parquet else "cannot be read"
            row(suffix, "cut", put(whole[: len(whole) // 2]), words)
            row(
                suffix, "ends otherwise" if parquet else "begins otherwise", put(b"XXXX" + whole[4:-4] + b"XXXX"), words
            )
            row(suffix, "is an image", put(picture(".png")), words)
            row(suffix, "a flipped byte", put(whole[:-5] + bytes([whole[-5] ^ 255]) + whole[-4:]), words)
        row(suffix, "too large", put(table(suffix)), RAISED.format("ALR_MAX_FILE"), ALR_MAX_FILE=50)
        long = [("x" * 500, "food"), *ROWS]
        row(suffix, "a long field", put(table(suffix, long)), RAISED.format("ALR_MAX_FIELD"), ALR_MAX_FIELD=400)
        row(suffix, "one class", put(table(suffix, [(f"a text {i}", "a") for i in range(5)])), "needs at least two")
        row(suffix, "one example each", put(table(suffix, ROWS[:3])), "has one example only")
        if not labels:
            names = ("text", "label", *map(str, range(50)))
            wide = [(*pair, *["x"] * 50) for pair in ROWS]
            words = RAISED.format("ALR_MAX_COLUMNS")
            row(suffix, "many columns", put(table(suffix, wide, names)), words, ALR_MAX_COLUMNS=40)
            row(suffix, "one column", put(table(suffix, [("a",), ("b",)], ("text",))), "has one column only")
            row(suffix, "no rows", put(table(suffix, [])), "is empty" if "json" in suffix else "no rows")
            row(suffix, "no label", put(table(suffix, [*ROWS, ("soup", "")])), "is empty at")
            row(suffix, "no texts", put(table(suffix, [("", label) for _, label in ROWS])), "are empty")
    for suffix in (".csv", ".tsv", ".csv.gz", ".tsv.gz"):
        pack = gzip.compress if suffix.endswith(".gz") else bytes
        row(
            suffix,
            "a short row",
            put(pack(table(suffix.removesuffix(".gz")) + b"lonely\n")),
            "is empty at data" + suffix + " line 14",
        )
        row(suffix, "half UTF-16", put(pack(b"\xff\xfea")), "is not UTF-8")
    for suffix in (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"):
        pack = gzip.compress if suffix.endswith(".gz") else bytes
        row(suffix, "not JSON", put(pack(b'{"text": "a"}\n{"text" "b"}\n')), "line 2 is not valid JSON")
        row(suffix, "a list", put(pack(b"[1]\n")), "line 1 is not a JSON object but a list")
        row(suffix, "nested", put(pack(b"[" * 10_000)), RAISED.format("ALR_MAX_NESTING"))
        row(suffix, "nested within", put(pack(b'{"text": ' + b"[" * 300 + b"]" * 300 + b"}")), "ALR_MAX_NESTING")
        row(suffix, "a list as text", put(pack(b'{"text": ["a"], "label": "b"}\n' * 4)), "where a text or a number")
        row(suffix, "no keys", put(pack(b"{}\n{}\n")), "its JSON objects are empty")
    for suffix in (".label", ".label.gz"):
        pack = gzip.compress if suffix.endswith(".gz") else bytes
        row(suffix, "no label", put(pack(b"How far is it ?\n")), "does not begin with a coarse and a fine label")
    return found


BAD_TABLES = bad_tables()


def one_sentence(ended, words: str) -> None:
    assert ended.status == 2, ended
    assert len(ended.err.splitlines()) == 1, ended.err
    assert ended.err.startswith("alr: ")
    assert words in ended.err
    assert len(ended.err) < 1000


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_tables(alr, tmp_path, monkeypatch, name):
    file, make, limits, words = BAD_TABLES[name]
    for variable, value in limits.items():
        monkeypatch.setenv(variable, value)
    make(tmp_path / file)
    one_sentence(alr("train", file, "--dry-run"), words)


def bad_images() -> dict[str, tuple[str, Callable[[Path], object], dict[str, str], str]]:
    found = {}
    for suffix in IMAGES:
        whole = picture(suffix)
        damages = {
            **{damage: (make, words, {}) for damage, (make, words) in SPECIAL.items()},
            "a folder": (Path.mkdir, "", {}),
            "a link to nothing": (lambda path: path.symlink_to("nothing"), "No such file", {}),
            "a link to itself": (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links", {}),
            "empty": (put(b""), "no image of a kind that is known", {}),
            "a text": (put(b"hello"), "no image of a kind that is known", {}),
            "cut": (put(whole[: len(whole) // 2]), "cannot be read", {}),
            "cut after a few bytes": (put(whole[:20]), "cannot be read", {}),
            "too many pixels": (put(whole), RAISED.format("ALR_MAX_PIXELS"), {"ALR_MAX_PIXELS": "100"}),
            "too large": (put(whole), RAISED.format("ALR_MAX_FILE"), {"ALR_MAX_FILE": "40"}),
        }
        for damage, (make, words, limits) in damages.items():
            if words:
                found[f"{suffix} {damage}"] = (f"bad{suffix}", make, limits, words)
    return found


BAD_IMAGES = bad_images()


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_bad_images(alr, tmp_path, monkeypatch, name):
    file, make, limits, words = BAD_IMAGES[name]
    for label in ("one", "two"):
        (tmp_path / "data" / label).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "data" / label / f"{number}.png").write_bytes(picture(".png"))
    make(tmp_path / "data" / "one" / file)
    for variable, value in limits.items():
        monkeypatch.setenv(variable, value)
    one_sentence(alr("train", "data", "--dry-run"), words)


def test_a_huge_image_is_not_decoded(alr, tmp_path):
    """A bomb of 400 million pixels in a few kilobytes, which Pillow refuses, too."""
    Image.new("1", (20_000, 20_000)).save(tmp_path / "bomb.png")
    for label in ("one", "two"):
        (tmp_path / "data" / label).mkdir(parents=True)
        for number in range(3):
            shutil.copy(tmp_path / "bomb.png", tmp_path / "data" / label / f"{number}.png")
    one_sentence(alr("train", "data", "--dry-run"), "more than 178,956,970 pixels; the environment variable ALR_MAX_")


def npz(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def tar(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


# What other files than tables and images may be: the option that names them, and what is wrong.
START = ["train", "good.csv", "--dry-run"]
LABELS = [*START, "--set", "method.options.initial_labels=bad"]
WEIGHTS = [*START, "--weights", "bad"]
STUDY = ["study", "bad"]
TEACHER = [*START, "--method", "kd", "--set", "method.options.teacher=bad"]
PREDICT = ["predict", "run", "bad"]
SUSPECTS = ["report", "run", "--suspects", "bad"]
CIFAR = ["train", "cifar100", "--data-dir", ".", "--dry-run"]
NEWS = ["train", "ag_news", "--data-dir", ".", "--dry-run"]
OTHERS: dict[str, tuple[list[str], str, Callable[[Path], object], dict[str, str], str]] = {
    **{
        f"{kind}: {damage}": (command, "bad", make, {}, words)
        for kind, command in {
            "initial labels": LABELS,
            "weights": WEIGHTS,
            "study": STUDY,
            "texts to predict": PREDICT,
            "suspects": SUSPECTS,
        }.items()
        for damage, (make, words) in SPECIAL.items()
    },
    **{
        f"archive of {command[1]}: {damage}": (command, file, make, {}, words)
        for file, command in {"cifar-100-python.tar.gz": CIFAR, "ag_news_csv.tgz": NEWS}.items()
        for damage, (make, words) in {
            "empty": (put(b""), "cannot be read"),
            "a text": (put(b"hello" * 99), "cannot be read"),
            "cut": (put(tar({"x": bytes(9999)})[:60]), "cannot be read"),
            "another": (put(tar({"x": b"x"})), "has no"),
        }.items()
    },
    "archive: many members": (
        CIFAR, "cifar-100-python.tar.gz", put(tar({f"{i}": b"" for i in range(60)})), {"ALR_MAX_MEMBERS": "50"},
        RAISED.format("ALR_MAX_MEMBERS"),
    ),
    "archive: expands": (
        CIFAR, "cifar-100-python.tar.gz", put(tar({"x": bytes(10**6)})), {"ALR_MAX_ARCHIVE": "100000"},
        RAISED.format("ALR_MAX_ARCHIVE"),
    ),
    "archive of texts: many members": (
        NEWS, "ag_news_csv.tgz", put(tar({f"{i}": b"" for i in range(60)})), {"ALR_MAX_MEMBERS": "50"},
        RAISED.format("ALR_MAX_MEMBERS"),
    ),
    "archive of texts: expands": (
        NEWS, "ag_news_csv.tgz", put(tar({"x": bytes(10**6)})), {"ALR_MAX_ARCHIVE": "100000"},
        RAISED.format("ALR_MAX_ARCHIVE"),
    ),
    "archive of texts: a long field": (
        NEWS, "ag_news_csv.tgz", put(tar({"train.csv": b"1,a," + b"b" * 999})), {"ALR_MAX_FIELD": "500"},
        RAISED.format("ALR_MAX_FIELD"),
    ),
    "archive of texts: no number": (NEWS, "ag_news_csv.tgz", put(tar({"train.csv": b"x,a,b\n"})), {}, "class number"),
    "initial labels: a text": (LABELS, "bad", put(b"hello"), {}, "cannot be read"),
    "initial labels: empty": (LABELS, "bad", put(b""), {}, "cannot be read"),
    "initial labels: a folder": (LABELS, "bad", Path.mkdir, {}, "cannot be read"),
    "initial labels: too large": (
        LABELS, "bad", put(npz(labels=np.zeros((50, 50)))), {"ALR_MAX_FILE": "9000"}, RAISED.format("ALR_MAX_FILE"),
    ),
    "initial labels: many members": (
        LABELS, "bad", put(npz(**{f"x{i}": np.zeros(1) for i in range(9)})), {"ALR_MAX_MEMBERS": "5"},
        RAISED.format("ALR_MAX_MEMBERS"),
    ),
    "weights: a text": (WEIGHTS, "bad", put(b"hello"), {}, "is no safetensors file"),
    "weights: empty": (WEIGHTS, "bad", put(b""), {}, "is no safetensors file"),
    "weights: a folder": (WEIGHTS, "bad", Path.mkdir, {}, "is no safetensors file"),
    "weights: a pickle": (WEIGHTS, "bad", lambda path: torch.save({}, path), {}, "no other kind is opened"),
    "weights: a long header": (WEIGHTS, "bad", put(b"\xff" * 8 + b"{}"), {}, "is no safetensors file"),
    "weights: others": (
        WEIGHTS, "bad", lambda path: save_file({"x": torch.zeros(1)}, path), {}, "does not hold the weights",
    ),
    "study: empty": (STUDY, "bad", put(b""), {}, "has no title"),
    "study: not TOML": (STUDY, "bad", put(b"a = ="), {}, "cannot be read"),
    "study: nested": (STUDY, "bad", put(b"a = " + b"[" * 5000), {}, RAISED.format("ALR_MAX_NESTING")),
    "teacher: a pipe": (TEACHER, "bad", os.mkfifo, {}, "bad"),
    "teacher: an empty folder": (TEACHER, "bad", Path.mkdir, {}, "bad"),
    "texts to predict: not UTF-8": (PREDICT, "bad", put(b"\xff\xff"), {}, "is not UTF-8 text"),
    "texts to predict: too long": (PREDICT, "bad", put(b"x" * 90_000), {"ALR_MAX_FIELD": "80000"}, "ALR_MAX_FIELD"),
    "suspects: not JSON": (SUSPECTS, "bad", put(b"{"), {}, "is not valid JSON"),
    "suspects: empty": (SUSPECTS, "bad", put(b""), {}, "is not valid JSON"),
    "suspects: a list": (SUSPECTS, "bad", put(b"[1]"), {}, "bad"),
    "suspects: an object": (SUSPECTS, "bad", put(b"{}"), {}, "bad"),
    "a limit that is no number": (START, "bad", put(b""), {"ALR_MAX_FIELD": "many"}, "ALR_MAX_FIELD is 'many'"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_bad_files(alr, compared, tmp_path, monkeypatch, name):
    command, file, make, limits, words = OTHERS[name]
    (tmp_path / "good.csv").write_bytes(table(".csv"))
    (tmp_path / "run").symlink_to(next(compared.glob("*-alr-s0-*")))
    make(tmp_path / file)
    for variable, value in limits.items():
        monkeypatch.setenv(variable, value)
    one_sentence(alr(*command), words)


@pytest.mark.parametrize(("file", "kind"), list(zip(FILES, itertools.cycle(SPECIAL), strict=False)))
def test_what_is_no_ordinary_file_in_a_run(alr, compared, tmp_path, file, kind):
    run = tmp_path / "runs" / "run"
    shutil.copytree(next(compared.glob("*-alr-s0-*")), run)
    (run / file).unlink()
    SPECIAL[kind][0](run / file)
    for command in (["runs", "check", "runs"], ["predict", run, "bread"], ["table", "runs"], ["report", "runs"]):
        ended = alr(*command)
        assert ended.status in (0, 1, 2), ended
        assert ended.status != 2 or len(ended.err.splitlines()) == 1, ended.err


def test_the_table_is_long():
    assert len(BAD_TABLES) + len(BAD_IMAGES) + len(OTHERS) >= 300


def test_a_million_columns_and_a_long_message(alr, tmp_path):
    names = ",".join(f"c{i}" for i in range(1_000_000))
    (tmp_path / "wide.csv").write_text(f"{names}\n{names}\n")
    one_sentence(alr("train", "wide.csv", "--dry-run"), "wide.csv has more than 10,000 columns")
    names = ",".join(["label", *(f"{i}{'x' * 200}" for i in range(5_000))])
    (tmp_path / "wide.csv").write_text(f"{names}\n{names}\n")
    ended = alr("train", "wide.csv", "--text-column", "words", "--label-column", "label", "--dry-run")
    assert len(ended.err) < 3000
    assert "and 4,981 more" in ended.err


def test_a_field_that_is_too_long_is_not_copied_many_times(tmp_path, monkeypatch):
    path, size = tmp_path / "long.csv", 20_000_000
    path.write_text(f"text,label\n{'x' * size},a\n")
    monkeypatch.setenv("ALR_MAX_FIELD", "1000000")
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match="more than 1,000,000 characters in one field"):
            read_table(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * size
