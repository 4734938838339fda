"""Never NaN or Inf: shapes, extreme logits, ties, certainty, half precision. 10,000 cases in `make test-all`."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from adaptive_labels.losses import METHODS, create_loss

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
# Logits of a row: as a network gives them, far apart, tied, and certain of one class.
VALUES = st.one_of(
    st.floats(-10, 10, width=32),
    st.sampled_from([0.0, 1e4, -1e4, 88.0, -104.0, 1e-7, 30.0, 6e4]),
)
VARIANTS = {
    "alr": [{}, {"update": "optimizer"}, {"attraction": -8.0}, {"residual_lr": 10.0}],
}
METHOD_CASES = [(name, options) for name in METHODS for options in VARIANTS.get(name, [{}])]


@st.composite
def cases(draw: st.DrawFn) -> tuple:
    name, options = draw(st.sampled_from(METHOD_CASES))
    n, k = draw(st.integers(0, 5)), draw(st.integers(2, 6))
    dense = draw(st.integers(0, 2))
    shape = (n, k, dense) if dense else (n, k)
    count = n * k * max(dense, 1)
    values = draw(st.lists(VALUES, min_size=count, max_size=count))
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    z = torch.tensor(values, dtype=torch.float64).reshape(shape).to(DTYPES[dtype])
    mixed, ignored = draw(st.booleans()), draw(st.booleans())
    seed = draw(st.integers(0, 2**16))
    reduction = draw(st.sampled_from(["mean", "sum", "none"]))
    return name, options, z, mixed, ignored, seed, reduction


def check(case: tuple) -> None:
    name, options, z, mixed, ignored, seed, reduction = case
    generator = torch.Generator().manual_seed(seed)
    k = z.shape[1]
    if mixed:
        y = torch.zeros(z.shape)
        for _ in range(2):  # two labels, as mixup has them
            labels = torch.randint(k, z.shape[:1] + z.shape[2:], generator=generator)
            y += 0.5 * torch.nn.functional.one_hot(labels, k).movedim(-1, 1)
    else:
        y = torch.randint(k, z.shape[:1] + z.shape[2:], generator=generator)
        if ignored and y.numel():
            y.view(-1)[0] = -100
    criterion = create_loss(name, k, reduction=reduction, weight=torch.rand(k, generator=generator), **options)
    learned = [p for name, p in criterion.state_dict(keep_vars=True).items() if "residual_logits" in name and p.numel()]
    with torch.no_grad():
        for parameter in learned:
            parameter.normal_(std=20.0, generator=generator)
    z = z.requires_grad_()
    for _ in range(2):
        loss = criterion(z, y, teacher_logits=z.detach().flip(0) if criterion.needs_teacher_logits else None)
        loss.sum().backward()
    criterion.epoch_end()
    assert bool(torch.isfinite(loss).all()), loss
    assert bool(torch.isfinite(z.grad).all()), z.grad
    for parameter in learned:
        assert parameter.grad is None or bool(torch.isfinite(parameter.grad).all())
    for key, value in criterion.state_dict().items():
        assert bool(torch.isfinite(value).all()), key
    for key, part in criterion.parts.items():
        assert bool(torch.isfinite(part)), key
    assert bool(torch.isfinite(criterion.eval()(z, y)).all())


SUPPRESSED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@pytest.mark.filterwarnings("ignore:AdaptiveLabelLoss")
@settings(max_examples=400, deadline=None, suppress_health_check=SUPPRESSED)
@given(cases())
def test_always_finite(case: tuple) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:AdaptiveLabelLoss")
@settings(max_examples=10_000, deadline=None, suppress_health_check=SUPPRESSED)
@given(cases())
def test_always_finite_in_ten_thousand_cases(case: tuple) -> None:
    check(case)


@pytest.mark.parametrize("mixed", [False, True])
def test_residual_probabilities_survive_certainty(mixed: bool) -> None:
    """With p_y = 1 to the last bit, p_i / (1 − p_y) would be 0/0; the gradient must still be p_res − q_res."""
    z = torch.tensor([[200.0, 1.0, 0.0]], requires_grad=True)
    y = torch.tensor([[1.0, 0.0, 0.0]]) if mixed else torch.tensor([0])
    criterion = create_loss("alr", 3, residual_weight=1.0, update="optimizer")
    criterion(z, y).backward()
    p = torch.tensor([1.0, 0.0]).softmax(0)
    torch.testing.assert_close(z.grad[0], torch.tensor([0.0, *(p - 0.5).tolist()]))
    torch.testing.assert_close(criterion.residual_logits.grad[0], 0.5 - p)
