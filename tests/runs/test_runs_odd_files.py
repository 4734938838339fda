"""Files of a run that are whole but hold something else: one sentence each, by the readers themselves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_parts import RESULT, finished

from adaptive_labels.lab.files import write_npz
from adaptive_labels.lab.runs import RunError
from adaptive_labels.lab.runs.arrays import load_predictions, load_residual_labels
from run_maker import sealed_again

PREDICTIONS = {"test_logits": np.zeros((1, 3)), "test_labels": np.zeros(1, int), "classes": np.array(["a", "b", "c"])}
PREDICTIONS |= {"validation_logits": np.zeros((2, 3)), "validation_labels": np.full(2, 2)}
DENSE = {"epochs": np.array([1]), "classes": np.array(["a", "b", "c"]), "labels": np.zeros((1, 3, 3))}
LARGEST = {key: DENSE[key] for key in ("epochs", "classes")}
LARGEST |= {"indices": np.full((1, 3, 2), 2), "values": np.ones((1, 3, 2))}
OF_FILES = [(load_predictions, PREDICTIONS), (load_residual_labels, DENSE), (load_residual_labels, LARGEST)]
OF_OTHER_KINDS = [np.array(1), np.zeros((1, 1, 1, 1)), np.array(["a"]), np.zeros(3)]
CHANGES: list[tuple[int, dict[str, Any]]] = [
    (0, {"test_labels": np.full(1, 3)}),
    (0, {"test_labels": np.full(1, -1)}),
    (0, {"validation_labels": np.array([0, 3])}),
    (0, {"test_labels": np.zeros(2, int)}),
    (0, {"test_logits": np.zeros((1, 2))}),
    (0, {"classes": np.array(["a"])}),
    (1, {"labels": np.full((1, 3, 3), -1.0)}),
    (1, {"labels": np.full((1, 3, 3), np.inf)}),
    (1, {"labels": np.zeros((2, 3, 3))}),
    (2, {"indices": np.full((1, 3, 2), 3)}),
    (2, {"indices": np.zeros((1, 3, 1), int)}),
    (2, {"values": np.full((1, 3, 2), np.nan)}),
    *((number, {name: odd}) for number, (_, whole) in enumerate(OF_FILES) for name in whole for odd in OF_OTHER_KINDS),
]


@pytest.mark.parametrize(("number", "changes"), CHANGES, ids=lambda part: str(part)[:40])
def test_odd_arrays_are_named(tmp_path: Path, number: int, changes: dict[str, Any]) -> None:
    load, whole = OF_FILES[number]
    write_npz(tmp_path / "x.npz", **whole)
    load(tmp_path / "x.npz")
    write_npz(tmp_path / "x.npz", **{**whole, **changes})
    with pytest.raises(RunError, match=r"x\.npz is odd: its '"):
        load(tmp_path / "x.npz")


def test_arrays_of_another_file_are_named(tmp_path: Path) -> None:
    write_npz(tmp_path / "x.npz", classes=["a"], epochs=[1])
    for load, what in ((load_predictions, "predictions"), (load_residual_labels, "residual labels")):
        with pytest.raises(RunError, match=rf"x\.npz holds classes, epochs; these are not {what}\."):
            load(tmp_path / "x.npz")


@pytest.mark.parametrize("key", [*RESULT, "status", "reason"])
@pytest.mark.parametrize("value", [[1], True])
def test_a_result_with_a_field_of_another_kind(tmp_path: Path, key: str, value: object) -> None:
    run = finished(tmp_path)
    sealed_again(run.path, **{key: value})
    words = "has the status" if key == "status" else f"has a {type(value).__name__} as its {key}"
    with pytest.raises(RunError, match=rf"result\.json {words}"):
        _ = run.result
    sealed_again(run.path, **{key: "finished" if key == "status" else RESULT.get(key)})
    assert run.result is not None


def test_metrics_are_of_splits(tmp_path: Path) -> None:
    run = finished(tmp_path)
    sealed_again(run.path, metrics={"test": 0.5})
    with pytest.raises(RunError, match=r"result\.json has metrics that are not of splits\."):
        _ = run.result
