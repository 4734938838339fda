"""A small table of texts, of which each class has words of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

WORDS = {"food": "bread soup rice", "music": "drum flute song", "sport": "ball goal race"}


def write_table(path: Path) -> Path:
    pairs = [(word, label) for label, words in WORDS.items() for word in words.split()]
    rows = [f"{word} {number},{label}" for number in range(10) for word, label in pairs]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """It stands beside the working directory, not in it."""
    return write_table(tmp_path / "data" / "texts.csv")
