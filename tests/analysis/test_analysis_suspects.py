"""How good a ranking of suspects is, and the files that hold them."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from sklearn.metrics import average_precision_score

from adaptive_labels.errors import UserError
from adaptive_labels.lab.analysis.suspects import (
    CORRECTION,
    Correction,
    Suspect,
    Suspects,
    average_precision,
    read_corrections,
    read_suspects,
    suspects_to_csv,
    suspects_to_dict,
)

FIRST = Suspect(1, "test", 7, "mine.csv:9", "=1+1", "a", "b", 0.1, 0.9)
SECOND = Suspect(2, "train", 3, None, None, "-x", "a", 0.2, 0.7, conflict=True, png="iVBORw0KGgo=")
FOUND = Suspects("mine.csv", 500, 40, (FIRST, SECOND), 30, 1, ("rare",))


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40))
def test_average_precision_is_sklearns_with_ties(examples: list[tuple[int, bool]]) -> None:
    scores, wrong = zip(*examples, strict=True)
    if any(wrong):
        assert average_precision(scores, wrong) == pytest.approx(average_precision_score(wrong, scores))


def test_rankings_that_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="wrong names no example"):
        average_precision([0.5], [False])
    with pytest.raises(ValueError, match="scores holds NaN"):
        average_precision([float("nan")], [True])
    with pytest.raises(ValueError, match=r"scores has shape \(1,\)"):
        average_precision([0.5], [True, False])


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Path, Path]:
    """The suspects as JSON and as CSV."""
    as_json, as_csv = tmp_path / "found.json", tmp_path / "found.csv"
    as_json.write_text(json.dumps(suspects_to_dict(FOUND)))
    as_csv.write_text(suspects_to_csv(FOUND))
    return as_json, as_csv


def test_json_is_read_as_it_was_written(stored: tuple[Path, Path]) -> None:
    assert read_suspects(stored[0]) == FOUND
    content = json.loads(stored[0].read_text())
    assert {"examples", "estimated_wrong", "suspects"} <= content.keys()
    keys = {"rank", "split", "index", "source", "text", "label", "suggested", "score", "probability_wrong"}
    assert keys <= content["suspects"][0].keys()


@pytest.mark.parametrize("content", ["[1]", "{}", '{"suspects": [{}]}', '{"suspects": 3}', "null"])
def test_other_files_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(content)
    with pytest.raises(UserError, match=r"other\.json.*`alr suspects DATA -o FILE` writes such a file"):
        read_suspects(tmp_path / "other.json")
    with pytest.raises(UserError, match=r"other\.json.*`alr suspects DATA -o FILE` writes such a file"):
        read_corrections(tmp_path / "other.json")


def test_a_suspect_of_the_wrong_type_is_refused(tmp_path: Path) -> None:
    content = asdict(replace(FOUND, suspects=(replace(FIRST, label=3),)))  # type: ignore[arg-type]
    (tmp_path / "other.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="holds no suspects"):
        read_suspects(tmp_path / "other.json")


def test_a_spreadsheet_runs_nothing_and_can_be_filled_in(stored: tuple[Path, Path]) -> None:
    rows = list(csv.reader(stored[1].read_text().splitlines()))
    assert rows[0][-1] == CORRECTION
    assert (rows[1][4], rows[2][5]) == ("'=1+1", "'-x")
    assert [row[-1] for row in rows[1:]] == ["", ""]
    rows[2][-1] = "c"
    with stored[1].open("w", newline="", encoding="utf-8-sig") as file:  # as Excel writes it
        csv.writer(file).writerows(rows)
    assert [(c.split, c.index, c.label, c.corrected) for c in read_corrections(stored[1])] == [
        ("test", 7, "a", "b"),
        ("train", 3, "-x", "c"),
    ]


def test_corrections_of_both_forms_are_the_same(stored: tuple[Path, Path]) -> None:
    as_json, as_csv = (read_corrections(path) for path in stored)
    assert as_json[0] == Correction(f"{stored[0]}, suspect 1", "test", 7, "a", "b")
    assert as_csv[0] == Correction(f"{stored[1]}, row 2", "test", 7, "a", "b")
    assert [replace(c, where="") for c in as_json] == [replace(c, where="") for c in as_csv]


def test_an_index_that_is_no_number_is_named(stored: tuple[Path, Path]) -> None:
    stored[1].write_text(stored[1].read_text().replace(",7,", ",seven,"))
    with pytest.raises(UserError, match=r"found\.csv, row 2 has 'seven' as its index"):
        read_corrections(stored[1])
