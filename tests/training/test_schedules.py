import warnings

import pytest
from hypothesis import given, strategies as st
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, MultiStepLR, OneCycleLR, SequentialLR
from training_parts import config_with

from adaptive_labels.lab.training.schedules import make_schedule

STEPS = 7


def torch_rates(make: type[LRScheduler], total: int, **options: object) -> list[float]:
    optimizer = SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    scheduler = make(optimizer, **options)
    rates = []
    for _ in range(total):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def ours(**changes: object) -> list[float]:
    config = config_with(**changes)
    schedule = make_schedule(config, STEPS)
    assert config.epochs is not None
    return [schedule(step) for step in range(config.epochs * STEPS)]


def test_constant() -> None:
    assert ours(schedule="constant", epochs=2) == [1.0] * 14


def test_linear_is_torchs() -> None:
    expected = torch_rates(LinearLR, 21, start_factor=1.0, end_factor=0.0, total_iters=21)
    assert ours(schedule="linear", epochs=3) == pytest.approx(expected)


def test_linear_after_a_warm_up_is_a_triangle() -> None:
    rates = ours(schedule="linear", warmup=1.0, epochs=3)
    assert rates == pytest.approx([*(step / 7 for step in range(1, 8)), *(1 - step / 14 for step in range(14))])


def test_cosine_is_torchs() -> None:
    assert ours(schedule="cosine", epochs=3) == pytest.approx(torch_rates(CosineAnnealingLR, 21, T_max=21))


def test_milestones_are_torchs() -> None:
    expected = torch_rates(MultiStepLR, 35, milestones=[14, 28], gamma=0.2)
    assert ours(schedule="step", milestones=(2.0, 4.0), gamma=0.2, epochs=5) == pytest.approx(expected)


@pytest.mark.parametrize(("warmup", "rise"), [(0.0, 0.3), (2.0, 14 / 70)])
def test_one_cycle_is_torchs(warmup: float, rise: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # torch counts the rise in steps as pct_start * total - 1, ours is whole steps.
        expected = torch_rates(
            OneCycleLR, 70, max_lr=1.0, total_steps=70, pct_start=(70 * rise + 1) / 70, cycle_momentum=False
        )
    assert ours(schedule="one-cycle", warmup=warmup, epochs=10) == pytest.approx(expected)


def test_warm_up_rises_to_one_and_the_rest_follows() -> None:
    rates = ours(schedule="linear", warmup=1.0, epochs=3)
    assert rates[:7] == pytest.approx([1 / 7, 2 / 7, 3 / 7, 4 / 7, 5 / 7, 6 / 7, 1])
    assert rates[7:] == pytest.approx([1 - step / 14 for step in range(14)])


def test_warm_up_into_cosine_is_torchs_sequence() -> None:
    optimizer = SGD(nn.Linear(1, 1).parameters(), lr=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = [LinearLR(optimizer, 1 / 7, 1.0, 6), CosineAnnealingLR(optimizer, T_max=14)]
        scheduler = SequentialLR(optimizer, parts, milestones=[7])
        rates = []
        for _ in range(21):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
    assert ours(schedule="cosine", warmup=1.0, epochs=3) == pytest.approx(rates)


@given(
    kind=st.sampled_from(["constant", "step", "cosine", "one-cycle", "linear"]),
    epochs=st.integers(1, 30),
    steps=st.integers(1, 50),
    warmup=st.floats(0, 1, exclude_max=True),
)
def test_every_factor_is_above_zero_and_at_most_one(kind: str, epochs: int, steps: int, warmup: float) -> None:
    config = config_with(schedule=kind, epochs=epochs, warmup=warmup * epochs * 0.99, milestones=(0.5, 3.0))
    schedule = make_schedule(config, steps)
    rates = [schedule(step) for step in range(epochs * steps)]
    assert all(0 < rate <= 1 for rate in rates)
    if kind != "step" and epochs * steps > 4:
        assert max(rates) > 0.5
