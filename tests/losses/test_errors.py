"""Bad input gets a sentence that names the argument, the value and what is allowed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.losses import (
    METHODS,
    Distillation,
    LabelSmoothingPlusPlus,
    LowRankAdaptiveLabelLoss,
    MutualLearning,
    TeacherFree,
    create_loss,
    find_method,
)

K = 4
Z = torch.zeros(3, K)
Y = torch.tensor([0, 1, 2])

CALLS: list[tuple[Any, Any, type[Exception], str]] = [
    (
        Z,
        torch.tensor([0, 7, 9]),
        ValueError,
        "target must be in [0, 3] or ignore_index (-100), got 7 at position 1 (2 such values)",
    ),
    (Z, torch.tensor([0, 1, -1]), ValueError, "got -1 at position 2 (1 such value)"),
    (Z, torch.tensor([0, K, 1]), ValueError, "got 4 at position 1 (1 such value)"),
    (torch.zeros(2, K, 3), torch.tensor([[0, 0, 0], [0, 5, 0]]), ValueError, "got 5 at position (1, 1)"),
    (torch.zeros(3, 7), Y, ValueError, "input has 7 classes in dimension 1 (shape (3, 7)), but num_classes is 4"),
    (torch.zeros(7), torch.tensor(0), ValueError, "input has 7 classes in dimension 0"),
    (torch.tensor(1.0), torch.tensor(0), ValueError, "got a scalar"),
    (Z.long(), Y, TypeError, "input must hold floating-point logits, got torch.int64"),
    ([[0.0] * K], Y, TypeError, "input must be a torch.Tensor, got list"),
    (Z, [0, 1, 2], TypeError, "target must be a torch.Tensor, got list"),
    (Z, Y[:2], ValueError, "target of class indices must have shape (3,) for input (3, 4), got (2,)"),
    (Z, Y.bool(), TypeError, "got torch.bool"),
    (Z, Y.float(), ValueError, "class indices must be integers: target.long()"),
    (Z, torch.zeros(3, K + 1), ValueError, "must have the shape of input (3, 4), got (3, 5)"),
    (Z, torch.ones(3, K, dtype=torch.long), ValueError, "multi-label"),
    (Z, torch.ones(3, K), ValueError, "target row 0 is not a distribution: it sums to 4"),
    (Z, torch.tensor([[0.5, 0.5, 0, 0], [1.5, -0.5, 0, 0], [1, 0, 0, 0]]), ValueError, "target row 1"),
    (Z, (Y, Y), TypeError, "must be (labels_a, labels_b, lam)"),
    (Z, (Y, Y.float(), 0.5), TypeError, "must be (labels_a, labels_b, lam)"),
    (Z, (Y, Y, 1.5), ValueError, "lam in (labels_a, labels_b, lam) must be in [0, 1]"),
    (Z, (Y, Y, torch.ones(2)), ValueError, "lam must be a number or have shape (3,), got (2,)"),
    (Z, (Y, Y[:2], 0.5), ValueError, "target of class indices must have shape (3,)"),
    (Z, (Y, torch.tensor([0, 7, 9]), 0.5), ValueError, "got 7 at position 1"),
    (Z, torch.full((3, K), float("nan")), ValueError, "target row 0 is not a distribution"),
]


@pytest.mark.parametrize(("logits", "target", "error", "message"), CALLS)
@pytest.mark.parametrize("name", ["alr", "baseline"])
@pytest.mark.parametrize("training", [True, False])
def test_calls(name: str, training: bool, logits: Any, target: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        create_loss(name, K).train(training)(logits, target)


def test_sample_weight() -> None:
    criterion = AdaptiveLabelLoss(K, update="optimizer")
    with pytest.raises(ValueError, match=re.escape("sample_weight must have shape (3,), got (2,)")):
        criterion(Z, Y, torch.ones(2))
    with pytest.raises(ValueError, match="sample_weight must be finite and at least 0"):
        criterion(Z, Y, torch.tensor([1.0, -1.0, 1.0]))
    with pytest.raises(TypeError, match=r"sample_weight must be a torch\.Tensor, got list"):
        criterion(Z, Y, [1.0, 1.0, 1.0])
    dense = torch.zeros(3, K, 2)
    each = AdaptiveLabelLoss(K, update="optimizer", reduction="none")(
        dense, torch.zeros(3, 2, dtype=torch.long), torch.tensor([0.0, 1, 2])
    )
    assert each.shape == (3, 2)
    assert torch.equal(each[0], torch.zeros(2))


CONSTRUCTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"num_classes": 1}, ValueError, "num_classes must be at least 2, got 1"),
    ({"num_classes": 2.0}, TypeError, "num_classes must be an int, got float"),
    ({"num_classes": True}, TypeError, "num_classes must be an int, got bool"),
    ({"label_smoothing": 1.5}, ValueError, "label_smoothing must be in [0, 1], got 1.5"),
    ({"label_smoothing": -0.1}, ValueError, "label_smoothing must be in [0, 1], got -0.1"),
    ({"label_smoothing": float("nan")}, ValueError, "label_smoothing must be in [0, 1], got nan"),
    ({"label_smoothing": "0.1"}, TypeError, "label_smoothing must be a number, got str"),
    ({"reduction": "avg"}, ValueError, "reduction must be one of 'mean', 'sum', 'none', got 'avg'"),
    ({"weight": torch.ones(3)}, ValueError, "weight must have shape (4,), got (3,)"),
    ({"weight": torch.tensor([1.0, -1, 1, 1])}, ValueError, "weight must be finite and at least 0 for every class"),
    ({"weight": [1.0] * 4}, TypeError, "weight must be a floating-point torch.Tensor of shape (4,), got list"),
    ({"weight": torch.ones(4).long()}, TypeError, "got torch.int64"),
    ({"residual_weight": "runing"}, ValueError, "must be 'running', 'waiting' or a number at least 0, got 'runing'"),
    ({"residual_weight": -1.0}, ValueError, "residual_weight must be finite and at least 0, got -1.0"),
    ({"attraction": float("inf")}, ValueError, "attraction must be finite, got inf"),
    ({"update": "none"}, ValueError, "update must be one of 'self', 'optimizer', 'frozen', got 'none'"),
    ({"residual_lr": -1, "update": "self"}, ValueError, "residual_lr must be finite and at least 0, got -1"),
    ({"initial_labels": torch.ones(4, 3)}, ValueError, "initial_labels must have shape (4, 4), got (4, 3)"),
    ({"initial_labels": -torch.ones(4, 4)}, ValueError, "initial_labels must be finite and at least 0"),
    ({"initial_labels": [[1.0]]}, TypeError, "initial_labels must be a torch.Tensor, got list"),
]


@pytest.mark.parametrize(("options", "error", "message"), CONSTRUCTIONS)
def test_constructions(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        AdaptiveLabelLoss(**{"num_classes": K, **options})


@pytest.mark.parametrize("rank", [0, 5, 2.0, True])
def test_ranks(rank: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"rank must be an int in [1, num_classes = 4], got {rank!r}")):
        LowRankAdaptiveLabelLoss(K, rank)
    with pytest.raises(TypeError, match="initial_labels needs the dense S"):
        LowRankAdaptiveLabelLoss(K, 2, initial_labels=torch.ones(K, K))


def test_numbers_of_numpy_are_numbers() -> None:
    assert AdaptiveLabelLoss(np.int64(K), np.float32(0.5)).label_smoothing == 0.5
    assert LabelSmoothingPlusPlus(K, np.float16(0.25)).mass == 0.25


def test_other_criteria() -> None:
    with pytest.raises(ValueError, match=re.escape("mass must be in (0, 1), got 0")):
        LabelSmoothingPlusPlus(K, 0)
    with pytest.raises(ValueError, match=re.escape("mass must be in (0, 1), got 1")):
        LabelSmoothingPlusPlus(K, 1)
    with pytest.raises(ValueError, match="temperature must be finite and above 0, got 0"):
        TeacherFree(K, temperature=0)
    for criterion in (Distillation(K), MutualLearning(K)):
        with pytest.raises(ValueError, match="needs the logits of a teacher or of peers"):
            criterion(Z, Y)
        with pytest.raises(ValueError, match="needs the logits of a teacher or of peers"):
            criterion(Z, Y, teacher_logits=[])
        with pytest.raises(
            ValueError, match=re.escape("teacher_logits must have the shape of input (3, 4), got (3, 5)")
        ):
            criterion(Z, Y, teacher_logits=torch.zeros(3, 5))
        with pytest.raises(TypeError, match="teacher_logits must hold floating-point logits"):
            criterion(Z, Y, teacher_logits=Z.long())
        criterion.eval()(Z, Y)
    with pytest.raises(ValueError, match="AdaptiveLabelLoss follows no teacher"):
        AdaptiveLabelLoss(K, update="optimizer")(Z, Y, teacher_logits=Z)


def test_registry_suggests_the_nearest_name() -> None:
    with pytest.raises(
        ValueError, match=r"unknown method 'arl'; did you mean alr\? \(the methods are baseline, slr, alr, alr-s,"
    ):
        find_method("arl")
    with pytest.raises(
        ValueError, match=r"unknown option 'label_smothing' of method 'alr'; did you mean label_smoothing\?"
    ):
        create_loss("alr", K, label_smothing=0.1)


@pytest.mark.parametrize(("name", "option"), [("complement-entropy", "alternate"), ("ols", "reset_missing")])
def test_options_that_are_true_or_false(name: str, option: str) -> None:
    create_loss(name, K, **{option: 0})
    with pytest.raises(ValueError, match=f"option '{option}' is 'no'; it must be true or false"):
        create_loss(name, K, **{option: "no"})


def test_class_names_of_most_confused() -> None:
    with pytest.raises(ValueError, match="class_names must have 4 entries, got 1"):
        AdaptiveLabelLoss(K, update="optimizer").most_confused(3, ["cat"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("classes", [10, 1000])
def test_probabilities_of_16_bits_are_distributions(dtype: torch.dtype, classes: int) -> None:
    """Their sums miss 1 by more than float32 would."""
    target = torch.rand(64, classes).softmax(1).to(dtype)
    AdaptiveLabelLoss(classes)(torch.zeros(64, classes), target)
    with pytest.raises(ValueError, match="is not a distribution"):
        AdaptiveLabelLoss(classes)(torch.zeros(64, classes), target * 1.1)


@pytest.mark.parametrize("training", [True, False])
def test_probabilities_have_no_index_to_ignore(training: bool) -> None:
    with pytest.raises(ValueError, match="ignore_index=1 is for class indices"):
        AdaptiveLabelLoss(K, update="optimizer", ignore_index=1).train(training)(Z, torch.full((3, K), 0.25))


def test_any_integer_is_a_number_of_classes() -> None:
    criterion = LowRankAdaptiveLabelLoss(np.int64(3), np.int32(2))
    assert type(criterion.num_classes) is int
    assert repr(criterion).splitlines()[1] == "  3, rank=2"


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("soft", [False, True])
def test_the_meta_device(name: str, soft: bool) -> None:
    """Shapes without memory: no value is looked at."""
    with torch.device("meta"):
        criterion = create_loss(name, K, weight=torch.ones(K))
        z, teacher_logits = torch.zeros(3, K, requires_grad=True), torch.zeros(3, K)
        target = torch.zeros(3, K) if soft else torch.zeros(3, dtype=torch.long)
    for _ in range(2):
        criterion(z, target, teacher_logits=teacher_logits if criterion.needs_teacher_logits else None).backward()
    criterion.epoch_end()
    assert z.grad is not None
    assert criterion.eval()(z, target).is_meta


@pytest.mark.parametrize("index", [None, 1.5, "x", True])
def test_what_is_ignored_is_a_whole_number(index: Any) -> None:
    with pytest.raises(TypeError, match=f"ignore_index must be an int, got {type(index).__name__}"):
        create_loss("baseline", K, ignore_index=index)


@pytest.mark.parametrize("rows", [-1, [-1], [K], [0.0], [True], []])
def test_rows_of_residual_labels_are_classes(rows: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"rows must be classes in [0, 3], got {rows!r}")):
        AdaptiveLabelLoss(K, update="optimizer").residual_labels(rows)


@pytest.mark.parametrize(
    ("targets", "error", "message"),
    [
        ([[0, 1]], TypeError, "targets must hold one torch.Tensor per micro-batch, got list"),
        ([Y, torch.tensor([0, K])], ValueError, "target must be in [0, 3] or ignore_index (-100), got 4 at position 1"),
        ([Y, torch.tensor([-1])], ValueError, "got -1 at position 0"),
        ([torch.ones(2, K + 1)], ValueError, "targets has class probabilities of 5 classes, not 4"),
    ],
)
def test_targets_of_an_accumulated_step(targets: Any, error: type[Exception], message: str) -> None:
    criterion = AdaptiveLabelLoss(K, update="optimizer")
    with pytest.raises(error, match=re.escape(message)), criterion.accumulation(targets):
        pass
    for _ in range(2):  # the criterion is not left in the context: each call is a step, which counts the one before
        criterion(Z.clone().requires_grad_(), Y).backward()
    assert criterion.accuracy.running > 0


@pytest.mark.parametrize("name", ["alr", "baseline"])
def test_samples_of_an_accumulated_step_have_no_weights(name: str) -> None:
    criterion = create_loss(name, K)
    message = r"sample_weight: accumulation\(targets\) counts every sample once"
    with criterion.accumulation([Y]), pytest.raises(ValueError, match=message):
        criterion(Z.clone().requires_grad_(), Y, torch.tensor([1.0, 2.0, 3.0]))
