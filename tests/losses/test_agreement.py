"""Every criterion against its slow reference: values and gradients, in float64, over every combination of options."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from torch import Tensor

import reference as R
from adaptive_labels.losses import METHODS, AdaptiveLabelLoss, create_loss

K = 3
TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}

FORMS = ("index", "one-hot", "pair", "mixture", "dense", "dense-pair", "dense-mixture")
COMMON = list(itertools.product((False, True), (False, True), (False, True), ("mean", "sum", "none"), FORMS))

# Every method, with the options that change its formula.
CASES: list[tuple[str, dict[str, Any]]] = [
    ("baseline", {}),
    ("label-refinery", {}),
    ("slr", {}),
    ("slr", {"label_smoothing": 0.3}),
    ("slr", {"label_smoothing": 0.0}),
    ("confidence-penalty", {"strength": 0.3}),
    ("max-sup", {"strength": 0.2}),
    ("complement-entropy", {"strength": 0.7}),
    ("tf-kd", {"alpha": 0.4, "temperature": 3.0, "correct": 0.9}),
    ("tf-kd", {"alpha": 0.4, "temperature": 3.0, "temper_student": True}),
    ("kd", {"alpha": 0.3, "temperature": 2.0}),
    ("kd", {"alpha": 0.3, "temperature": 2.0, "temper_student": False}),
    ("kd", {"alpha": 0.3, "temperature": 2.0, "scale": False}),
    ("dml", {"strength": 0.8}),
    ("ols", {"hard_share": 0.3}),
    ("ls++", {"mass": 0.2}),
    ("alr", {"residual_weight": 0.7}),
    ("alr", {"residual_weight": 0.7, "attraction": -2.0}),
    ("alr", {"attraction": 0.0}),
    ("alr-s", {}),
    ("alr-wait", {"label_smoothing": 0.1, "attraction": -2.0}),
]
REFERENCES = {
    "baseline": R.baseline,
    "label-refinery": R.baseline,
    "slr": R.label_smoothing,
    "confidence-penalty": R.confidence,
    "max-sup": R.max_sup,
    "complement-entropy": R.complement,
    "tf-kd": R.teacher_free,
    "kd": R.distillation,
    "dml": R.mutual,
}


def test_every_registered_method_has_a_case() -> None:
    assert set(METHODS) - {"disturb-label"} == {name for name, _ in CASES}  # disturb-label: see test_methods.py
    assert METHODS


def make_batch(form: str, ignored: bool, generator: torch.Generator) -> tuple[Tensor, Any]:
    shape = (2, K, 2) if form.startswith("dense") else (4, K)
    z = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    if form.endswith("mixture"):
        return z, torch.rand(shape, generator=generator, dtype=torch.float64).softmax(1)
    labels = torch.randint(K, shape[:1] + shape[2:], generator=generator)
    if form == "one-hot":
        return z, torch.nn.functional.one_hot(labels, K).double()
    if ignored:
        labels.view(-1)[0] = 0  # something must be left for the reference to differentiate
        labels.view(-1)[1] = 2
    if form.endswith("pair"):
        return z, (labels, torch.where(labels == 2, labels, 1 - labels), torch.rand(len(z), generator=generator))
    return z, labels


def probabilities_of(target: Any, ignore_index: int) -> tuple[Tensor, Tensor]:
    """What a target means: class probabilities, and which samples count."""
    if not isinstance(target, tuple):
        return target, torch.ones(())
    first, second, lam = target
    lam = lam.double().reshape(-1, *[1] * (first.dim() - 1))
    kept = (first != ignore_index).double()
    full = [torch.nn.functional.one_hot(labels, K).double().movedim(-1, 1) for labels in (first, second)]
    return lam.unsqueeze(1) * full[0] + (1 - lam).unsqueeze(1) * full[1], kept


def build(name: str, options: dict[str, Any], generator: torch.Generator, **common: Any) -> torch.nn.Module:
    update = {"update": "optimizer"} if name.startswith("alr") else {}
    criterion = create_loss(name, K, **update, **options, **common).double()
    with torch.no_grad():
        if hasattr(criterion, "residual_logits"):
            criterion.residual_logits.copy_(torch.randn(K, K - 1, generator=generator, dtype=torch.float64))
        if name == "ols":
            criterion.table.copy_(torch.rand(K, K, generator=generator, dtype=torch.float64).softmax(1))
        if isinstance(criterion, AdaptiveLabelLoss):
            criterion.accuracy.running.fill_(0.4)
    return criterion


def reference_loss(name: str, options: dict[str, Any], own: Tensor | None, table: Tensor | None) -> R.Loss:
    if name in REFERENCES:
        return REFERENCES[name](**options)
    if name == "ols":
        return R.online(table, **options)
    if name == "ls++":
        return R.plus_plus(own, **options)
    options = {**METHODS[name].options, **options}
    weight = options.pop("residual_weight", "running")
    a = {"running": 0.6, "waiting": 0.4}.get(weight, weight)
    return R.adaptive(own, a, **options)


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)])
def test_value_and_gradients_equal_the_reference(name: str, options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(len(str(options)))
    for weighted, ignored, sampled, reduction, form in random.Random(name).sample(COMMON, 42):
        z, target = make_batch(form, ignored, generator)
        soft = isinstance(target, Tensor) and target.is_floating_point()
        ignore_index = 2 if ignored and not soft else -100
        weight = torch.rand(K, generator=generator, dtype=torch.float64) + 0.1 if weighted else None
        samples = (z.shape[0], *z.shape[2:])
        sample_weight = torch.rand(samples, generator=generator, dtype=torch.float64) if sampled else None
        teacher_logits = [torch.randn(z.shape, generator=generator, dtype=torch.float64) for _ in range(2)]
        teacher_logits = teacher_logits if name in ("kd", "dml") else []

        criterion = build(name, options, generator, weight=weight, ignore_index=ignore_index, reduction=reduction)
        ours_z = z.clone().requires_grad_()
        ours = criterion(ours_z, target, sample_weight, teacher_logits or None)
        if isinstance(target, tuple):  # class weights are those of the mixture, and ignored samples have no weight
            target, kept = probabilities_of(target, ignore_index)
            sample_weight = kept if sample_weight is None else sample_weight * kept
            ignore_index = -100

        slow_z = z.clone().requires_grad_()
        own = getattr(criterion, "residual_logits", None)
        slow_own = own.detach().clone().requires_grad_() if own is not None else None
        batch = R.samples(slow_z, target, weight, ignore_index, sample_weight, teacher_logits)
        loss = reference_loss(name, options, slow_own, getattr(criterion, "table", None))
        slow = R.reduce(batch, loss, reduction)

        where = f"weight={weighted} ignore={ignored} sample_weight={sampled} {reduction} {form}"
        torch.testing.assert_close(ours.reshape(slow.shape), slow, **TOLERANCE, msg=lambda m, w=where: f"{w}: {m}")
        upstream = torch.randn(ours.shape, generator=generator, dtype=torch.float64)  # not one
        (ours * upstream).sum().backward()
        (slow * upstream.reshape(slow.shape)).sum().backward()
        torch.testing.assert_close(ours_z.grad, slow_z.grad, **TOLERANCE, msg=lambda m, w=where: f"{w}: {m}")
        if slow_own is not None:
            torch.testing.assert_close(own.grad, slow_own.grad, **TOLERANCE, msg=lambda m, w=where: f"{w} S: {m}")


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)])
@pytest.mark.parametrize("mode", ["eval", "no_grad"])
def test_otherwise_it_is_plain_cross_entropy_and_no_state_changes(name: str, options: dict, mode: str) -> None:
    generator = torch.Generator().manual_seed(3)
    z, target = make_batch("index", True, generator)
    weight = torch.rand(K, generator=generator, dtype=torch.float64) + 0.1
    criterion = build(name, options, generator, weight=weight, ignore_index=2)
    state = {key: value.clone() for key, value in criterion.state_dict().items()}
    if mode == "eval":
        loss = criterion.eval()(z, target)
    else:
        with torch.no_grad():
            loss = criterion(z, target)
    expected = torch.nn.functional.cross_entropy(z, target, weight=weight, ignore_index=2)
    torch.testing.assert_close(loss, expected, **TOLERANCE)
    for key, value in criterion.state_dict().items():
        assert torch.equal(value, state[key]), key


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)])
def test_an_index_and_its_one_hot_row_are_the_same(name: str, options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(5)
    z, target = make_batch("index", False, generator)
    criterion = build(name, options, generator, weight=torch.tensor([0.5, 1.0, 2.0]).double(), reduction="none")
    teacher_logits = (
        torch.randn(z.shape, generator=generator, dtype=torch.float64) if criterion.needs_teacher_logits else None
    )
    z.requires_grad_()
    if isinstance(criterion, AdaptiveLabelLoss):  # "running" moves between calls
        criterion._accumulating = True
    by_index = criterion(z, target, teacher_logits=teacher_logits)
    by_row = criterion(z, torch.nn.functional.one_hot(target, K).double(), teacher_logits=teacher_logits)
    torch.testing.assert_close(by_index, by_row, **TOLERANCE)


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)])
def test_a_sample_weight_of_two_is_the_sample_twice(name: str, options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(6)
    z, target = make_batch("index", False, generator)
    twice = torch.tensor([2.0, 1, 0, 2], dtype=torch.float64)
    order = torch.tensor([0, 0, 1, 3, 3])
    teacher_logits = torch.randn(z.shape, generator=generator, dtype=torch.float64)
    losses = []
    for inputs, labels, weights, peer in (
        (z, target, twice, teacher_logits),
        (z[order], target[order], None, teacher_logits[order]),
    ):
        criterion = build(name, options, torch.Generator().manual_seed(1))
        inputs = inputs.clone().requires_grad_()
        losses.append(criterion(inputs, labels, weights, peer if criterion.needs_teacher_logits else None))
    torch.testing.assert_close(losses[0], losses[1], **TOLERANCE)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("slr", {"label_smoothing": 0.0}),
        ("disturb-label", {"disturbance": 0.0}),
        ("confidence-penalty", {"strength": 0.0}),
        ("max-sup", {"strength": 0.0}),
        ("complement-entropy", {"strength": 0.0}),
        ("tf-kd", {"alpha": 0.0}),
        ("kd", {"alpha": 0.0}),
        ("dml", {"strength": 0.0}),
        ("ols", {"hard_share": 1.0}),
        ("alr", {"residual_weight": 0.0, "update": "frozen"}),
    ],
)
def test_strength_zero_is_cross_entropy(name: str, options: dict[str, Any]) -> None:
    z = torch.randn(5, K, dtype=torch.float64, requires_grad=True)
    y = torch.randint(K, (5,))
    criterion = create_loss(name, K, **options).double()
    loss = criterion(z, y, teacher_logits=torch.randn(5, K).double() if criterion.needs_teacher_logits else None)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(z, y), **TOLERANCE)
