import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from adaptive_labels.lab.analysis.frames import (
    Columns,
    histories_of,
    metrics_of,
    open_runs,
    pairs_of,
    predictions_of,
    residuals_of,
)
from adaptive_labels.lab.analysis.residual_labels import consistency
from adaptive_labels.lab.runs import RunError, RunFolder


def test_metrics_have_a_row_a_run(comparison: list[RunFolder], maker: Any) -> None:
    maker.diverged("alr", 7, "the loss became NaN in epoch 1")
    found = metrics_of(maker.out)
    assert found.height == 10
    for run in comparison:
        (row,) = found.where(run=str(run.path)).rows()
        assert run.result is not None
        assert (row["method"], row["seed"], row["status"]) == (run.names.method, run.names.seed, "finished")
        assert row["test_top1"] == run.result["metrics"]["test"]["top1"]
        assert row["validation_nll"] == run.result["metrics"]["validation"]["nll"]
    (left,) = found.where(status="diverged").rows()
    assert np.isnan(left["test_top1"])
    only = metrics_of([comparison[0], str(comparison[1].path)])
    assert only["seed"].tolist() == [0, 1]


def test_histories_have_a_row_an_epoch(comparison: list[RunFolder]) -> None:
    found = histories_of(comparison[0])
    assert found["epoch"].tolist() == [1, 2, 3, 4]
    assert found["train_loss"].tolist() == [line["train_loss"] for line in comparison[0].history()]
    everything = histories_of(comparison)
    assert everything.height == 9 * 4
    learned = next(run for run in comparison if run.names.method == "alr")
    weights = everything.where(run=str(learned.path))["part_weight"].tolist()
    assert weights == [line["parts"]["weight"] for line in learned.history()]
    assert np.isnan(everything.where(method="baseline")["part_weight"]).all()


def test_pairs_are_the_mean_confusions(comparison: list[RunFolder]) -> None:
    runs = [run for run in comparison if run.names.method == "alr"]
    found = pairs_of(runs)
    assert found.height == 8 * 7
    row = found.where(true="AT", taken_for="DE").rows()[0]
    stored = [run.load_residual_labels() for run in runs]
    assert row["residual"] == pytest.approx(np.mean([labels.matrix()[0, 1] for labels in stored if labels is not None]))
    assert "residual" not in pairs_of(comparison[0])


def test_residual_labels_over_the_epochs(comparison: list[RunFolder]) -> None:
    run = next(run for run in comparison if run.names.method == "alr")
    found = residuals_of(run)
    stored = run.load_residual_labels()
    assert stored is not None
    assert found["epoch"].tolist() == stored.epochs.tolist()
    assert found["normalised_entropy"][0] == pytest.approx(1.0, abs=1e-6)
    assert found["rank_correlation"].tolist() == consistency(stored.labels).correlation.tolist()
    with pytest.raises(RunError, match="has no residual labels; its method, baseline, learns none"):
        residuals_of(comparison[0])


def test_predictions_have_a_row_an_example(comparison: list[RunFolder]) -> None:
    run = comparison[0]
    found = predictions_of(run)
    assert run.result is not None
    assert found["correct"].mean() == pytest.approx(run.result["metrics"]["test"]["top1"])
    assert (found["correct"] == (found["label"] == found["predicted"])).all()
    validation = predictions_of(run.path, "validation")
    assert validation["correct"].mean() == pytest.approx(run.result["metrics"]["validation"]["top1"])
    with pytest.raises(ValueError, match="split is 'train'; it must be test or validation"):
        predictions_of(run, "train")


def test_runs_that_are_not_there(maker: Any, tmp_path: Any) -> None:
    with pytest.raises(RunError, match="There is no run in an empty list"):
        open_runs([])
    with pytest.raises(RunError, match="There is no run in "):
        metrics_of(tmp_path)
    with pytest.raises(RunError, match="keeps no predictions of its test split"):
        predictions_of(maker.figures("alr", 0, 0.5))


def test_columns_are_of_one_length() -> None:
    with pytest.raises(ValueError, match="columns must be one-dimensional and of one length"):
        Columns({"a": [1, 2], "b": [1]})
    with pytest.raises(ValueError, match="there is no column 'c'; there are a"):
        Columns({"a": [1]}).where(c=1)
    assert Columns({}).height == 0
    assert dict(Columns({"a": [1]})).keys() == {"a"}


PANDAS = """
import sys
from adaptive_labels.lab.analysis.frames import Columns
table = Columns({"seed": [0, 1]})
sys.modules["pandas"] = None  # as if it were not installed
try:
    table.to_frame()
except ImportError as error:
    assert str(error) == "to_frame needs pandas, which is not installed: pip install pandas", error
else:
    raise SystemExit("no error")
"""


def test_without_pandas_a_sentence_says_so() -> None:
    assert subprocess.run([sys.executable, "-c", PANDAS], check=False).returncode == 0


def test_frames_are_pandas_own() -> None:
    pandas = pytest.importorskip("pandas")
    frame = Columns({"method": ["a", "b"], "test_top1": [0.5, 0.75]}).to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.set_index("method")["test_top1"].to_dict() == {"a": 0.5, "b": 0.75}


def test_residuals_are_those_of_one_run(comparison: list[RunFolder], maker: Any) -> None:
    with pytest.raises(ValueError, match=r"which holds 9 runs; residuals_of takes one of them"):
        residuals_of(maker.out)
    with pytest.raises(ValueError, match=r"which holds 9 runs; predictions_of takes one of them"):
        predictions_of(maker.out)
