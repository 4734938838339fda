"""`alr predict`: a trained classifier at work."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys

import numpy as np
import pytest
from cli_parts import results, write_texts
from PIL import Image

from adaptive_labels import load


@pytest.fixture(scope="module")
def text_run(compared):
    return next(path for path in compared.iterdir() if "-alr-s0-" in path.name)


@pytest.fixture(scope="module")
def image_run(images, tmp_path_factory):
    from adaptive_labels import compare

    training = {"epochs": 8, "batch_size": 16, "threads": 1}
    settings = {"model": {"name": "preact-resnet18-w4"}, "training": training}
    (run,) = compare(images, "slr", 1, out=tmp_path_factory.mktemp("images"), settings=settings)
    return run.path


def test_texts_and_files_of_texts(alr, text_run, tmp_path):
    (tmp_path / "lines.txt").write_text("\ufeffbread soup cheese\n\nsong guitar\u2028band\n", encoding="utf-8")
    ended = alr("predict", text_run, "match goal team", "lines.txt")
    assert (ended.status, ended.err) == (0, "")
    shown = ended.out.split("\n")
    assert [line.split(": ")[0] for line in shown] == [
        "match goal team",
        "bread soup cheese",
        "song guitar\u2028band",
        "",
    ]
    for line, best in zip(shown, ("sport", "food", "music"), strict=False):
        classes = line.split(": ")[1].split(", ")
        assert classes[0].split()[0] == best
        assert sum(float(part.split()[1].rstrip("%")) for part in classes) == pytest.approx(100, abs=0.2)


def test_a_table_is_read_by_its_text_column(alr, text_run, tmp_path):
    (tmp_path / "new.csv").write_text('id,text,label\n 7,"bread, soup",unsure\n8,,\n9,song guitar,=odd\n')
    ended = alr("predict", text_run, "new.csv", "-o", "found.csv")
    assert (ended.status, ended.err, ended.out) == (0, "", "3 predictions are in found.csv.\n")
    told = alr("predict", text_run, "new.csv", "-o", "found.csv", "--json")
    assert (told.status, told.json) == (0, {"predictions": 3, "output": "found.csv"})
    with (tmp_path / "found.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "text", "label", "prediction", "probability"]
    own = [(row["id"], row["text"], row["label"]) for row in rows]
    assert own == [(" 7", "bread, soup", "unsure"), ("8", "", ""), ("9", "song guitar", "=odd")]  # as they were
    assert (rows[0]["prediction"], rows[2]["prediction"]) == ("food", "music")


def test_the_next_classes_in_a_file_and_columns_of_the_same_names(alr, text_run, tmp_path):
    (tmp_path / "new.csv").write_text("prediction,text\nmine,bread soup\n")
    assert alr("predict", text_run, "new.csv", "-o", "found.csv", "--top", 2).status == 0
    names, cells = csv.reader((tmp_path / "found.csv").read_text().splitlines())
    assert names == ["prediction", "text", "prediction (new)", "probability", "prediction_2", "probability_2"]
    assert cells[:3] == ["mine", "bread soup", "food"]
    assert 1 > float(cells[3]) > float(cells[5]) > 0
    assert float(cells[3]) == load(text_run).predict("bread soup", top=1)[0][0][1]


def test_tables_are_streamed(alr, text_run, tmp_path, monkeypatch):
    from adaptive_labels.lab.experiments import prediction
    from adaptive_labels.lab.experiments.export.classifier import Classifier

    monkeypatch.setattr(prediction, "TEXTS", 10)
    sizes, whole = [], Classifier.probabilities
    monkeypatch.setattr(Classifier, "probabilities", lambda self, some: sizes.append(len(some)) or whole(self, some))
    lines = [f'{number},"bread\nsoup"' if number % 2 else f"{number},song guitar" for number in range(25)]
    for name, pack in (("new.csv", bytes), ("new.csv.gz", gzip.compress)):
        (tmp_path / name).write_bytes(pack("\n".join(["id,text", *lines]).encode()))
        sizes.clear()
        assert alr("predict", text_run, name, "-o", "found.csv").status == 0
        assert sizes == [9, 10, 6]  # the first ten rows hold the names of the columns
        rows = list(csv.DictReader(io.StringIO((tmp_path / "found.csv").read_text())))
        assert [row["id"] for row in rows] == [str(number) for number in range(25)]
        assert [row["prediction"] for row in rows] == ["food" if number % 2 else "music" for number in range(25)]


def test_a_table_that_breaks_off_leaves_no_file(alr, text_run, tmp_path):
    (tmp_path / "new.csv").write_text("id,text\n1,bread\n2,soup,too,many\n")
    ended = alr("predict", text_run, "new.csv", "-o", "found.csv")
    assert (ended.status, ended.err) == (2, "alr: new.csv line 3 has 4 fields where line 1 has 2.\n")
    (tmp_path / "other.csv").write_text("text,id\nsoup,2\n")
    (tmp_path / "new.csv").write_text("id,text\n1,bread\n")
    ended = alr("predict", text_run, "new.csv", "other.csv", "-o", "found.csv")
    assert ended.err.startswith("alr: the inputs have different columns")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv", "other.csv"]


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("one.csv", "text\nbread soup\nsong guitar\n", ()),
        ("bare.csv", "bread soup\nsong guitar\n", ()),  # no header: the first row is a text, too
        (
            "own.csv",
            "words,extra\nbread soup,a long remark that is no input\nsong guitar,x\n",
            ("--text-column", "words"),
        ),
        ("lines.jsonl", '{"label": "x", "text": "bread soup"}\n{"label": "y", "text": "song guitar"}\n', ()),
    ],
)
def test_tables_of_any_kind(alr, text_run, tmp_path, name, content, options):
    (tmp_path / name).write_text(content)
    ended = alr("predict", text_run, name, *options, "--json")
    assert (ended.status, ended.err) == (0, "")
    assert [json.loads(line)["input"] for line in ended.out.splitlines()] == ["bread soup", "song guitar"]


def test_the_column_that_training_guessed_is_read_again(alr, tmp_path):
    texts = write_texts(tmp_path / "remarks.csv", count=60)
    texts.write_text(texts.read_text().replace("text,label", "remark,kind", 1))
    assert alr("train", texts, "--method", "baseline", "--epochs", 1, "--out", "runs").status == 0
    (run,) = (tmp_path / "runs").glob("remarks-*")
    (tmp_path / "new.csv").write_text("name,remark\nMr Smith junior,bread soup\nMrs Smith,song guitar\n")
    (tmp_path / "other.csv").write_text("name,extra\nbread soup,7\nsong guitar,8\n")  # has another: a guess
    for table in ("new.csv", "other.csv"):
        ended = alr("predict", run, table, "--json")
        assert [json.loads(line)["input"] for line in ended.out.splitlines()] == ["bread soup", "song guitar"]


def test_one_text_is_one_input(text_run):
    import adaptive_labels

    predictor = load(text_run)
    assert predictor.predict("bread soup") == predictor.predict(["bread soup"])
    assert len(predictor.predict("bread soup")) == 1
    assert {"AdaptiveLabelLoss", "compare"} <= set(dir(adaptive_labels))


def test_standard_input_and_json(alr, text_run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"tune drum\noven salt\n")))
    ended = alr("predict", text_run, "-", "--json", "--top", 2)
    first, second = map(json.loads, ended.out.splitlines())
    assert [first["input"], second["input"]] == ["tune drum", "oven salt"]
    assert [first["classes"][0]["class"], second["classes"][0]["class"]] == ["music", "food"]
    assert len(first["classes"]) == 2
    assert first["classes"][0]["probability"] > first["classes"][1]["probability"]


def test_image_files(alr, image_run, images, tmp_path):
    chosen = [images / "red" / "0.png", images / "blue" / "1.png"]
    Image.open(images / "green" / "0.png").resize((31, 31)).convert("RGBA").save(tmp_path / "large.webp", lossless=True)
    ended = alr("predict", image_run, *chosen, "large.webp", "--json")
    assert (ended.status, ended.err) == (0, "")
    answers = [json.loads(line) for line in ended.out.splitlines()]
    assert [answer["input"] for answer in answers] == [*map(str, chosen), "large.webp"]
    assert [answer["classes"][0]["class"] for answer in answers] == ["red", "blue", "green"]


def test_a_folder_of_images_and_their_names_on_standard_input(alr, image_run, images, monkeypatch):
    first = alr("predict", image_run, images / "red", "--json")
    named = [json.loads(line)["input"] for line in first.out.splitlines()]
    assert named == sorted(map(str, (images / "red").glob("*.png")))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(("\n".join(named) + "\n").encode())))
    second = alr("predict", image_run, "-", "--json")
    assert second.out == first.out


def test_predictions_are_those_of_the_test_split(alr, text_run, texts):
    """The stored classifier predicts what the run predicted, to the temperature that it fitted."""
    from adaptive_labels.lab.data import load_dataset

    test = load_dataset(str(texts)).test
    stored = np.load(text_run / "predictions.npz")
    temperature = results(text_run)[text_run.name]["metrics"]["test"]["temperature"]
    scaled = np.exp(stored["test_logits"].astype(np.float64) / temperature)
    expected = scaled / scaled.sum(1, keepdims=True)
    ended = alr("predict", text_run, *test.inputs, "--json")
    for row, line in zip(expected, ended.out.splitlines(), strict=True):
        found = {part["class"]: part["probability"] for part in json.loads(line)["classes"]}
        # Weights and predictions are both kept in half precision, within 0.001 of what they were.
        assert [found[name] for name in stored["classes"]] == pytest.approx(row.tolist(), abs=2e-3)
        assert max(found, key=found.__getitem__) == stored["classes"][row.argmax()]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            ["nope.txt"],
            "alr: there is no file nope.txt; if that is the text itself, pipe it into `alr predict RUN -`\n",
        ),
        (["IMAGE"], "alr: IMAGE is an image, but this classifier reads texts\n"),
        (["."], "alr: . is a folder, but this classifier reads texts\n"),
        (["latin.txt"], "alr: latin.txt line 1 is not UTF-8 text (invalid continuation byte)\n"),
    ],
)
def test_bad_text_inputs(alr, text_run, images, tmp_path, inputs, message):
    image = str(images / "red" / "0.png")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 au lait")
    ended = alr("predict", text_run, *[part.replace("IMAGE", image) for part in inputs])
    assert (ended.status, ended.out, ended.err) == (2, "", message.replace("IMAGE", image))


def test_bad_image_inputs(alr, image_run, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    ended = alr("predict", image_run, "broken.png")
    assert ended.status == 2
    assert ended.err == "alr: the image broken.png cannot be read (it is no image of a kind that is known)\n"
    assert alr("predict", image_run, "a text").err == "alr: a text is no file; this classifier reads image files\n"


def test_runs_that_cannot_predict(alr, compared, text_run, tmp_path):
    import shutil

    ended = alr("predict", compared, "x")
    assert (ended.status, ended.err) == (2, f"alr: {compared} is not a run: it has no config.json.\n")
    shutil.copytree(text_run, tmp_path / "half")
    (tmp_path / "half" / "result.json").unlink()
    assert alr("predict", "half", "x").err == "alr: half is not finished; run its command again to go on\n"
