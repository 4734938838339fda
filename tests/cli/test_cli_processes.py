"""One run on several processes: by torchrun and by --devices; stopped, killed, and gone on with more or fewer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_parts import QUICK, SOURCE, free_port, is_running, metrics, results, wait_for, wait_until
from safetensors.numpy import load_file

from adaptive_labels.lab.runs import RunFolder

# Without dropout, which each process draws for itself, several processes give what one gives.
PLAIN = [*QUICK, "--set", "model.options.dropout=0", "--set", "batch_size=8"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
ENVIRONMENT = {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def torchrun(tmp_path):
    """Starts `torchrun OPTIONS -m adaptive_labels …`; what is left of it at the end is killed."""
    started = []

    def start(*arguments, options=("--standalone", "--nproc-per-node", "2"), **environment):
        command = [*TORCHRUN, *options, "-m", "adaptive_labels", *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(
            subprocess.Popen(
                command, cwd=tmp_path, env=os.environ | ENVIRONMENT | environment, start_new_session=True, **pipes
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def workers(process):
    """The processes that a launcher has started, by their rank."""
    found = {}
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        found |= {int(entry[5:]): int(child) for entry in environment if entry.startswith(b"RANK=")}
    return found


def figures(out):
    return {name: {split: m["nll"] for split, m in one.items()} for name, one in metrics(out).items()}


def close(found, expected):
    assert found.keys() == expected.keys()
    for name, splits in expected.items():
        assert found[name] == pytest.approx(splits, rel=1e-3), name


def same_arrays(path, other):
    """The same names, types and shapes, and the same numbers but for the order in which they were added up."""
    found, expected = (load_file(p) if p.suffix == ".safetensors" else dict(np.load(p)) for p in (path, other))
    assert {name: (array.dtype, array.shape) for name, array in found.items()} == {
        name: (array.dtype, array.shape) for name, array in expected.items()
    }
    for name, array in found.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, expected[name], rtol=1e-2, atol=2e-3)
        else:
            assert (array == expected[name]).all()


def within(folder):
    return list(folder.glob("*/checkpoint/epoch-*-step-*.json"))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ["compare", "--methods", "slr,kd", "--seeds", 1, "--model", "fasttext"],
            "after the other, each by 2 processes",
        ),
        pytest.param(["train", "--method", "label-refinery"], "2 processes share each batch", marks=pytest.mark.slow),
    ],
)
def test_torchrun_gives_what_one_process_gives_and_only_the_first_speaks_and_writes(
    alr, torchrun, texts, tmp_path, command, said
):
    command = [command[0], texts, *command[1:], "--epochs", 2, *PLAIN]
    process = torchrun(*command, "--out", "two")
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert out.count(said) == 1
    assert len(results(tmp_path / "two")) >= 2
    assert alr(*command, "--out", "one", *(["--workers", 1] if command[0] == "compare" else [])).status == 0
    close(figures(tmp_path / "two"), figures(tmp_path / "one"))
    for run in filter(Path.is_dir, (tmp_path / "two").iterdir()):
        assert json.loads((run / "environment.json").read_text())["processes"] == 2
        one = tmp_path / "one" / run.name
        assert {path.name for path in run.iterdir()} == {path.name for path in one.iterdir()}
        for name in ("model.safetensors", "predictions.npz", "residual_labels.npz"):
            if (run / name).exists():
                same_arrays(run / name, one / name)
        assert RunFolder(run).result is not None
    again = torchrun(*command, "--out", "two").communicate(timeout=200)[0]
    assert "finished already" in again


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_is_restarted_and_the_result_is_the_same(torchrun, texts, tmp_path, rank):
    command = ["train", texts, "--epochs", 3, *QUICK, "--set", "batch_size=8", "--set", "checkpoint_seconds=0"]
    options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    process = torchrun(*command, "--out", "killed", options=options)
    wait_for(lambda: within(tmp_path / "killed"), process)
    os.kill(workers(process)[rank], signal.SIGKILL)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert out.count("epoch 3/3") == 1
    whole = torchrun(*command, "--out", "whole")
    assert whole.wait(timeout=200) == 0
    assert metrics(tmp_path / "killed") == metrics(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("first", [1, 2])
def test_a_run_goes_on_with_more_or_fewer_processes(alr, start_alr, texts, tmp_path, first):
    command = ["train", texts, "--epochs", 3, *PLAIN]
    slow = ["--set", "checkpoint_seconds=0"]
    process = start_alr(*command, *slow, "--devices", first, "--out", "changed")
    wait_for(lambda: within(tmp_path / "changed"), process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert err.startswith("alr: stopped in epoch ")
    assert err.endswith("is kept: the same command goes on from there\n")
    assert len(err.splitlines()) == 1
    again = start_alr(*command, "--devices", 3 - first, "--out", "changed")
    err = again.communicate(timeout=200)[1]
    assert again.returncode == 0, err
    assert alr(*command, "--out", "one").status == 0
    close(figures(tmp_path / "changed"), figures(tmp_path / "one"))


@pytest.mark.slow
@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_devices_are_stopped_by_one_signal_and_leave_nothing_running(start_alr, texts, tmp_path, blow):
    if signal.getsignal(blow) == signal.SIG_IGN:
        pytest.skip("ignored here, as under nohup, and so by the command")
    process = start_alr(*["train", texts, "--epochs", 2000, *PLAIN, "--devices", 2], "--set", "checkpoint_seconds=0")
    wait_for(lambda: list((tmp_path / "runs").glob("*/checkpoint/epoch-*.json")), process)
    children = workers(process).values()
    process.send_signal(blow)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + blow
    assert (err[:22], len(err.splitlines())) == ("alr: stopped in epoch ", 1)
    wait_until(lambda: not any(map(is_running, children)))


@pytest.mark.slow
def test_a_process_that_dies_ends_the_others_with_a_sentence(start_alr, texts, tmp_path):
    process = start_alr("train", texts, "--epochs", 2000, *PLAIN, "--devices", 2, "--set", "checkpoint_seconds=0")
    wait_for(lambda: list((tmp_path / "runs").glob("*/checkpoint/epoch-*.json")), process)
    os.kill(workers(process)[1], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.startswith("alr: another process of this run has ended")
    assert len(err.splitlines()) == 1


def test_mistakes_are_told_once(start_alr, torchrun, texts, tmp_path):
    late = tmp_path / "late"  # on the path of Python, this makes the first process the last one to meet the mistake
    late.mkdir()
    (late / "sitecustomize.py").write_text('import os, time\nos.environ.get("RANK") == "0" and time.sleep(2)\n')
    for process in (
        start_alr("train", texts, "--method", "alrr", "--devices", 2),
        start_alr("train", texts, *QUICK, "--set", "batch_size=3", "--devices", 2),
        torchrun("compare", texts, "--workers", 2, PYTHONPATH=f"{late}{os.pathsep}{SOURCE}"),
    ):
        err = process.communicate(timeout=100)[1]
        assert process.returncode
        assert err.count("alr: ") == 1, err


@pytest.mark.slow
def test_two_nodes_train_one_run(alr, torchrun, texts, tmp_path):
    command = ["train", texts, "--epochs", 2, *PLAIN]
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "1"]
    nodes = [
        torchrun(*command, "--out", "two", options=["--nnodes", "2", "--nproc-per-node", "1", *meeting])
        for _ in range(2)
    ]
    ended = [node.communicate(timeout=200) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], ended
    assert alr(*command, "--out", "one").status == 0
    close(figures(tmp_path / "two"), figures(tmp_path / "one"))
