"""Pretrained encoders through the command: trained on their features, stored, loaded, predicting."""

from __future__ import annotations

import json
from importlib import metadata

import pytest

from adaptive_labels.lab.config import RunConfig, with_settings
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.resolve import resolve_for
from adaptive_labels.lab.models.pretrained import PackageError, efficientnet_lite, minilm

SECONDS = "adaptive_labels.lab.experiments.budget.seconds_of_encoding"


def is_missing(package):
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return True
    return False


QUICK = ["--set", "threads=1", "--epochs", "20"]


@pytest.mark.slow
@pytest.mark.skipif(is_missing(minilm.PACKAGE), reason=f"{minilm.PACKAGE} is not installed")
def test_texts(alr, texts, tmp_path):
    pytest.importorskip("tokenizers")
    methods = ["--methods", "baseline,alr", "--seeds", "1"]
    ended = alr("compare", texts, "--model", "minilm", *methods, *QUICK, "--out", "runs")
    assert ended.status == 0, ended.err
    assert "Yahoo! Answers" in " ".join(ended.out.split())
    for run in (path for path in (tmp_path / "runs").iterdir() if path.is_dir()):
        assert json.loads((run / "result.json").read_text())["metrics"]["test"]["top1"] > 0.6  # of 3 classes
        answers = alr("predict", run, "the striker shot the ball", "a pot of stew", "", "--json")
        assert answers.status == 0, answers.err
        best = [json.loads(line)["classes"][0]["class"] for line in answers.out.splitlines()]
        assert best[:2] == ["sport", "food"]  # of words that no training text has


@pytest.mark.slow
@pytest.mark.skipif(is_missing(efficientnet_lite.PACKAGE), reason=f"{efficientnet_lite.PACKAGE} is not installed")
def test_images(alr, images, tmp_path):
    ended = alr("train", images, "--model", "efficientnet-lite0", *QUICK, "--out", "runs", "--json")
    assert ended.status == 0, ended.err
    (run,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    some = sorted(path for path in images.rglob("*.png"))[:2]
    answers = alr("predict", run, *some, "--json")
    assert answers.status == 0, answers.err
    assert len(answers.out.splitlines()) == 2
    suspects = alr("suspects", run, "--top", "2", "--format", "json")
    assert suspects.status == 0, suspects.err


@pytest.mark.parametrize(("module", "model"), [(minilm, "minilm"), (efficientnet_lite, "efficientnet-lite0")])
def test_a_missing_package_is_said_with_the_extra(module, model, texts, images, monkeypatch):
    monkeypatch.setattr(module, "PACKAGE", "not-installed-here")
    data = texts if model == "minilm" else images
    config = with_settings(RunConfig(), [f"data.name={data}", f"model.name={model}"])
    with pytest.raises(PackageError, match=r"needs not-installed-here, .*: pip install 'adaptive-labels\[encoders\]'"):
        resolve_for(config, build.load_data(config.data, config.model))


@pytest.mark.slow
@pytest.mark.skipif(is_missing(minilm.PACKAGE), reason=f"{minilm.PACKAGE} is not installed")
def test_an_encoder_is_a_candidate_where_it_suits(alr, texts, tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    monkeypatch.setenv("ALR_ENCODERS", "on")
    monkeypatch.setenv("ALR_CACHE", str(tmp_path / "cache"))
    before = alr("compare", texts, "--dry-run", "--methods", "baseline", "--seeds", "1", "--epochs", "2")
    assert before.status == 0, before.err
    assert not (tmp_path / "cache").exists()  # an estimate needs no more than a few
    monkeypatch.setattr(SECONDS, lambda run, data, *_: 5.0)  # so few texts take less than is worth saying
    ended = alr("compare", texts, "--methods", "baseline,kd,dml", "--seeds", "1", "--workers", "1", *QUICK)
    assert ended.status == 0, ended.err
    report = (tmp_path / "runs/report.html").read_text(encoding="utf-8")
    assert "Yahoo! Answers" in report


@pytest.mark.slow
@pytest.mark.skipif(is_missing(minilm.PACKAGE), reason=f"{minilm.PACKAGE} is not installed")
@pytest.mark.parametrize("model", ["minilm", "efficientnet-lite0"])
def test_an_encoder_is_tuned(alr, texts, images, tmp_path, model):
    data, inputs = (texts, ["a pot of stew"]) if model == "minilm" else (images, sorted(images.rglob("*.png"))[:1])
    options = ["--model", model, "--set", "model.options.tune=true", "--set", "threads=1", "--epochs", "1"]
    ended = alr("train", data, *options, "--method", "baseline", "--out", "runs", "--json")
    assert ended.status == 0, ended.err
    result = json.loads(ended.out)
    assert result["parameters"]["network"] > 3_000_000
    assert "It is trained further with the head." in result["pretraining"][0]
    answers = alr("predict", result["folder"], *inputs, "--json")
    assert answers.status == 0, answers.err
