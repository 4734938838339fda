"""What a user can get wrong: one sentence on standard error, status 2, no traceback, nothing lost."""

from __future__ import annotations

import resource
import shutil
import subprocess

import pytest
from cli_parts import QUICK, files, metrics, results, write_images, write_texts

CSV = "text,label\n"


def make_bad_data(folder):
    """Data that cannot be used, by what is wrong with it."""
    write_texts(folder / "good.csv", 60)
    (folder / "empty").mkdir()
    (folder / "one-class.csv").write_text(CSV + "a b,x\nb c,x\nc d,x\n")
    (folder / "single.csv").write_text(CSV + "a b,x\nb c,x\nc d,x\nd e,y\ne f,y\nf g,y\nz,lonely\n")
    (folder / "ragged.csv").write_text(CSV + "a b,x\nb c,x,oops\nc d,y\n")
    (folder / "split").mkdir()
    (folder / "split" / "train.csv").write_text(CSV + "a b,x\nb c,x\nc d,y\nd e,y\ne f,y\nf g,x\n")
    (folder / "split" / "test.csv").write_text(CSV + "a b,x\nb c,unheard\n")
    (folder / "blank.csv").write_text("")
    write_images(folder / "images", 6)
    (folder / "images" / "red" / "broken.png").write_bytes(b"no image")
    (folder / "file").write_text("a file where a folder should be")


BAD_DATA = {
    "missing path": (["nowhere.csv"], "'nowhere.csv' is no data set's name, and no such path exists; the names are "),
    "misspelt name": (["digts"], "'digts' is no data set's name, and no such path exists; did you mean digits?"),
    "empty folder": (["empty"], "The folder empty is empty."),
    "empty file": (["blank.csv"], "blank.csv is empty."),
    "one class only": (["one-class.csv"], "one-class.csv has one class only ('x'); a classifier needs at least two."),
    "a class with one example": (["single.csv"], "The class 'lonely' has one example only (single.csv:8)"),
    "an unreadable image": (
        ["images"],
        "The image images/red/broken.png cannot be read (it is no image of a kind that is known); remove it, or have "
        "unreadable images left out (--skip-unreadable",
    ),
    "a missing column": (
        ["good.csv", "--text-column", "nope"],
        "good.csv has no column 'nope' (text_column); it has the columns 'text', 'label'.",
    ),
    "ragged rows": (["ragged.csv"], "ragged.csv line 3 has 3 fields where line 1 has 2."),
    "a label that train never saw": (["split"], "The label 'unheard' at split/test.csv line 3 (1 in the file) never "),
}
BAD_SETTINGS = {
    "unknown method": (["--method", "arl"], "method: unknown method 'arl'; did you mean alr? (the methods are "),
    "unknown method option": (["--set", "method.options.atraction=1"], "did you mean attraction?"),
    "unknown model": (["--model", "fastext"], "model: there is no model 'fastext'; there are airbench, "),
    "unknown model option": (
        ["--set", "model.options.char_ngram=3"],
        "model.options.char_ngram: 'linear' has char_ngrams, dropout, ",
    ),
    "impossible model option": (["--set", "model.options.dim=-3"], "and dim is -3; both must be at least 1"),
    "unknown setting": (["--set", "epochz=3"], "unknown setting epochz; did you mean epochs?"),
    "setting without a value": (["--set", "lr"], "the setting 'lr' is not of the form key=value"),
    "no number": (["--epochs", "few"], "invalid value for '--epochs': 'few' is not a whole number; see `alr train "),
    "too few epochs": (["--epochs", "0"], "training.epochs is 0: allowed is a whole number of at least 1"),
    "noise above 1": (["--label-noise", "2"], "data.label_noise is 2.0: allowed is a number from 0 to 1"),
    "misspelt choice": (["--class-weights", "balance"], "training.class_weights is 'balance': allowed is none, balan"),
    "unknown option": (["--epcohs", "2"], "no such option: --epcohs, did you mean --epochs? see `alr train --help`"),
    "a model for other data": (["--model", "preact-resnet18"], "model: 'preact-resnet18' reads images, but good.csv h"),
    "no such device": (["--device", "cuda:99"], "training.device is 'cuda:99': this machine has "),
    "precision of another device": (["--device", "cpu", "--precision", "16-mixed"], "training.precision is '16-mixed'"),
    "a file for a folder": (["--out", "file"], "out is 'file', but file is a file, not a folder"),
    "a file on the way": (["--out", "file/runs"], "out is 'file/runs', but "),
}
ELSEWHERE = {
    "misspelt command": (["trian", "x"], "no such command 'trian', did you mean 'train'? see `alr --help`"),
    "misspelt inner command": (["runs", "lst"], "no such command 'lst', did you mean 'list'? see `alr runs --help`"),
    "no inner command": (["runs"], "missing command; see `alr runs --help`"),
    "no data": (["train"], "missing argument 'DATA'; see `alr train --help`"),
    "unknown list": (["list", "methds"], "there is no list of 'methds'; there are methods, models, datasets"),
    "misspelt method among others": (["compare", "good.csv", "--methods", "baseline,arl"], "did you mean alr?"),
    "no methods": (["compare", "good.csv", "--methods", ","], "methods is empty; give at least one"),
    "no seeds": (["compare", "good.csv", "--seeds", "0"], "invalid value for '--seeds': 0 is below 1"),
    "one seed for many runs": (["compare", "good.csv", "--set", "seed=4"], "seed is 4: here --seeds N makes runs with"),
    "one method for many": (
        ["compare", "good.csv", "--set", "method.name=slr"],
        "method.name is 'slr': here it is giv",
    ),
    "unknown time": (["compare", "good.csv", "--time-budget", "soon"], "time-budget is 'soon'; write it as 90s, 30m"),
    "unknown executor": (["compare", "good.csv", "--executor", "slurm"], "executor is 'slurm': the executors are "),
    "out of reach": (["compare", "good.csv", "--out", "file/runs"], "out is 'file/runs', but "),
    "nothing to tune": (["tune", "good.csv", "--method", "baseline"], "method 'baseline' has no option to tune"),
    "no runs": (["table", "empty"], "there is no run in empty"),
    "no folder": (["table", "nowhere"], "nowhere is not a folder."),
    "unknown data to verify": (["data", "verify", "nowhere"], "'nowhere' is no data set's name"),
}
EVERYTHING = {
    **{name: (["train", *arguments], words) for name, (arguments, words) in BAD_DATA.items()},
    **{name: (["train", "good.csv", *arguments], words) for name, (arguments, words) in BAD_SETTINGS.items()},
    **ELSEWHERE,
}


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    make_bad_data(folder)
    return folder


@pytest.mark.parametrize("name", EVERYTHING)
def test_one_sentence_and_status_2(alr, bad, monkeypatch, name):
    arguments, words = EVERYTHING[name]
    monkeypatch.chdir(bad)
    before = files(bad)
    ended = alr(*arguments)
    assert ended.status == 2
    assert ended.out == ""
    assert ended.err.startswith("alr: ")
    assert words in ended.err
    assert len(ended.err.splitlines()) == 1
    assert files(bad) == before
    assert not (bad / "runs").exists()


def test_bad_data_is_refused_by_compare_as_well(alr, bad, monkeypatch):
    monkeypatch.chdir(bad)
    for name in ("misspelt name", "an unreadable image", "a label that train never saw"):
        arguments, words = BAD_DATA[name]
        ended = alr("compare", *arguments)
        assert (ended.status, ended.out) == (2, "")
        assert ended.err.startswith(f"alr: {words}")


@pytest.mark.parametrize("arguments", ["--debug train empty", "train empty --debug", "--debug train empty --debug"])
def test_debug_shows_the_traceback(bad, alr, monkeypatch, arguments):
    from adaptive_labels.lab.data import DataError

    monkeypatch.chdir(bad)
    with pytest.raises(DataError, match="is empty"):  # Python prints it when nobody catches it
        alr(*arguments.split())


def test_debug_as_a_process(start_alr):
    for debug, last in ([], "alr: "), (["--debug"], "adaptive_labels.lab.files.RunError: "):
        _, err = (process := start_alr("runs", "list", "nowhere", *debug)).communicate(timeout=60)
        assert process.returncode == (1 if debug else 2)
        assert err.splitlines()[-1] == f"{last}nowhere is not a folder."
        assert ("Traceback" in err) == bool(debug)


def test_unreadable_images_are_left_out_when_asked(alr, bad, tmp_path):
    shutil.copytree(bad / "images", tmp_path / "images")
    ended = alr("train", "images", "--skip-unreadable", "--epochs", 1, "--model", "preact-resnet18-w4")
    assert (ended.status, ended.err) == (0, "")
    assert "  Skipped 1 unreadable image: red/broken.png.\n" in ended.out


# ---------------------------------------------------------------------------------------------------------- a full disk


@pytest.fixture
def small_disk(tmp_path):
    """A folder with room for 256 kB, and a way to make it larger: a file system of its own if we may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder]
    if shutil.which("mount") and subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        yield folder, lambda: subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
        subprocess.run(["umount", folder], check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, before[1]))
    yield folder, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("every", ["0", "60"], ids=["in a checkpoint", "at the end"])
def test_a_full_disk_loses_nothing(alr, small_disk, texts, tmp_path, every):
    folder, make_room = small_disk
    settings = ["--set", "model.options.buckets=16384", "--set", f"checkpoint_seconds={every}"]
    command = ["train", texts, "--epochs", 2, *QUICK, *settings]
    ended = alr(*command, "--out", folder)
    assert ended.status == 2
    assert len(ended.err.splitlines()) == 1
    assert ended.err.startswith("alr: the checkpoint of " if every == "0" else "alr: Cannot wr")
    assert "the disk is full" in ended.err or "too large" in ended.err
    assert results(folder) == {}
    make_room()
    again = alr(*command, "--out", folder)
    assert (again.status, again.err) == (0, "")
    alr(*command, "--out", tmp_path / "elsewhere")
    assert metrics(folder) == metrics(tmp_path / "elsewhere")


def test_a_disk_that_is_full_from_the_start(alr, small_disk, texts):
    folder, _ = small_disk
    fill = folder / "fill"
    try:
        with fill.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    except OSError:
        pass
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        pytest.skip("a limit on the size of files leaves room for small ones")
    for command in ("train", "compare"):
        ended = alr(command, texts, "--epochs", 1, *QUICK, "--out", folder / "runs")
        assert ended.status == 2
        assert ended.err == f"alr: Cannot write to {folder / 'runs'}: the disk is full.\n"
