"""Deep mutual learning: networks learn from each other."""

from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_labels.losses.arguments import check_number
from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch
from adaptive_labels.losses.registry import register_method
from adaptive_labels.losses.targets import cross_entropy


def mutual_learning_kl(logits: Tensor, peer_logits: Tensor) -> Tensor:
    r"""Deep mutual learning: the divergence of a network's prediction from its peer's.

    .. math:: KL(p^{peer} \| p) = \sum_i p^{peer}_i (\log p^{peer}_i - \log p_i)

    Args:
        logits: of the network that learns, (N, K).
        peer_logits: of the peer, (N, K); no gradient reaches it.

    Returns:
        (N,), each at least 0.

    >>> import torch
    >>> mutual_learning_kl(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([0.1109])

    Reference: Zhang et al. 2018, equation 4.
    """
    log_peer = F.log_softmax(peer_logits.detach(), dim=1)
    return (log_peer.exp() * (log_peer - F.log_softmax(logits, dim=1))).sum(1)


@register_method(
    "dml", "deep mutual learning with a peer", main_option="strength", search=(0.1, 2.0), learns_from="peers"
)
@final
class MutualLearning(Criterion):
    """The loss of one network in deep mutual learning; the call needs the peers' logits as ``teacher_logits``.

    Cross entropy plus the mean of KL(peer ‖ network) over the peers; see :func:`mutual_learning_kl`.

    Args:
        strength: the weight of the divergence, ≥ 0; 1 in the original.
    """

    needs_teacher_logits = True

    def __init__(self, num_classes: int, strength: float = 1.0, **common: Any) -> None:
        super().__init__(num_classes, **common)
        self.strength = check_number("strength", strength, 0)

    def _terms(self, batch: Batch, world: int) -> Terms:
        hard = cross_entropy(batch.logits, batch.target)
        divergence = torch.stack([mutual_learning_kl(batch.logits, peer) for peer in batch.teacher_logits]).mean(0)
        return Terms(hard + self.strength * divergence, parts={"hard": hard, "divergence": divergence})
