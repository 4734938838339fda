"""The frame that all criteria share: arguments, modes, reduction, and what changes when several processes train."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from adaptive_labels.losses.arguments import check_choice
from adaptive_labels.losses.autograd import when_trained
from adaptive_labels.losses.batch import (
    REDUCTIONS,
    Batch,
    WholeStep,
    are_classes,
    check_class_weight,
    check_shapes,
    count_step,
    every_process,
    full_precision,
    over,
    prepare,
)
from adaptive_labels.losses.targets import cross_entropy


@dataclass
class Terms:
    """A criterion's unreduced loss, in the two parts that are averaged differently.

    ``prediction`` (M,) trains the network; class weights apply to it. ``own`` (M,) trains the criterion's parameters;
    class weights do not apply to it. ``parts`` are the pieces worth logging, each (M,) or a scalar. ``afterwards``
    changes the state, once, when the loss is trained on.
    """

    prediction: Tensor
    own: Tensor | None = None
    parts: Mapping[str, Tensor | float] = field(default_factory=dict)
    afterwards: Callable[[], None] | None = None


class Criterion(nn.Module, ABC):
    """A loss that replaces ``torch.nn.CrossEntropyLoss``. All methods take these arguments besides their own.

    The method is active only if ``self.training and torch.is_grad_enabled()``. Otherwise the loss is plain cross
    entropy with the same weight, ignore_index and reduction, and no state changes.

    Several processes (``torch.distributed``) that train a method with a state share it: every process must call the
    criterion equally often, and unequal shares of a batch equal one process with the whole batch.

    Args:
        num_classes: K ≥ 2.
        weight: class weights (K,). The weight of a class multiplies a sample's whole loss, so that it never distorts a
            smoothed target; ``torch.nn.CrossEntropyLoss`` weighs the classes *inside* the target instead.
        ignore_index: samples with this label are left out.
        reduction: ``"mean"`` (weighted by ``weight``), ``"sum"`` or ``"none"``. The mean over no samples is 0, not NaN.
    """

    #: Whether several processes share a batch: without it, those of a method with a state would drift apart.
    shares_batches = False
    #: Whether every process is given whole batches, so that there is nothing to share.
    sees_whole_batches = False
    #: Whether the loss is computed from two labels per sample, rather than from their class probabilities.
    takes_pairs = False
    #: ε, where the method is torch's own cross entropy with so much label smoothing.
    torch_smoothing: float | None = None
    #: Whether the criterion's parameters are trained as the network's are: at its rate, with its weight decay.
    like_network = False
    #: Whether a call needs the logits of a teacher or of peers.
    needs_teacher_logits = False

    num_classes: int
    weight: Tensor | None
    ignore_index: int
    reduction: str
    _parts: Mapping[str, Tensor | float]
    _parts_made: dict[str, Any]  # their dtype and device
    _accumulating: bool
    _whole: WholeStep | None

    def __init__(
        self,
        num_classes: int,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        if isinstance(num_classes, bool) or not isinstance(num_classes, Integral):
            raise TypeError(f"num_classes must be an int, got {type(num_classes).__name__}")
        if num_classes < 2:
            raise ValueError(f"num_classes must be at least 2, got {num_classes}")
        self.num_classes = int(num_classes)
        if isinstance(ignore_index, bool) or not isinstance(ignore_index, Integral):
            raise TypeError(f"ignore_index must be an int, got {type(ignore_index).__name__}")
        self.ignore_index = int(ignore_index)
        self.reduction = check_choice("reduction", reduction, REDUCTIONS)
        self.register_buffer("weight", check_class_weight(weight, self.num_classes))
        self._parts, self._parts_made = {}, {}
        self._accumulating = False
        self._whole = None

    @property
    def parts(self) -> dict[str, Tensor]:
        """The parts of the last training loss, as detached scalars."""
        return {name: torch.as_tensor(part, **self._parts_made) for name, part in self._parts.items()}

    def forward(
        self,
        input: Tensor,
        target: Tensor | tuple[Tensor, Tensor, Tensor | float],
        sample_weight: Tensor | None = None,
        teacher_logits: Tensor | Sequence[Tensor] | None = None,
    ) -> Tensor:
        """The loss.

        Args:
            input: logits (N, K), (N, K, d1, …) or (K,).
            target: class indices (N, d1, …); class probabilities in the shape of ``input``; or ``(labels_a, labels_b,
                lam)`` as mixup and cutmix have them: class indices twice, and the share of the first, a number or (N,).
            sample_weight: (N, d1, …), or (N,) for all positions: a weight of 2 counts the sample twice.
            teacher_logits: logits of a teacher or of peers, for the methods that learn from them.

        Returns:
            A scalar, or (N, d1, …) with ``reduction="none"``; float32 unless the logits are float64.
        """
        active = self.training and torch.is_grad_enabled()
        if active and self.torch_smoothing is not None and self._is_usual(input, target, sample_weight, teacher_logits):
            loss = F.cross_entropy(input, target, label_smoothing=self.torch_smoothing)  # type: ignore[arg-type]
            self._parts = {"hard": loss.detach()}
            return loss
        if isinstance(target, list) and len(target) == 3 and isinstance(target[0], Tensor):
            target = tuple(target)  # as a data loader collates it
        shape = check_shapes(input, target, self.num_classes)
        self._check_teacher_logits(teacher_logits, active)
        if self._whole is not None and sample_weight is not None:
            raise ValueError(
                "sample_weight: accumulation(targets) counts every sample once; use accumulation() without targets"
            )
        batch = prepare(
            input,
            target,
            sample_weight,
            teacher_logits if active else None,
            shape,
            class_weight=self.weight,
            ignore_index=self.ignore_index,
        )
        with full_precision(input.device.type):
            if not active:
                batch = batch.with_probabilities()
                return self._reduce(Terms(cross_entropy(batch.logits, batch.target)), batch, world=1)
            return self._active_loss(batch if self.takes_pairs else batch.with_probabilities(), self.world())

    def _active_loss(self, batch: Batch, world: int) -> Tensor:
        """The loss of an active forward."""
        terms = self._terms(batch, world)
        self._parts = {name: batch.logged(part) for name, part in terms.parts.items()}
        self._parts_made = {"dtype": batch.logits.dtype, "device": batch.logits.device}
        loss = self._reduce(terms, batch, world)
        return loss if terms.afterwards is None else when_trained(loss, terms.afterwards)

    @abstractmethod
    def _terms(self, batch: Batch, world: int) -> Terms:
        """The unreduced loss of an active forward, and how the state changes with it."""

    def _is_usual(self, input: Tensor, target: object, sample_weight: object, teacher_logits: object) -> bool:
        """Whether this is a mean over labels that are all classes and count once, of float32 logits on the CPU.

        Then torch's own operation computes it: next to a small network, the operations of this class take visible time.
        """
        return (
            sample_weight is None
            and teacher_logits is None
            and self.weight is None
            and self.reduction == "mean"
            and self._whole is None
            and not torch.compiler.is_compiling()
            and isinstance(input, Tensor)
            and isinstance(target, Tensor)
            and input.dtype == torch.float32
            and target.dtype == torch.int64
            and target.dim() == 1
            and input.shape == (len(target), self.num_classes)
            and input.device.type == target.device.type == "cpu"
            and are_classes(target, self.num_classes, self.ignore_index)
            and self.world() == 1
        )

    def parameter_groups(self, lr: float | None = None) -> list[dict[str, Any]]:
        """Optimizer groups for the criterion's own parameters; empty if it trains none.

        Weight decay is off, unless they are trained :attr:`like_network`: then it is the optimizer's.
        """
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        if not trained:
            return []
        group: dict[str, Any] = {"params": trained}
        if not self.like_network:
            group["weight_decay"] = 0.0
        if lr is not None:
            group["lr"] = lr
        return [group]

    def epoch_end(self) -> None:
        """Call this at the end of each training epoch. It does nothing unless the method keeps state per epoch."""

    @contextmanager
    def accumulation(self, targets: Iterable[Tensor] | None = None) -> Iterator[Self]:
        """In this context several forwards are micro-batches of one optimizer step.

        Args:
            targets: those of all micro-batches of the step, if they are known. Then the loss of each micro-batch is its
                share of the mean over the whole step and all processes: add the losses, and do not divide them. Samples
                have no weights of their own then.
        """
        if targets is not None:
            device = next(self.buffers(), next(self.parameters(), torch.empty(0))).device
            world = 1 if self.sees_whole_batches else every_process()
            self._whole = count_step(targets, self.num_classes, self.ignore_index, self.weight, device, world)
        self._accumulating = True
        try:
            yield self
        finally:
            self._accumulating, self._whole = False, None

    @torch.no_grad()
    def sync(self, group: dist.ProcessGroup | None = None) -> None:
        """Average the gradients of the criterion's parameters over the processes of ``group``.

        Only Label Smoothing++ needs it, after ``backward()``, where it stands outside of the wrapped model.
        """
        for parameter in self.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(dist.get_world_size(group))
                dist.all_reduce(parameter.grad, group=group)

    def extra_repr(self) -> str:
        """The arguments that differ from their defaults; tensors as "…"."""
        shown = [str(self.num_classes)]
        for name, default in options_of(type(self)).items():
            value = getattr(self, name, default)
            if value is ... or isinstance(value, Tensor):
                shown.append(f"{name}=…")
            elif value != default:
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """``.half()`` and ``.bfloat16()`` of a surrounding model leave the criterion's parameters in float32."""

        def keep_wide(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            if moved.is_floating_point() and moved.dtype not in (torch.float32, torch.float64):
                return tensor.to(moved.device)
            return moved

        super()._apply(keep_wide, recurse)  # type: ignore[no-untyped-call]
        return self

    def _check_teacher_logits(self, teacher_logits: Tensor | Sequence[Tensor] | None, active: bool) -> None:
        name = type(self).__name__
        if teacher_logits is not None and not self.needs_teacher_logits:
            raise ValueError(f"teacher_logits: {name} follows no teacher and no peer; leave it out")
        if (
            self.needs_teacher_logits
            and active
            and (teacher_logits is None or len(teacher_logits) == 0)
            and not isinstance(teacher_logits, Tensor)
        ):
            raise ValueError(f"teacher_logits: {name} needs the logits of a teacher or of peers while training")

    def shares(self, batch: Batch, world: int) -> tuple[Tensor | float, Tensor | float]:
        """Each sample's share in the loss, (M,) or one number for all: in what trains the network, and in the rest.

        All losses are normalised here. DDP averages gradients over the processes, so shares are multiplied by the
        number of processes: then the averaged gradient is that of the mean over the whole batch.
        """
        if self.reduction != "mean":
            return batch.weight, batch.sample_weight
        if self._whole is not None:
            total, samples, world = self._whole
        else:
            total, samples = batch.sum(batch.weight), batch.sum(batch.sample_weight)
            if world > 1:
                total, samples = self._all_reduce(batch.vector(total, samples), world)
        return over(world * batch.weight, total), over(world * batch.sample_weight, samples)

    def _reduce(self, terms: Terms, batch: Batch, world: int) -> Tensor:
        prediction_share, own_share = self.shares(batch, world)
        loss = prediction_share * terms.prediction
        if terms.own is not None:
            loss = loss + own_share * terms.own
        return loss.reshape(batch.shape) if self.reduction == "none" else loss.sum()

    def _all_reduce(self, counts: Tensor, world: int) -> Tensor:
        """The sum of ``counts`` over the processes; ``counts`` itself when there is one."""
        if world > 1:
            counts = counts.detach().clone()
            dist.all_reduce(counts)
        return counts

    def world(self) -> int:
        """How many processes share this batch; 1 while compiling."""
        alone = self.sees_whole_batches or not self.shares_batches or torch.compiler.is_compiling()
        return 1 if alone else every_process()


def options_of(criterion: type[Criterion]) -> dict[str, Any]:
    """The arguments of a criterion except ``num_classes``, including the common ones, with their defaults."""
    kinds = [kind for kind in criterion.__mro__ if issubclass(kind, Criterion)]
    found = {name: p for kind in kinds for name, p in inspect.signature(kind).parameters.items()}
    return {name: p.default for name, p in found.items() if p.kind != p.VAR_KEYWORD and name != "num_classes"}
