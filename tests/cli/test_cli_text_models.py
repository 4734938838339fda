"""The networks that read texts in order, through the command: trained, stored, loaded, predicting."""

from __future__ import annotations

import json

import pytest

MODELS = {
    "textrnn": [word for size in ("dim=16", "context=8", "hidden=16") for word in ("--set", f"model.options.{size}")],
    "transformer-w16": ["--set", "model.options.heads=2", "--set", "model.options.layers=1"],
    "charcnn-w16": ["--set", "model.options.dropout=0.0", "--set", "lr=0.003"],
}
RECIPE = ["--epochs", "12", "--set", "batch_size=16", "--set", "threads=1", "--set", "lr=0.01"]


@pytest.mark.parametrize("model", MODELS)
def test_train_then_predict(alr, texts, tmp_path, model):
    ended = alr("train", texts, "--model", model, "--method", "alr", *RECIPE, *MODELS[model], "--out", "runs", "--json")
    assert ended.status == 0, ended.err
    result = json.loads(ended.out)
    assert result["metrics"]["test"]["top1"] > 0.6  # of 3 classes
    (run,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    stored = json.loads((run / "encoder.json").read_text(encoding="utf-8"))
    assert stored["kind"] == ("characters" if model.startswith("charcnn") else "words")
    if stored["kind"] == "words":
        assert "guitar" in stored["settings"]["words"]
    answers = alr("predict", run, "match goal team", "bread soup cheese", "song guitar band", "", "--json")
    assert answers.status == 0, answers.err
    best = [json.loads(line)["classes"][0]["class"] for line in answers.out.splitlines()]
    assert len(best) == 4
    if stored["kind"] == "words":  # so few texts are too few to learn words from letters
        assert best[:3] == ["sport", "food", "music"]
    again = alr("predict", run, "song guitar band", "--json")  # alone: no padding
    alone, among = json.loads(again.out), json.loads(answers.out.splitlines()[2])
    for one, other in zip(alone["classes"], among["classes"], strict=True):
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-4)


def test_a_teacher_that_reads_otherwise_is_refused(alr, texts):
    taught = ["--method", "kd", "--set", "method.options.teacher_model=fasttext"]
    ended = alr("train", texts, "--model", "textrnn", *taught, *RECIPE)
    assert ended.status == 2
    assert "'textrnn' reads words and 'fasttext' reads ngrams: networks that learn from one another" in ended.err


def test_options_of_the_encoder_are_checked(alr, texts):
    ended = alr("train", texts, "--model", "textrnn", "--set", "model.options.max_words=0")
    assert (ended.status, "max_words is 0; it must be at least 1" in ended.err) == (2, True)
    ended = alr("train", texts, "--model", "textrnn", "--set", "model.options.buckets=5")
    assert (ended.status, "model.options.buckets: 'textrnn' has" in ended.err) == (2, True)
