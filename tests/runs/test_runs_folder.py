import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from run_parts import CONFIG, RESULT, begun, finished

from adaptive_labels.lab.experiments.loggers import RunRecorder
from adaptive_labels.lab.runs import RunError, RunFolder, find_problems
from adaptive_labels.lab.runs.arrays import KEPT_PER_ROW
from adaptive_labels.lab.runs.environment import describe_environment


def test_create_comes_back_to_the_same_folder(tmp_path: Path) -> None:
    run = begun(tmp_path / "deep" / "runs")
    again = begun(tmp_path / "deep" / "runs")
    assert again.path == run.path
    assert again.config == CONFIG
    assert not run.finished
    assert run.result is None
    (run.path / "config.json").write_text('{"seed": 4}')
    with pytest.raises(RunError, match=r"config\.json was changed: it is not the configuration"):
        begun(tmp_path / "deep" / "runs")


def test_an_output_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"^Cannot write .*: Not a directory\.$"):
        begun(tmp_path / "file")
    with pytest.raises(RunError, match=r"is not a run: it has no config\.json"):
        RunFolder(tmp_path)


def test_history_is_appended_and_cut(tmp_path: Path) -> None:
    run = begun(tmp_path)
    assert run.history() == []
    run.rewind([])
    assert not (run.path / "history.jsonl").exists()
    for epoch in (1, 2, 3):
        run.append_history({"epoch": epoch, "train_loss": 1.0 / epoch})
    run.rewind(run.history()[:2])
    assert [line["epoch"] for line in run.history()] == [1, 2]
    with pytest.raises(RunError, match="already reaches epoch 2; epoch 2 cannot follow"):
        run.append_history({"epoch": 2})
    run.append_history({"epoch": 3, "train_loss": float("nan")})
    assert run.history()[-1] == {"epoch": 3, "train_loss": None}
    run.rewind([])  # as before a run that starts again
    assert run.history() == []


@settings(deadline=None, max_examples=60)  # every line is synced to the disk, however slow it is
@given(cut=st.integers(min_value=0, max_value=200))
def test_history_survives_a_crash_at_any_byte(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    run = begun(tmp_path_factory.mktemp("runs"))
    lines = [{"epoch": epoch, "note": "ü" * 20} for epoch in (1, 2, 3)]
    for line in lines:
        run.append_history(line)
    path = run.path / "history.jsonl"
    data = path.read_bytes()
    kept = data[: min(cut, len(data))]
    path.write_bytes(kept)
    # A line is there when all of its bytes are, with or without the newline.
    ends = [i for i in range(len(data)) if data[i : i + 1] == b"\n"]
    whole = sum(end <= len(kept) for end in ends)
    assert run.history() == lines[:whole]
    run.append_history({"epoch": 9})
    assert run.history() == [*lines[:whole], {"epoch": 9}]
    assert path.read_bytes().count(b"\n") == whole + 1


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    run = begun(tmp_path)
    (run.path / "history.jsonl").write_text('{"epoch": 1}\n{"epo\n{"epoch": 3}\n')
    with pytest.raises(RunError, match=r"history\.jsonl, line 2, is not a JSON object"):
        run.history()


def test_residual_labels_up_to_256_classes_are_kept_whole(tmp_path: Path) -> None:
    run = begun(tmp_path)
    assert run.load_residual_labels() is None
    labels = np.random.default_rng(0).random((2, 5, 5))
    run.save_residual_labels([1, 4], labels, ["a", "b", "ç", "<script>", ""])
    with np.load(run.path / "residual_labels.npz") as file:
        assert set(file.files) == {"epochs", "labels", "classes"}
        assert file["labels"].dtype == np.float32
    loaded = run.load_residual_labels()
    assert loaded is not None
    assert loaded.epochs.tolist() == [1, 4]
    assert loaded.classes == ("a", "b", "ç", "<script>", "")
    np.testing.assert_array_equal(loaded.matrix(), labels[1].astype(np.float32))


@pytest.mark.parametrize(("size", "names"), [(256, {"labels"}), (257, {"indices", "values"})])
def test_from_257_classes_on_not_all_residual_labels_are_kept(tmp_path: Path, size: int, names: set[str]) -> None:
    run = begun(tmp_path)
    run.save_residual_labels([1], np.zeros((1, size, size)), [str(i) for i in range(size)])
    with np.load(run.path / "residual_labels.npz") as file:
        assert set(file.files) == {"epochs", "classes", *names}


def test_residual_labels_of_many_classes_keep_the_largest_of_each_row(tmp_path: Path) -> None:
    run = begun(tmp_path)
    size = 300
    labels = np.random.default_rng(0).random((2, size, size)).astype(np.float32)
    run.save_residual_labels([1, 2], labels, [str(i) for i in range(size)])
    loaded = run.load_residual_labels()
    assert loaded is not None
    for position in (0, 1):
        matrix = loaded.matrix(position)
        for row, original in zip(matrix, labels[position], strict=True):
            smallest_kept = np.sort(original)[-KEPT_PER_ROW]
            np.testing.assert_array_equal(row, np.where(original >= smallest_kept, original, 0))


@pytest.mark.parametrize("size", [4, 260])
def test_a_recorder_keeps_epochs_and_goes_back(tmp_path: Path, size: int) -> None:
    run, whole = begun(tmp_path), begun(tmp_path, replace(CONFIG, seed=9))
    classes = [f"class {i}" for i in range(size)]
    labels = np.random.default_rng(0).random((3, size, size)).astype(np.float32)
    recorder = RunRecorder(run, classes)
    recorder.rewind([], {})
    for epoch in (1, 2, 3):
        recorder.epoch({"epoch": epoch})
        recorder.residual_labels(epoch, labels[0])
    recorder.rewind([{"epoch": 1}], {})
    assert [line["epoch"] for line in run.history()] == [1]
    for epoch in (2, 3):
        recorder.epoch({"epoch": epoch})
        recorder.residual_labels(epoch, labels[epoch - 1])
    whole.save_residual_labels([1, 2, 3], labels, classes)
    found, expected = run.load_residual_labels(), whole.load_residual_labels()
    assert found is not None
    assert expected is not None
    assert found.epochs.tolist() == [1, 2, 3]
    for position in range(3):
        np.testing.assert_array_equal(found.matrix(position), expected.matrix(position))


def test_predictions_come_back_as_they_were(tmp_path: Path) -> None:
    run = begun(tmp_path)
    assert run.load_predictions() is None
    logits = np.random.default_rng(0).normal(size=(4, 3)) + np.array([[0], [1e3], [-1e6], [1e-3]])
    logits[0, 0] -= 1e9
    validation = {"validation_logits": logits[:2], "validation_labels": [2, 2]}
    run.save_predictions(test_logits=logits, test_labels=[0, 1, 2, 0], classes=["x", "y", "z"], **validation)
    loaded = run.load_predictions()
    assert loaded is not None
    assert loaded.test_logits.dtype == np.float16
    assert (loaded.test_logits.max(axis=1) == 0).all()
    assert np.isfinite(loaded.test_logits).all()
    np.testing.assert_allclose(loaded.test_logits[1:], (logits - logits.max(axis=1, keepdims=True))[1:], atol=2e-3)
    assert loaded.test_labels.tolist() == [0, 1, 2, 0]
    assert loaded.classes == ("x", "y", "z")
    np.testing.assert_array_equal(loaded.validation_logits, loaded.test_logits[:2])
    assert loaded.validation_labels.tolist() == [2, 2]


def test_a_finished_run_never_changes(tmp_path: Path) -> None:
    run = begun(tmp_path)
    run.append_history({"epoch": 1})
    run.write_bytes("checkpoint/state.json", b"{}")
    run.finish(RESULT)
    assert run.finished
    assert run.result == {**RESULT, "status": "finished", "reason": None}
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    attempts = [
        lambda: run.append_history({"epoch": 2}),
        lambda: run.rewind([]),
        lambda: run.write_environment("alr"),
        lambda: run.write_json("x.json", 1),
        lambda: run.write_bytes("x", b""),
        lambda: run.save_residual_labels([1], np.zeros((1, 2, 2)), "ab"),
        lambda: run.save_predictions(test_logits=np.zeros((1, 2)), test_labels=[0]),
        lambda: run.finish(RESULT),
    ]
    for attempt in attempts:
        with pytest.raises(RunError, match="is finished, and finished runs never change"):
            attempt()
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_a_result_must_be_complete(tmp_path: Path) -> None:
    run = begun(tmp_path)
    with pytest.raises(AssertionError, match="has no parameters, metrics, seconds"):
        run.finish({key: RESULT[key] for key in ("dataset", "model", "method", "seed", "epochs")})
    assert not run.finished


def test_the_environment_is_recorded_without_importing_torch(tmp_path: Path) -> None:
    code = (
        "import sys, json; from adaptive_labels.lab.config import RunConfig;"
        "from adaptive_labels.lab.runs import RunFolder;"
        "run = RunFolder.create(sys.argv[1], RunConfig()); run.write_environment(['alr', 'train', 'my data']);"
        "assert 'torch' not in sys.modules; print(json.dumps(run.environment))"
    )
    source = next(path for path in sys.path if (Path(path) / "adaptive_labels" / "lab" / "runs").is_dir())
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": source, "PATH": ""},  # no git to be found either
    )
    environment = json.loads(done.stdout)
    assert environment["command"] == "alr train 'my data'"
    assert environment["versions"]["python"].startswith("3.")
    assert environment["versions"]["torch"] is None
    assert environment["commit"] is None
    assert environment["cpu"]["cores"] >= 1
    assert environment["date"].endswith("+00:00")


def test_the_commit_of_the_folder_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=b", *command], check=True)
    environment = describe_environment("alr train x")
    assert re.fullmatch(r"[0-9a-f]{40}", environment["commit"])
    about = Path("/proc/cpuinfo")
    model = re.search(r"^model name\s*: (.*)$", about.read_text() if about.exists() else "", flags=re.MULTILINE)
    assert model is None or environment["cpu"]["model"] == model[1].strip()


@pytest.mark.parametrize("name", ["config.json", "environment.json", "history.jsonl", "model.safetensors"])
def test_what_was_not_written_by_the_run_is_not_read(tmp_path: Path, name: str) -> None:
    run = finished(tmp_path)
    path = run.checked(name)
    whole = path.read_bytes()
    path.write_bytes(whole + b" ")
    advice = rf"Run its command again after `alr runs rm {run.path}`, or put the file back from a copy\."
    with pytest.raises(RunError, match=rf"{name} is damaged: its content is not what was written\. {advice}"):
        run.checked(name)
    assert any(problem.startswith(f"{name} is damaged: its content") for problem in find_problems(run))
    path.unlink()
    with pytest.raises(RunError, match=rf"{name} is missing, although the run is finished\. {advice}"):
        run.checked(name)
    path.write_bytes(whole)
    assert run.checked(name) == path
    (run.path / "predictions.npz").touch()
    with pytest.raises(RunError, match=r"predictions\.npz was not written by the run: it came later\."):
        run.load_predictions()


def test_a_changed_result_is_not_read(tmp_path: Path) -> None:
    run = finished(tmp_path)
    path = run.path / "result.json"
    for change in ({"seconds": 1.0}, {"seal": None}, {"seal": {"files": {}}}):
        before = path.read_text()
        path.write_text(json.dumps({**json.loads(before), **change}))
        with pytest.raises(RunError, match=r"result\.json is damaged: "):
            _ = run.result
        path.write_text(before)
    assert run.result == {**RESULT, "status": "finished", "reason": None}
