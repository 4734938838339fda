"""Texts of one's own in any language through the command: kept as they are, empty, very long."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import pytest

MODELS = {
    "fasttext": ["model.options.buckets=512", "model.options.dim=8", "model.options.hidden=0"],
    "textrnn": ["model.options.dim=8", "model.options.context=4", "model.options.hidden=8"],
    "transformer-w16": ["model.options.heads=2", "model.options.layers=1"],
    "charcnn-w16": ["model.options.alphabet=train", "model.options.length=123"],
}
WORDS = {
    "Größe": ["Straße", "Übung", "ÄPFEL", "grüßen"],
    "русский": ["Москва", "ЁЛКА", "зима", "чай"],
    "日本語": ["東京", "ラーメン", "桜が咲く", "寿司"],
    "العربية": ["القاهرة", "شاي", "كتاب", "مدرسة"],
}


def write(path: Path, empty: int = 2, long: int = 3) -> Path:
    rows = [
        (" ".join([words[number % 4], words[number // 4 % 4], f"🙂{number}"]), label)
        for number in range(16)
        for label, words in WORDS.items()
    ]
    rows += [("  \t", "Größe")] * empty
    rows += [(" ".join(WORDS["русский"] * 75) + f" {number}", "русский") for number in range(long)]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


def options(model: str, *more: str) -> list[str]:
    settings = [*MODELS[model], "epochs=2", "batch_size=16", "threads=1", *more]
    return ["--model", model, *(word for setting in settings for word in ("--set", setting))]


@pytest.mark.parametrize("model", MODELS)
def test_train_and_predict(alr, tmp_path, model):
    ended = alr("train", write(tmp_path / "many.csv"), *options(model), "--out", "runs")
    assert ended.status == 0, ended.err
    assert "Left out 2 empty texts of many.csv." in ended.out
    (run,) = (tmp_path / "runs").iterdir()
    texts = ["", " ", "\u200b", "Straße", "東京 寿司", "x" * 100_000, "\U0001f642"]
    answers = alr("predict", run, *texts, "--top", "4", "--json")
    assert answers.status == 0, answers.err
    lines = [json.loads(line) for line in answers.out.splitlines()]
    assert [line["input"] for line in lines] == texts
    for line in lines:
        assert {answer["class"] for answer in line["classes"]} == set(WORDS)
        probabilities = [answer["probability"] for answer in line["classes"]]
        assert all(math.isfinite(probability) for probability in probabilities)
        assert sum(probabilities) == pytest.approx(1, abs=1e-6)
    alone = json.loads(alr("predict", run, "", "--top", "4", "--json").out)  # a batch of nothing but an empty text
    for one, other in zip(alone["classes"], lines[0]["classes"], strict=True):
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-5)


@pytest.mark.parametrize(
    ("model", "setting", "note"),
    [
        ("fasttext", "model.options.max_length=100", "100 characters; only the beginning is read"),
        ("textrnn", "model.options.max_words=200", "200 words; only the beginning is read"),
        ("transformer-w16", "model.options.max_words=200", "200 words; only the beginning is read"),
        ("charcnn-w16", "model.options.length=150", "150 characters; only the beginning is read"),
    ],
)
def test_texts_that_are_cut_are_counted(alr, tmp_path, model, setting, note):
    data = write(tmp_path / "many.csv", long=30)
    dry = alr("train", data, *options(model, setting), "--dry-run")
    assert dry.status == 0, dry.err
    said = " ".join(dry.out.split())
    assert note in said
    assert f"({setting.partition('=')[0]})." in said
    found = re.search(r"About (\d+)% of the training texts are longer than", said)
    assert found is not None
    assert 20 <= int(found[1]) <= 40
    prepared = alr("data", "prepare", data, *options(model, setting))
    assert note in " ".join(prepared.out.split())


def test_nothing_is_said_of_texts_that_are_read_to_their_end(alr, tmp_path):
    ended = alr("train", write(tmp_path / "many.csv"), *options("fasttext"), "--dry-run")
    assert "longer than" not in ended.out


@pytest.mark.parametrize("model", ["fasttext", "charcnn-w16"])
def test_lowercase_is_an_option_of_models_of_texts(alr, tmp_path, model):
    data = write(tmp_path / "many.csv")
    for number, (given, expected) in enumerate({"true": True, "false": False}.items()):
        ended = alr("train", data, *options(model, f"model.options.lowercase={given}"), "--out", f"runs{number}")
        assert ended.status == 0, ended.err
        assert f"lowercase {expected}" in ended.out
        (run,) = (tmp_path / f"runs{number}").iterdir()
        capital, small = (
            [answer["probability"] for answer in json.loads(alr("predict", run, text, "--json").out)["classes"]]
            for text in ("ЁЛКА ÄPFEL", "ёлка äpfel")
        )
        assert (capital == pytest.approx(small)) is expected


def test_a_teacher_that_reads_otherwise_is_refused(alr, texts):
    taught = ["--method", "kd", "--set", "method.options.teacher_model=fasttext"]
    ended = alr("train", texts, "--model", "textrnn", *taught)
    assert ended.status == 2
    assert "'textrnn' reads words and 'fasttext' reads ngrams: networks that learn from one another" in ended.err


def test_options_of_the_encoder_are_checked(alr, texts):
    ended = alr("train", texts, "--model", "textrnn", "--set", "model.options.max_words=0")
    assert (ended.status, "max_words is 0; it must be at least 1" in ended.err) == (2, True)
    ended = alr("train", texts, "--model", "textrnn", "--set", "model.options.buckets=5")
    assert (ended.status, "model.options.buckets: 'textrnn' has" in ended.err) == (2, True)
