"""Cross entropy: the baseline."""

from typing import final

from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch
from adaptive_labels.losses.registry import register_method
from adaptive_labels.losses.targets import cross_entropy


@register_method("baseline", "plain cross entropy")
@final
class CrossEntropy(Criterion):
    """Plain cross entropy: the baseline. With class probabilities as targets it is label refinery's loss, too.

    >>> CrossEntropy(2)(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(0.1269)
    """

    torch_smoothing = 0.0

    def _terms(self, batch: Batch, world: int) -> Terms:
        hard = cross_entropy(batch.logits, batch.target)
        return Terms(hard, parts={"hard": hard})
