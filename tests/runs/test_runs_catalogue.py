import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from run_parts import CONFIG, RESULT, begun, finished

from adaptive_labels.lab.config import MethodConfig, changed
from adaptive_labels.lab.runs import (
    CANDIDATES,
    RunError,
    RunFolder,
    RunLock,
    find_problems,
    integrity,
    list_runs,
    read_choice,
    remove,
    tidy,
    write_choice,
)


def test_runs_are_found_at_any_depth_once_and_sorted(tmp_path: Path) -> None:
    runs = [
        finished(tmp_path / folder, replace(CONFIG, seed=seed)) for folder, seed in [("b", 1), ("a/c", 0), ("a", 2)]
    ]
    (runs[0].path / "checkpoint").mkdir()
    (runs[0].path / "checkpoint" / "config.json").write_text("{}")
    found = list_runs([tmp_path, runs[0].path, tmp_path / "a"])
    assert [run.path for run in found] == sorted(run.path for run in runs)
    assert [run.path for run in list_runs(runs[1].path)] == [runs[1].path]
    with pytest.raises(RunError, match=r"nowhere is not a folder\."):
        list_runs([tmp_path / "nowhere"])


def test_a_whole_run_has_no_problems(tmp_path: Path) -> None:
    assert find_problems(finished(tmp_path)) == []


def test_a_run_that_stopped_early_is_whole(tmp_path: Path) -> None:
    run = begun(tmp_path, changed(CONFIG, "training", epochs=50))
    run.write_environment("alr")
    run.append_history({"epoch": 1})
    run.write_bytes("model.safetensors", b"weights")
    run.finish({**RESULT, "epochs": 1})
    assert find_problems(run) == []


def test_an_unfinished_run_says_how_far_it_came_and_who_is_at_it(tmp_path: Path) -> None:
    run = begun(tmp_path)
    run.write_environment("alr")
    run.append_history({"epoch": 1})
    assert find_problems(run) == ["unfinished after 1 epoch: the same command starts it again."]
    with run.lock():
        assert find_problems(run) == [
            f"unfinished after 1 epoch: it is being written by this process ({os.getpid()}) already."
        ]


def test_a_diverged_run_needs_no_model_but_what_every_run_has(tmp_path: Path) -> None:
    for seed, problems in enumerate(([], ["environment.json is missing."])):
        run = begun(tmp_path, replace(CONFIG, seed=seed))
        if not problems:
            run.write_environment("alr")
        run.finish({**RESULT, "status": "diverged", "reason": "the loss was NaN in epoch 1"})
        assert find_problems(run) == problems
    run = begun(tmp_path, replace(CONFIG, seed=7))
    run.write_environment("alr")
    run.append_history({"epoch": 1})
    run.finish(RESULT)
    assert find_problems(run) == ["history.jsonl has 1 epoch of 2."]


def test_remove_deletes_all_but_what_is_being_written(tmp_path: Path) -> None:
    run = finished(tmp_path)
    with run.lock(), pytest.raises(RunError, match=r"is being written by this process .* was not removed"):
        remove(run)
    link = tmp_path / "link"
    link.symlink_to(run.path)
    with pytest.raises(RunError, match="link is a link"):
        remove(RunFolder(link))
    assert find_problems(run) == []
    link.unlink()
    remove(run)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished(tmp_path)
    for name, named in ((None, run.path), (str(run.path / "x"), run.path / "x")):
        error = OSError(errno.EACCES, "Permission denied", name)
        monkeypatch.setattr("shutil.rmtree", lambda path, error=error: (_ for _ in ()).throw(error))
        with pytest.raises(RunError, match=rf"^Cannot remove {named}: Permission denied\.$"):
            remove(run)
    assert not run.finished  # nothing that is left looks finished


def test_what_a_crash_left_is_named_and_tidied(tmp_path: Path) -> None:
    run, other = finished(tmp_path), begun(tmp_path, replace(CONFIG, seed=4))
    left = [run.path / "checkpoint", run.path / ".model.safetensors.ab.tmp"]
    left[0].mkdir()
    left[1].touch()
    (other.path / "checkpoint").mkdir()
    (other.path / "checkpoint" / ".epoch-1.json.ab.tmp").touch()
    assert find_problems(run)[-1].startswith(".model.safetensors.ab.tmp, checkpoint: left over from a crash;")
    with run.lock():
        assert tidy(run) == []
    assert tidy(run) == sorted(left)
    assert find_problems(run) == []
    assert tidy(other) == [other.path / "checkpoint" / ".epoch-1.json.ab.tmp"]
    assert (other.path / "checkpoint").exists()


def test_checkpoints_are_in_the_order_of_epochs_and_steps(tmp_path: Path) -> None:
    for name in ("epoch-9", "epoch-10", "epoch-9-step-12", "epoch-9-step-3", "epoch-x", "other"):
        (tmp_path / f"{name}.json").touch()
    manifests = integrity.checkpoint_manifests(tmp_path)
    assert [path.stem for path in manifests] == ["epoch-10", "epoch-9-step-12", "epoch-9-step-3", "epoch-9"]
    assert [*map(integrity.checkpoint_place, manifests)] == [(10, 0), (9, 12), (9, 3), (9, 0)]


def test_a_lock_keeps_others_out_until_it_is_released(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        with pytest.raises(RunError, match=rf"is being written by this process \({os.getpid()}\) already"):
            RunLock(tmp_path).acquire()
        lock = RunLock(tmp_path)
        lock.release()
        assert lock.path.exists()
    assert list(tmp_path.iterdir()) == []


HOLD = """
import sys, time
from adaptive_labels.lab.runs import RunLock
lock = RunLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_another_process_is_respected_while_it_lives_and_no_longer(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=rf"is being written by process {child.pid} on this machine\."):
            RunLock(tmp_path).acquire()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, but not yet collected by its parent
        assert RunLock(tmp_path).holder() is None
    finally:
        child.kill()
        child.communicate()
    with RunLock(tmp_path) as lock:
        assert f"process {os.getpid()} on " in lock.path.read_text()


RACE = """
import os, sys, time
from pathlib import Path
from adaptive_labels.lab.runs import RunError, RunLock
folder, inside = Path(sys.argv[1]), Path(sys.argv[2])
end, taken = time.time() + 1.5, 0
while time.time() < end:
    try:
        with RunLock(folder):
            inside.mkdir()      # fails when another process is inside as well
            inside.rmdir()
            taken += 1
    except RunError:
        pass
    if taken % 3 == 0 and not (folder / ".lock").exists():  # as a killed process leaves it
        (folder / ".lock").touch()
print(taken)
"""


def test_processes_that_race_for_a_stale_lock_are_never_both_inside(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", RACE, str(tmp_path / "run"), str(tmp_path / "inside")]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        for _ in range(3)
    ]
    outputs = [child.communicate() for child in children]
    assert [errors for _, errors in outputs] == ["", "", ""]
    assert sum(int(output) for output, _ in outputs) > 10


def test_what_a_killed_process_left_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptive_labels.lab.runs.lock.WATCH_SECONDS", 0.5)
    lock = RunLock(tmp_path)
    for content in ("process 1 on elsewhere.example", ""):
        lock.path.write_text(content)
        assert lock.holder() is None
        lock.path.write_text(content)
        with lock:
            pass
        assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_locked_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"^Cannot write .*\.lock: "):
        RunLock(tmp_path / "file").acquire()


def test_why_a_network_was_chosen_is_found_again_for_its_data_and_options(tmp_path: Path) -> None:
    run = begun(tmp_path)
    assert read_choice(run) is None
    (tmp_path / CANDIDATES).mkdir()
    write_choice(tmp_path, CONFIG, {"tried": [{"model": "linear", "seconds": float("inf")}]})
    (path,) = (tmp_path / CANDIDATES).iterdir()
    for seed in (3, 4):  # whatever the seed and the method
        other = begun(tmp_path, replace(CONFIG, seed=seed, method=MethodConfig("slr")))
        assert read_choice(other) == {"tried": [{"model": "linear", "seconds": None}]}
    assert read_choice(begun(tmp_path, changed(CONFIG, "data", fingerprint="f01"))) is None
    for content in ("[]", "{"):
        path.write_text(content)
        assert read_choice(run) is None
