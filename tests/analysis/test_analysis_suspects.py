import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.metrics import average_precision_score

from adaptive_labels.lab.analysis.suspects import (
    Suspect,
    Suspects,
    average_precision,
    read_suspects,
    write_suspects,
)
from adaptive_labels.lab.runs import RunError


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40))
def test_average_precision_is_sklearns_with_ties(examples: list[tuple[int, bool]]) -> None:
    scores, wrong = [float(score) for score, _ in examples], [flag for _, flag in examples]
    if any(wrong):
        assert average_precision(scores, wrong) == pytest.approx(average_precision_score(wrong, scores))


def test_average_precision_by_hand() -> None:
    wrong = [True, True, False, False]
    assert average_precision([4, 3, 2, 1], wrong) == 1.0
    assert average_precision([1, 2, 3, 4], wrong) == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert average_precision([5, 5, 5, 5], wrong) == 0.5  # nothing is ranked: the share of wrong labels
    assert average_precision([np.inf, 0, -np.inf, 0], [True, False, True, False]) == pytest.approx(0.5 + 0.5 * 2 / 4)


def test_rankings_that_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match=r"scores has shape \(2,\) and wrong \(3,\)"):
        average_precision([1, 2], [True, False, True])
    with pytest.raises(ValueError, match="wrong names no example"):
        average_precision([1, 2], [False, False])
    with pytest.raises(ValueError, match="scores holds NaN"):
        average_precision([1, np.nan], [False, True])


SUSPECTS = Suspects(
    run="notes-fasttext-alr-s0-1234abcd",
    dataset="notes.csv",
    method="alr",
    seed=0,
    fingerprint="ab12",
    ranked_by="residual",
    examples=420,
    suspects=(
        Suspect(1, 17, "notes.csv:19", "<b>snow</b>", None, "sport", "weather", 7.5, 0.001, 0.98, "weather"),
        Suspect(2, 3, None, None, "iVBORw0KGgo=", "money", "sport", 2.25, 0.1, 0.8),
    ),
    wrong_labels=42,
    average_precision={"loss": 0.9, "residual": 0.95},
)


ENTRY = asdict(SUSPECTS.suspects[0])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for suspects in (SUSPECTS, replace(SUSPECTS, suspects=(), wrong_labels=None, average_precision=None)):
        write_suspects(suspects, tmp_path / "suspects.json")
        assert read_suspects(tmp_path / "suspects.json") == suspects


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "something"}, "holds no suspects; `alr suspects RUN -o FILE` writes such a file"),
        ({"version": 2}, "has the version 2; this program reads version 1"),
        ({"suspects": None}, "has no list of suspects"),
        ({"suspects": [3]}, "suspect 1 is no JSON object"),
        ({"suspects": [{"rank": 1}]}, "suspect 1 must have the keys .* missing or too many: index, "),
        ({"extra": 1}, "missing or too many: extra"),
        ({"examples": "many"}, "has 'many' as its examples"),
        ({"suspects": [{**ENTRY, "score": "high"}]}, "suspect 1 has 'high' as its score"),
        ({"seed": True}, "has True as its seed"),
        ({"average_precision": {"loss": "high"}}, r"has {'loss': 'high'} as its average_precision"),
    ],
)
def test_other_files_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "suspects.json"
    write_suspects(SUSPECTS, path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(RunError, match=message):
        read_suspects(path)


def test_files_that_are_no_json(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not exist"):
        read_suspects(tmp_path / "none.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(RunError, match="holds no suspects"):
        read_suspects(tmp_path / "list.json")
