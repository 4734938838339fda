import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from adaptive_labels.lab.files import write_error
from adaptive_labels.lab.runs import RunError, write_bytes, write_json, write_npz

# Run in a child, whose files the kernel really refuses to let grow: a disk that fills up in mid-file.
FULL_DISK = """
import os, resource, sys
import numpy as np
from adaptive_labels.lab.runs import RunError, write_bytes, write_json, write_npz
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
path = sys.argv[2]
try:
    if sys.argv[1] == "bytes":
        write_bytes(path, b"x" * 100_000)
    elif sys.argv[1] == "json":
        write_json(path, ["x" * 100_000])
    else:
        write_npz(path, a=np.random.default_rng(0).random(100_000))  # which cannot be compressed
except RunError as error:
    print(error)
"""


@pytest.mark.parametrize("kind", ["bytes", "json", "npz"])
def test_a_disk_that_fills_up_leaves_the_old_file_whole_and_no_other(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, kind, str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == f"Cannot write {path}: File too large.\n", done.stderr
    assert done.stderr == ""
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_hold_files_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RunError, match=r"^Cannot write .*file/x\.json: Not a directory\.$"):
        write_json(tmp_path / "file" / "x.json", {})
    with pytest.raises(RunError, match=r"^Cannot write .*nowhere/x: No such file or directory\.$"):
        write_bytes(tmp_path / "nowhere" / "x", b"")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder_is_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="the folder may not be written to"):
        write_bytes(tmp_path / "x", b"")
    tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "may not be written to"), (errno.EROFS, "may not be written")],
)
def test_common_errors_have_plain_words(code: int, words: str) -> None:
    assert words in str(write_error(Path("a/b"), OSError(code, os.strerror(code))))


def test_json_holds_what_runs_hold_and_replaces_the_old(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"old": True})
    write_json(path, {"a": np.float32(0.5), "b": (1, np.int64(2)), "c": float("nan"), "d": Path("p"), "e": "ü\udcff"})
    assert json.loads(path.read_bytes()) == {"a": 0.5, "b": [1, 2], "c": None, "d": "p", "e": "ü\udcff"}
    assert list(tmp_path.iterdir()) == [path]


def test_what_json_cannot_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^The value at a\.b\[1\] is a object, which JSON cannot hold\.$"):
        write_json(tmp_path / "x", {"a": {"b": [1, object()]}})
    with pytest.raises(RunError, match="The key 3 at a is not a string"):
        write_json(tmp_path / "x", {"a": {3: 1}})
    assert list(tmp_path.iterdir()) == []


def test_npz_opens_without_pickle_and_refuses_objects(tmp_path: Path) -> None:
    write_npz(tmp_path / "x.npz", path=np.arange(3), names=["a", "ö"])
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert file["path"].tolist() == [0, 1, 2]
        assert file["names"].tolist() == ["a", "ö"]
    with pytest.raises(RunError, match=r"'bad' .* holds Python objects"):
        write_npz(tmp_path / "y.npz", bad=np.array([object()]))


def test_the_next_write_removes_what_an_ended_process_left_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "report-1.html"
    code = "import os, sys; from pathlib import Path; from adaptive_labels.lab.files import write_with; "
    code += "write_with(Path(sys.argv[1]), lambda file: os.kill(os.getpid(), 9))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", code, str(path)], check=False, env=environment)
    assert killed.returncode == -9
    (left,) = tmp_path.iterdir()
    machine, process, _ = left.name.removeprefix(".report-1.html.").split("-")
    kept = [
        tmp_path / f".report-1.html.{machine}-{os.getpid()}-ab.tmp",  # another thread writes it
        tmp_path / f".report-1.html.elsewhere-{process}-ab.tmp",
        tmp_path / left.name.replace("report-1", "report-2"),
    ]
    for other in kept:
        other.touch()
    write_bytes(path, b"whole")
    assert sorted(tmp_path.iterdir()) == sorted([path, *kept])
