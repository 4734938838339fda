from typing import Any

import numpy as np
import pytest

from adaptive_labels.lab.analysis.frames import (
    histories_of,
    metrics_of,
    open_runs,
    pairs_of,
    predictions_of,
    residuals_of,
)
from adaptive_labels.lab.analysis.residual_labels import consistency
from adaptive_labels.lab.runs import RunError, RunFolder


def test_metrics_have_a_row_per_run(comparison: list[RunFolder], maker: Any) -> None:
    found = metrics_of([*comparison, maker.diverged("alr", 7, "the loss became NaN in epoch 1")]).set_index("run")
    assert len(found) == 10
    for run in comparison:
        row = found.loc[str(run.path)]
        assert run.result is not None
        assert (row["method"], row["seed"], row["status"]) == (run.config.method.name, run.config.seed, "finished")
        assert row["test_top1"] == run.result["metrics"]["test"]["top1"]
        assert row["validation_nll"] == run.result["metrics"]["validation"]["nll"]
    assert found[found.status == "diverged"]["test_top1"].isna().all()
    assert metrics_of([comparison[0], str(comparison[1].path)])["seed"].tolist() == [0, 1]


def test_histories_have_a_row_per_epoch(comparison: list[RunFolder]) -> None:
    everything = histories_of(comparison)
    assert len(everything) == 9 * 4
    learned = next(run for run in comparison if run.config.method.name == "alr")
    found = everything[everything.run == str(learned.path)]
    assert found["epoch"].tolist() == [1, 2, 3, 4]
    assert found["train_loss"].tolist() == [line["train_loss"] for line in learned.history()]
    assert found["part_weight"].tolist() == [line["parts"]["weight"] for line in learned.history()]
    assert everything[everything.method == "baseline"]["part_weight"].isna().all()


def test_pairs_are_the_mean_confusions(comparison: list[RunFolder]) -> None:
    runs = [run for run in comparison if run.config.method.name == "alr"]
    found = pairs_of(runs).set_index(["true", "taken_for"])
    assert len(found) == 8 * 7
    stored = [run.load_residual_labels() for run in runs]
    expected = np.mean([labels.matrix()[0, 1] for labels in stored if labels is not None])
    assert found.loc["AT", "DE"]["residual"] == pytest.approx(expected)
    assert "residual" not in pairs_of(comparison[0])


def test_residual_labels_over_the_epochs(comparison: list[RunFolder]) -> None:
    run = next(run for run in comparison if run.config.method.name == "alr")
    found, stored = residuals_of(run), run.load_residual_labels()
    assert stored is not None
    assert found["epoch"].tolist() == stored.epochs.tolist()
    assert found["normalised_entropy"][0] == pytest.approx(1.0, abs=1e-6)
    assert found["rank_correlation"].tolist() == consistency(stored.labels).correlation.tolist()


def test_predictions_have_a_row_per_example(comparison: list[RunFolder]) -> None:
    run = comparison[0]
    assert run.result is not None
    for split in ("test", "validation"):
        found = predictions_of(run, split)
        assert found["correct"].mean() == pytest.approx(run.result["metrics"][split]["top1"])
        assert (found["correct"] == (found["label"] == found["predicted"])).all()


def test_what_is_not_there_is_refused(comparison: list[RunFolder], maker: Any, tmp_path: Any) -> None:
    with pytest.raises(RunError, match="There is no run in an empty list"):
        open_runs([])
    with pytest.raises(RunError, match="There is no run in "):
        metrics_of(tmp_path)
    with pytest.raises(RunError, match="keeps no predictions"):
        predictions_of(maker.figures("alr", 0, 0.5))
    with pytest.raises(RunError, match="has no residual labels; its method, baseline, learns none"):
        residuals_of(comparison[0])
    with pytest.raises(ValueError, match="split is 'train'; it must be test or validation"):
        predictions_of(comparison[0], "train")
    for one_run in (residuals_of, predictions_of):
        with pytest.raises(ValueError, match=rf"which holds 9 runs; {one_run.__name__} takes one of them"):
            one_run(comparison[0].path.parent)
