"""Label smoothing (SLR in the paper's tables)."""

from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_labels.losses.arguments import check_number
from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch
from adaptive_labels.losses.registry import register_method
from adaptive_labels.losses.targets import as_probabilities, cross_entropy


def smooth_labels(
    target: Tensor, num_classes: int, label_smoothing: float, over: str = "all", dtype: torch.dtype | None = None
) -> Tensor:
    r"""Label smoothing: move a share ε of the probability from the label to the other classes.

    .. math:: t' = (1-ε)\,t + ε/K \quad\text{(over all)}, \qquad t' = (1-ε)\,t + ε\,(1-t)/(K-1) \quad\text{(others)}

    Args:
        target: class indices (N,) or probabilities (N, K).
        num_classes: K.
        label_smoothing: ε in [0, 1].
        over: ``"all"`` spreads ε over all K classes as ``torch.nn.CrossEntropyLoss`` does; ``"others"`` over the K−1
            others, so that the label keeps exactly 1 − ε.
        dtype: of the result, see :func:`as_probabilities`.

    Returns:
        Probabilities (N, K).

    >>> smooth_labels(torch.tensor([0]), 4, 0.2).tolist()
    [[0.8500000238418579, 0.05000000074505806, 0.05000000074505806, 0.05000000074505806]]
    >>> [round(x, 4) for x in smooth_labels(torch.tensor([0]), 4, 0.3, over="others")[0].tolist()]
    [0.7, 0.1, 0.1, 0.1]

    Reference: Szegedy et al. 2016 (over all); the paper's section 3.2, "Combination with label smoothing" (its words
    read "over the erroneous classes").
    """
    probabilities = as_probabilities(target, num_classes, dtype)
    if over == "all":
        return (1 - label_smoothing) * probabilities + label_smoothing / num_classes
    return (1 - label_smoothing) * probabilities + label_smoothing * (1 - probabilities) / (num_classes - 1)


def hard_loss(logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    r"""L_hard: cross entropy with the label, or with the smoothed label (ALR-S).

    .. math:: L_{hard} = -\sum_i t'_i \log p_i, \qquad t' = \text{smooth_labels}(t, ε)

    Args:
        logits: (N, K).
        target: class indices (N,) or class probabilities (N, K).
        label_smoothing: ε in [0, 1]; 0 is plain cross entropy.

    Returns:
        (N,).

    >>> z, y = torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0])
    >>> hard_loss(z, y), hard_loss(z, y, label_smoothing=0.1)
    (tensor([0.1698]), tensor([0.3365]))

    Reference: the paper's section 3.2; the gradient is :func:`hard_loss_gradient`.
    """
    hard = cross_entropy(logits, target)
    if label_smoothing == 0.0:
        return hard
    return (1 - label_smoothing) * hard - label_smoothing * F.log_softmax(logits, dim=1).mean(1)


def hard_loss_gradient(logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    r"""The gradient of :func:`hard_loss` with respect to the logits: :math:`p_i - t'_i`.

    >>> hard_loss_gradient(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
    tensor([[-0.5000,  0.5000]])

    Reference: the paper's section 3.2, the equation after L_t.
    """
    return F.softmax(logits, dim=1) - smooth_labels(target, logits.shape[1], label_smoothing, dtype=logits.dtype)


@register_method(
    "slr", "label smoothing", main_option="label_smoothing", search=(0.02, 0.5), options={"label_smoothing": 0.1}
)
@final
class LabelSmoothing(Criterion):
    """Label smoothing (SLR in the paper's tables); see :func:`hard_loss`.

    Args:
        label_smoothing: ε in [0, 1].

    >>> LabelSmoothing(2)(torch.tensor([[2.0, 0.0]], requires_grad=True), torch.tensor([0])).detach()
    tensor(0.2269)
    """

    def __init__(self, num_classes: int, label_smoothing: float = 0.1, **common: Any) -> None:
        super().__init__(num_classes, **common)
        self.label_smoothing = check_number("label_smoothing", label_smoothing, 0, 1)
        self.torch_smoothing = self.label_smoothing

    def _terms(self, batch: Batch, world: int) -> Terms:
        hard = hard_loss(batch.logits, batch.target, self.label_smoothing)
        return Terms(hard, parts={"hard": hard})
