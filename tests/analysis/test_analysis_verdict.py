import shutil
from typing import Any

import numpy as np
import pytest

from adaptive_labels.lab.analysis.records import group_records, read_run_records
from adaptive_labels.lab.analysis.verdict import Verdict, verdict
from adaptive_labels.lab.runs import CANDIDATES, RunFolder, RunLock, write_choice
from adaptive_labels.lab.runs.arrays import save_predictions, save_residual_labels
from run_maker import sealed_again


def verdict_of(runs: list[RunFolder]) -> Verdict:
    (group,) = group_records(read_run_records(runs))
    found = verdict(group)
    assert len(found.headline.split()) <= 25
    assert len(found.bullets) <= 3
    assert "nan" not in str(found).lower()
    return found


def of_figures(maker: Any, **by_method: tuple[list[float], float | None]) -> Verdict:
    return verdict_of([
        maker.figures(method.replace("_", "-"), seed, value, validation)
        for method, (values, validation) in by_method.items()
        for seed, value in enumerate(values)
    ])  # fmt: skip


FEW = "Limits: 3 seeds are few: rerun with --seeds 5."
LOW, MIDDLE, HIGH = [0.550, 0.555, 0.552], [0.560, 0.551, 0.565], [0.571, 0.576, 0.574]


def test_a_clear_gain(maker: Any) -> None:
    # Differences 2.1, 2.1, 2.2 points from the baseline; 1.1, 2.5, 0.9 from slr: mean 1.5, std 0.872, interval
    # ± 4.3027 · 0.872 / √3 = 2.165.
    found = of_figures(maker, baseline=(LOW, 0.5), slr=(MIDDLE, 0.55), alr=(HIGH, 0.6))
    assert str(found).splitlines() == [
        "alr is best on validation: 57.4 ± 0.3% on test, 2.1 points above baseline, more than noise "
        "(p < 0.001, 3 seeds).",
        "- Against label smoothing: 1.5 points above slr, within noise (95% interval −0.7 to +3.7, p = 0.097).",
        f"- {FEW}",
    ]


def test_it_is_chosen_on_validation_alone(maker: Any) -> None:
    found = of_figures(
        maker, baseline=([0.5, 0.52, 0.51], 0.5), slr=([0.9, 0.91, 0.92], 0.6), alr=([0.51, 0.5, 0.53], 0.7)
    )
    assert found.headline == (
        "alr is best on validation: 51.3 ± 1.5% on test, 0.3 points above baseline, within noise (p = 0.81, 3 seeds)."
    )
    assert found.bullets[0].startswith(
        "Against label smoothing: 39.7 points below slr, more than noise (95% interval −"
    )


def test_a_significant_loss_is_said(maker: Any) -> None:
    found = of_figures(maker, baseline=(HIGH, 0.5), alr=(LOW, 0.6))
    assert "2.1 points below baseline, more than noise (p < 0.001, 3 seeds)." in found.headline


@pytest.mark.parametrize(
    ("by_method", "words"),
    [
        ({}, "No run has finished yet, so there is nothing to compare."),
        ({"alr": ([0.5], 0.5)}, "alr reaches 50.0% on test (1 seed); there is no other method to compare with."),
        ({"slr": ([0.5], 0.5), "alr": ([0.6], 0.6)}, "alr is best of 2 methods on validation: 60.0% on test, with no "
         "baseline to compare with."),
        ({"baseline": ([0.5], 0.5), "alr": ([0.6], 0.6)}, "60.0% on test, 10.0 points above baseline (one seed: no "
         "test possible)."),
        ({"baseline": ([0.5], 0.5), "alr": ([0.5], 0.6)}, "50.0% on test, level with baseline (one seed: no test"),
        ({"baseline": ([0.5, 0.5], 0.5), "alr": ([0.5, 0.5], 0.6)}, "level with baseline, within noise (p = 1.00, 2 s"),
        ({"baseline": ([0.5], 0.7), "alr": ([0.6], 0.65)}, "The baseline leads on validation: 50.0% on test; alr is "
         "10.0 points above (one seed: no test possible)."),
        ({"baseline": ([0.5], 0.7), "alr": ([0.5], 0.7)}, "The baseline leads on validation: 50.0% on test; alr is "
         "level (one seed: no test possible)."),
        ({"baseline": ([0.5], None), "alr": ([0.6], 0.7)}, "No method is named best: baseline without validation acc"),
        ({"baseline": ([0.5, 0.6], 0.5), "alr": ([0.6, 0.7, 0.9], 0.6)}, "10.0 points above baseline (the same "
         "difference on every seed: no t test possible)."),
    ],
)  # fmt: skip
def test_every_other_case(maker: Any, by_method: Any, words: str) -> None:
    if by_method:
        assert words in str(of_figures(maker, **by_method))
    else:
        run = maker.create("alr", 0)
        with RunLock(run.path):
            assert str(verdict_of([run])) == words


ACCURACIES = {"baseline": (0.500, 0.502, 0.501, 0.503, 0.499), "alr": (0.503, 0.501, 0.502, 0.501, 0.505)}


def of_likelihood(maker: Any, nll: float, top1: tuple[float, ...], validation: float = 0.6) -> Verdict:
    """ALR's test NLL is so much above the baseline's 1.2, up to a little that differs from seed to seed."""
    runs = []
    for method, values, there, more in (
        ("baseline", ACCURACIES["baseline"], 0.5, 0.0),
        ("alr", top1, validation, nll),
    ):
        for seed, value in enumerate(values):
            test = {"top1": value, "nll": 1.2 + more + 0.001 * ((seed + len(method)) % 3)}
            runs.append(maker.finish(maker.create(method, seed), {"test": test, "validation": {"top1": there}}))
    return verdict_of(runs)


@pytest.mark.parametrize(("nll", "words"), [
    (-0.05, "within noise, with better likelihood (NLL 1.15, not 1.20, p < 0.001)."),
    (0.05, "within noise, with worse likelihood (NLL 1.25, not 1.20, p < 0.001)."),
    (-0.003, "within noise (p = 0.38, 5 seeds)."),  # significant, but 1.20 in both
    (0.0, "within noise (p = 0.38, 5 seeds)."),
])  # fmt: skip
def test_likelihood_is_said_where_accuracy_is_within_noise(maker: Any, nll: float, words: str) -> None:
    found = of_likelihood(maker, nll, ACCURACIES["alr"])
    figure = "50.2%" if abs(nll) > 0.01 else "50.2 ± 0.2%"
    assert str(found) == f"alr is best on validation: {figure} on test, 0.1 points above baseline, {words}"


@pytest.mark.parametrize(("nll", "limits"), [
    (0.05, ("Limits: alr has worse likelihood (NLL 1.25, not 1.20, p < 0.001).",)), (-0.05, ()),
])  # fmt: skip
def test_a_gain_in_accuracy_comes_first_and_worse_likelihood_limits_it(maker: Any, nll: float, limits: Any) -> None:
    found = of_likelihood(maker, nll, (0.553, 0.551, 0.552, 0.551, 0.555))
    assert "5.1 points above baseline, more than noise (p < 0.001, 5 seeds)." in found.headline
    assert found.bullets == limits


def test_likelihood_of_the_next_method_where_the_baseline_leads(maker: Any) -> None:
    assert str(of_likelihood(maker, -0.05, ACCURACIES["alr"], validation=0.4)) == (
        "The baseline leads on validation: 50.1% on test; alr is 0.1 points above, within noise, with better "
        "likelihood (NLL 1.15, not 1.20, p < 0.001)."
    )


def test_few_seeds_limit_it_where_the_baseline_leads(maker: Any) -> None:
    assert of_figures(maker, baseline=(LOW, 0.7), alr=(HIGH, 0.6)).bullets == (FEW,)


def test_of_equal_accuracies_on_validation_its_likelihood_decides(maker: Any) -> None:
    runs = []
    for method, nll in (("baseline", 1.3), ("alr", 1.1), ("slr", 1.2)):
        metrics = {"test": {"top1": 0.5}, "validation": {"top1": 0.7, "nll": nll}}
        runs.append(maker.finish(maker.create(method, 0), metrics))
    assert verdict_of(runs).headline.startswith("alr is best on validation: ")


@pytest.mark.parametrize("validation", [0.9, 0.7])
def test_what_limits_it(maker: Any, validation: float) -> None:
    """A class that is never found is said of the best method, be it the baseline."""
    runs = []
    for method, there in (("baseline", 0.8), ("alr", validation)):
        run = maker.create(method, 0)
        metrics = {"test": {"top1": 0.8, "worst_class": 0.0}, "validation": {"top1": there}}
        runs.append(maker.finish(run, metrics, parameters={"network": 1000, "criterion": 2}))
    (limits,) = [bullet for bullet in verdict_of(runs).bullets if bullet.startswith("Limits: ")]
    assert ("alr never finds at least one class" in limits) == (validation >= 0.8)
    assert ("baseline never finds at least one class" in limits) == (validation <= 0.8)
    assert ("with two classes ALR is its L_hard" in limits) == (validation >= 0.8)


def test_flat_residual_labels_limit_it(maker: Any) -> None:
    run = maker.whole("alr", 0, classes=list("abc"))
    assert "flat" not in str(verdict_of([run]))
    (run.path / "residual_labels.npz").unlink()
    save_residual_labels(run.path / "residual_labels.npz", [4], (1 - np.eye(3))[None] / 2, list("abc"))
    sealed_again(run.path)
    assert "the residual labels of alr are nearly flat" in str(verdict_of([run]))


def test_a_plain_classifier_is_said_only_beyond_the_noise_of_the_test_split(maker: Any) -> None:
    """A linear model that was tried before: its run is in the folder of the candidates."""
    run = maker.whole("alr", 0, classes=list("abcd"))
    stored = run.load_predictions()
    predicted, labels = stored.test_logits.argmax(axis=1), stored.test_labels
    assert (predicted != labels).any()
    plain_run = run.path.parent / CANDIDATES / "plain"
    shutil.copytree(run.path, plain_run)
    write_choice(run.path.parent, run.config, {"tried": [
        {"model": "fasttext", "run": "other", "validation_top1": 0.9, "seconds": 1.0},
        {"model": "linear", "run": "plain", "validation_top1": 0.8, "seconds": 1.0},
    ]})  # fmt: skip

    def plain(changed: int, to: Any, truth: Any = labels) -> str:
        given = predicted.copy()
        given[:changed] = to[:changed]
        arrays = {"test_logits": np.eye(4)[given], "test_labels": truth}
        arrays |= {"validation_logits": stored.validation_logits, "validation_labels": stored.validation_labels}
        save_predictions(plain_run / "predictions.npz", classes=list("abcd"), **arrays)
        sealed_again(plain_run)
        return " ".join(verdict_of([run]).bullets)

    assert "plain" not in plain(0, labels)
    assert "plain" not in plain(3, labels)  # ahead, within noise
    ahead = plain(300, labels)
    assert "A plain classifier is " in ahead
    assert "points ahead of alr on test, more than noise (95% interval over test examples −" in ahead
    assert "though not on validation: try --model linear." in ahead
    assert "points above, more than noise (95% interval over test examples +" in plain(300, (labels + 1) % 4)
    assert "plain" not in plain(300, labels, (labels + 1) % 4)  # of other examples
