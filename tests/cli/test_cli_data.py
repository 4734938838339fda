"""`alr list` and `alr data`."""

from __future__ import annotations

import pytest
from cli_parts import QUICK


@pytest.mark.parametrize(
    ("kind", "name"), [("methods", "alr-s"), ("models", "fasttext"), ("datasets", "towns"), ("data", "digits")]
)
def test_lists(alr, kind, name):
    command = ["data", "list"] if kind == "data" else ["list", kind]
    lines = alr(*command).out.splitlines()
    entries = alr(*command, "--json").json
    assert [line.split()[0] for line in lines] == [entry["name"] for entry in entries]
    assert name in {entry["name"] for entry in entries}
    assert all(entry["description"] for entry in entries)
    assert len({line.index(entry["description"]) for line, entry in zip(lines, entries, strict=True)}) == 1


def test_verify_texts(alr, texts):
    ended = alr("data", "verify", texts)
    assert (ended.status, ended.err) == (0, "")
    assert "small.csv: 3 classes of texts, fingerprint " in ended.out
    assert "Text is read from column 'text', the label from column 'label'." in ended.out
    table = [line.split() for line in ended.out.splitlines()[-4:]]
    assert table[0] == ["class", "train", "validation", "test"]
    assert {name: sum(map(int, counts)) for name, *counts in table[1:]} == {"food": 70, "music": 70, "sport": 70}
    facts = alr("data", "verify", texts, "--json").json
    assert facts["examples"]["test"] == {row[0]: int(row[3]) for row in table[1:]}
    assert facts["kind"] == "text"


def test_verify_images_in_another_place(alr, images):
    ended = alr("data", "verify", images.name, "--data-dir", images.parent, "--image-size", 12)
    assert ended.status == 0
    assert "Images are RGB, 12×12 pixels as asked for." in ended.out


def test_prepare(alr, texts, images):
    assert "; 128 examples are tensors of (" in alr("data", "prepare", texts, *QUICK).out
    assert "; 43 examples are tensors of (43, 3, 8, 8)." in alr("data", "prepare", images).out
