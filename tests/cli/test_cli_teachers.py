"""kd, dml and label-refinery through the real command: the runs they need, what they report, what is refused."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from cli_parts import QUICK, RECIPE, files, metrics, results, wait_for, write_texts

import adaptive_labels
from adaptive_labels.lab.runs import RunFolder, list_runs, run_id
from run_maker import sealed_again

NETWORK = 512 * 16 + 3 * 16 + 3
SHORT = ["--epochs", 2, *QUICK]


def one(out: Path, part: str) -> Path:
    (run,) = (path for path in out.iterdir() if part in path.name)
    return run


@pytest.fixture(scope="module")
def taught(texts, tmp_path_factory):
    """A comparison of all three, with the baseline that two of them learn from."""
    out = tmp_path_factory.mktemp("taught")
    quick = {**RECIPE, "training": {**RECIPE["training"], "epochs": 2}}
    runs = adaptive_labels.compare(texts, "kd,dml,label-refinery", 1, out=out, settings=quick)
    return out, {run.config.method.name: run for run in runs}


def test_python_compares_them_and_trains_first_what_they_learn_from(taught):
    out, runs = taught
    assert list(runs) == ["kd", "dml", "label-refinery"]
    everything = sorted(run.config.method.name for run in list_runs(out))
    assert everything == ["baseline", "dml", "kd", "label-refinery", "label-refinery"]
    baseline = RunFolder(one(out, "-baseline-"))
    assert runs["kd"].result["teacher"]["run"] == baseline.name == run_id(baseline.config)
    (before,) = (run for run in list_runs(out) if run.config.method.options == {"generations": 1})
    assert runs["label-refinery"].result["teacher"]["run"] == before.name
    assert before.result["teacher"]["run"] == baseline.name
    assert baseline.result["metrics"]["test"]["top1"] == runs["kd"].result["teacher"]["top1"]["test"]


def test_the_parameters_that_training_needed_stand_beside_the_network_s(taught):
    _, runs = taught
    for method in runs:
        assert runs[method].result["parameters"] == {"network": NETWORK, "criterion": 0, "training": 2 * NETWORK}


def test_every_peer_is_tested_and_the_first_one_predicts(taught, alr):
    _, runs = taught
    result = runs["dml"].result
    first, second = result["peers"]["networks"]
    assert first["metrics"] == result["metrics"] != second["metrics"]
    mean = (first["metrics"]["test"]["nll"] + second["metrics"]["test"]["nll"]) / 2
    assert result["peers"]["mean"]["test"]["nll"] == pytest.approx(mean)
    assert [peer["parameters"] for peer in (first, second)] == [NETWORK, NETWORK]
    ended = alr("predict", runs["dml"].path, "goal of the team")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("goal of the team: ")


def test_a_student_learns_otherwise_than_its_teacher_and_leaves_it_as_it_was(alr, texts, taught, tmp_path):
    out, _ = taught
    teacher = one(out, "-baseline-")
    before = files(teacher)
    shutil.copytree(teacher, tmp_path / "elsewhere")
    given = ["--method", "kd", *SHORT, "--set", f"method.options.teacher={teacher}"]
    ended = alr("train", texts, *given)
    assert (ended.status, ended.err) == (0, "")
    assert f"kd: the teacher is {teacher.name}." in ended.out
    assert f"parameters: {NETWORK:,} in the network that predicts, {2 * NETWORK:,} needed in training" in ended.out
    assert files(teacher) == before
    ((name, result),) = results(tmp_path / "runs").items()
    assert result["teacher"]["run"] == teacher.name
    stored = one(out, "-kd-")
    assert result["metrics"] == json.loads((stored / "result.json").read_text())["metrics"]  # the same teacher
    moved = alr("train", texts, *given[:-1], "method.options.teacher=elsewhere")
    assert "This run is finished already" in moved.out  # a teacher is known by what it is
    assert name in moved.out


@pytest.mark.parametrize("method", ["kd", "dml", "label-refinery"])
def test_images_work_as_well(alr, tmp_path, method):
    recipe = ["--epochs", 1, "--model", "preact-resnet18-w2", "--set", "batch_size=256", "--set", "train_fraction=0.2"]
    more = ["--set", "method.options.generations=1"] if method == "label-refinery" else []
    ended = alr("train", "digits", "--method", method, *recipe, *more)
    assert (ended.status, ended.err) == (0, "")
    assert ("First the run to learn from: baseline, preact-resnet18-w2" in ended.out) == (method != "dml")
    run = one(tmp_path / "runs", f"-{method}-")
    assert json.loads((run / "result.json").read_text())["parameters"]["training"] > 0
    again = alr("train", "digits", "--method", method, *recipe, *more)
    assert "This run is finished already; nothing was trained." in again.out


def test_a_wider_teacher_and_other_peers(alr, texts, tmp_path):
    wide = ["--set", "method.options.teacher_options.dim=32"]
    assert alr("train", texts, "--method", "kd", "--epochs", 1, *QUICK, *wide).status == 0
    teacher = 512 * 32 + 3 * 32 + 3
    result = json.loads((one(tmp_path / "runs", "-kd-") / "result.json").read_text())
    assert result["parameters"]["training"] == NETWORK + teacher == NETWORK + result["teacher"]["parameters"]
    three = ["--set", "method.options.peers=3"]
    ended = alr("train", texts, "--method", "dml", "--epochs", 1, *QUICK, *three)
    assert "dml: 3 networks learn together, at 3 times the cost." in ended.out
    assert "network 1: fasttext, validation " in ended.out
    assert "(3 times as many)" in ended.out


def test_two_workers_share_a_teacher_that_is_trained_before_them(alr, texts, tmp_path):
    ended = alr("tune", texts, "--method", "kd", "--trials", 2, "--workers", 2, *SHORT)
    out = ended.out
    assert (ended.status, ended.err) == (0, "")
    assert "1 seed each, 2 in all, and before them 1 run to learn from, 2 at a time; about " in out
    ends = [line.split("] ")[1] for line in out.splitlines() if line.startswith("[") and ": validation" in line]
    assert ends[0].startswith("baseline seed 0: ")
    assert sorted(line.split(":")[0] for line in ends[1:]) == ["kd alpha 0.1 seed 0", "kd alpha 0.9 seed 0"]
    assert "Best on validation: alpha = " in out
    found = results(tmp_path / "runs")
    assert [result["method"] for result in found.values()] == ["baseline", "kd", "kd"]
    (teacher,) = (name for name in found if "-baseline-" in name)
    assert [result["teacher"]["run"] for name, result in found.items() if name != teacher] == [teacher, teacher]


def test_the_cost_of_several_networks_is_told(alr, texts, tmp_path):
    dry = ["--seeds", 1, "--workers", 1, "--dry-run", "--json", *SHORT]
    plan = alr("compare", texts, "--methods", "label-refinery", *dry).json
    assert [run["config"]["method"]["name"] for run in plan["first"]] == ["baseline", "label-refinery"]
    assert plan["seconds"] > 0
    wide = ["--set", "method.options.teacher_options.dim=32"]  # of kd, and so not of the others
    plan = alr("compare", texts, "--methods", "baseline,kd", *dry, *wide).json
    assert plan["runs"][0]["config"]["method"]["options"] == {}
    assert plan["first"][0]["config"]["model"]["options"]["dim"] == 32
    shown = alr("compare", texts, "--methods", "dml,kd", *[word for word in dry if word != "--json"])
    assert "dml: 2 networks learn together, at 2 times the cost." in shown.out
    assert "kd: the teacher, a network like the student, is a run of its own, trained first" in shown.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_student_that_was_interrupted_ends_as_if_nothing_had_been(alr, start_alr, texts, tmp_path):
    command = ["train", texts, "--method", "kd", "--epochs", 40, *QUICK]
    process = start_alr(*command, "--out", "stopped", "--set", "checkpoint_seconds=0")
    wait_for(lambda: list((tmp_path / "stopped").glob("*-kd-*/checkpoint/epoch-*.json")), process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert not any("-kd-" in name for name in results(tmp_path / "stopped"))
    assert alr(*command, "--out", "stopped").status == 0
    alr(*command, "--out", "whole")
    assert metrics(tmp_path / "stopped") == metrics(tmp_path / "whole")


# ------------------------------------------------------------------------------------------------------------- refused


def refusal(alr, data, teacher):
    ended = alr("train", data, "--method", "kd", *SHORT, "--set", f"method.options.teacher={teacher}")
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    return ended.err


def test_a_teacher_of_other_data_is_refused(alr, taught, tmp_path):
    teacher = one(taught[0], "-baseline-")
    other = write_texts(tmp_path / "other.csv", seed=7)
    assert "was trained on other data or another split than other.csv is here" in refusal(alr, other, teacher)


def test_a_teacher_that_is_unfinished_or_diverged_is_refused(alr, texts, taught, tmp_path):
    teacher = tmp_path / "teacher"
    shutil.copytree(one(taught[0], "-baseline-"), teacher)
    result = json.loads((teacher / "result.json").read_text())
    (teacher / "result.json").unlink()
    assert f"method.options.teacher: {teacher} is not finished; run its command again" in refusal(alr, texts, teacher)
    (teacher / "result.json").write_text(json.dumps(result))
    sealed_again(teacher, status="diverged", reason="it grew")
    assert f"{teacher} has nothing to teach: it grew" in refusal(alr, texts, teacher)


def test_a_teacher_that_reads_otherwise_is_refused(alr, texts, taught):
    teacher = one(taught[0], "-baseline-")
    given = ["--set", f"method.options.teacher={teacher}", "--set", "model.options.buckets=256"]
    ended = alr("train", texts, "--method", "kd", *SHORT, *given)
    assert ended.status == 2
    assert "reads its inputs in another way than the student (buckets)" in ended.err


def test_a_teacher_that_diverges_stops_its_student_with_a_word(alr, texts, tmp_path):
    ended = alr("train", texts, "--method", "kd", *SHORT, "--set", "lr=1e9")
    assert ended.status == 2
    assert "kd learns from another run: " in ended.err
    assert "has nothing to teach: " in ended.err
    assert not any("-kd-" in path.name for path in (tmp_path / "runs").iterdir())
