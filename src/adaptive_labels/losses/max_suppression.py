"""MaxSup: the largest logit is suppressed."""

from typing import Any, final

from torch import Tensor

from adaptive_labels.losses.arguments import check_number
from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch
from adaptive_labels.losses.registry import register_method
from adaptive_labels.losses.targets import cross_entropy


def max_suppression(logits: Tensor) -> Tensor:
    r"""MaxSup's penalty, :math:`\max_i z_i - \frac1K \sum_i z_i`: to be added with a weight α.

    Label smoothing is equivalent to the same penalty on the *true* logit, which strengthens wrong predictions. MaxSup
    penalises the largest logit, whether it is right or wrong.

    Returns:
        (N,), at least 0.

    >>> max_suppression(torch.tensor([[3.0, 0.0, 0.0]]))
    tensor([2.])

    Reference: Zhou et al. 2025 (MaxSup), equation 8.
    """
    # amax shares the gradient evenly among ties, so that equal logits stay equal.
    return logits.amax(1) - logits.mean(1)


@register_method("max-sup", "the largest logit suppressed", main_option="strength", search=(0.02, 0.5))
@final
class MaxSup(Criterion):
    """Cross entropy plus α times the largest logit above the mean; see :func:`max_suppression`.

    Args:
        strength: α ≥ 0, the same throughout; the authors' recipe raises it from 0.1 to 0.2 over the training.
    """

    def __init__(self, num_classes: int, strength: float = 0.1, **common: Any) -> None:
        super().__init__(num_classes, **common)
        self.strength = check_number("strength", strength, 0)

    def _terms(self, batch: Batch, world: int) -> Terms:
        hard = cross_entropy(batch.logits, batch.target)
        penalty = max_suppression(batch.logits)
        return Terms(hard + self.strength * penalty, parts={"hard": hard, "penalty": penalty})
