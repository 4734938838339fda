"""AdaptiveLabelLoss: adaptive label regularisation as a criterion."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from adaptive_labels.losses.accuracy import TrainingAccuracy
from adaptive_labels.losses.arguments import StillnessWarning, check_choice, check_number
from adaptive_labels.losses.autograd import ClosedForm, DerivedLoss
from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch, numbers, over, wide_dtype
from adaptive_labels.losses.closed_form import RowGradients, Step, Weights, closed_form
from adaptive_labels.losses.confusions import Confusion, largest
from adaptive_labels.losses.fused import kernel as kernels
from adaptive_labels.losses.label_smoothing import hard_loss
from adaptive_labels.losses.memory import check_dense_fits, check_table_fits
from adaptive_labels.losses.registry import register_method
from adaptive_labels.losses.residual import (
    residual_logits_from_labels,
    residual_loss,
    update_loss,
    update_loss_gradient,
)
from adaptive_labels.losses.targets import Labels, as_probabilities, hits, is_index, restore

FEW_LABELS = 4  # class probabilities with so many above 0 are labels with shares
_PLAIN_TYPES = (Tensor, nn.Parameter)


@register_method(
    "alr-wait",
    "adaptive label regularisation that waits until something is learned",
    options={"residual_weight": "waiting"},
    main_option="attraction",
    search=(-8.0, 1.0),
)
@register_method(
    "alr-s",
    "adaptive label regularisation with label smoothing",
    options={"label_smoothing": 0.1},
    main_option="label_smoothing",
    search=(0.02, 0.5),
)
@register_method("alr", "adaptive label regularisation", main_option="attraction", search=(-8.0, 1.0))
class AdaptiveLabelLoss(Criterion):
    r"""Adaptive label regularisation (ALR); with ``label_smoothing`` ALR-S.

    .. math:: L = L_{hard} + a\,L_{res}

    L_hard is cross entropy with the (smoothed) label. L_res moves the probabilities of the wrong classes towards the
    class's *residual label* softmax(S_y). The weight a is 1 − (training accuracy) by default. S learns the mean of
    these probabilities over the class's samples, by L_upd. The formulas are in :mod:`adaptive_labels.functional`.

    The criterion moves S itself, in the backward pass of its loss: nothing has to be given to the optimizer. A forward
    that is not trained on changes nothing; nor do samples whose logits are not finite.

    Args:
        num_classes: K.
        label_smoothing: ε of L_hard.
        weight, ignore_index, reduction: see :class:`Criterion`. Class weights apply to L_hard and L_res.
        residual_weight: a. ``"running"``: 1 − a running average of the accuracy of past batches; ``"waiting"``:
            min(acc, 1 − acc) of it, so that L_res counts little until the network has learned something; or a number.
        attraction: τ. L_res aims at softmax(τ·S); 1 is the paper.
        update: ``"self"``: the criterion moves S by gradient descent on the mean of L_upd over each class's samples.
            ``"optimizer"``: S is a parameter that your optimizer moves, as one reads the paper. L_upd, averaged over
            the batch, is then a part of the loss. Give it :meth:`parameter_groups`, which keep weight decay off S.
            ``"frozen"``: S stays as it is.
        residual_lr: the learning rate of ``update="self"``.
        initial_labels: (K, K), the start of S instead of uniform: residual labels of an earlier run, or counts of
            confusions (row: the true class). The diagonal is not used.

    Attributes:
        residual_logits: S (K, K−1), a buffer, or a parameter with ``update="optimizer"``.
        parts: the parts of the last training loss, as detached scalars: ``hard``, ``residual``, ``update`` (L_upd),
            ``accuracy``, ``weight`` (a).

    >>> criterion = AdaptiveLabelLoss(3)
    >>> z, y = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0]], requires_grad=True), torch.tensor([0, 1])
    >>> criterion(z, y)
    tensor(1.2327, grad_fn=<ClosedFormBackward>)
    >>> {name: round(value.item(), 4) for name, value in criterion.parts.items()}
    {'hard': 0.4795, 'residual': 0.7532, 'update': 0.6931, 'accuracy': 1.0, 'weight': 1.0}

    Reference: Ding et al. 2019, Adaptive Regularization of Labels, section 3.2.
    """

    shares_batches = True
    takes_pairs = True
    residual_logits: Tensor

    def __init__(
        self,
        num_classes: int,
        label_smoothing: float = 0.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        residual_weight: str | float = "running",
        attraction: float = 1.0,
        update: str = "self",
        residual_lr: float = 0.1,
        initial_labels: Tensor | None = None,
    ) -> None:
        super().__init__(num_classes, weight=weight, ignore_index=ignore_index, reduction=reduction)
        self.label_smoothing = check_number("label_smoothing", label_smoothing, 0, 1)
        self.attraction = check_number("attraction", attraction)
        self.update = check_choice("update", update, ("self", "optimizer", "frozen"))
        self.residual_lr = check_number("residual_lr", residual_lr, 0)
        self.residual_weight = residual_weight
        self.initial_labels = None if initial_labels is None else ...  # that they were given
        self.accuracy = TrainingAccuracy(residual_weight)
        self._pending: list[Any] | None = None  # what the micro-batches of a step tell S
        self._create_table(initial_labels)

    def _create_table(self, initial_labels: Tensor | None) -> None:
        classes = self.num_classes
        check_dense_fits(classes, gradient=self.update == "optimizer")
        start = torch.zeros(classes, classes - 1, dtype=wide_dtype())
        if initial_labels is not None:
            start = _checked_initial(initial_labels, classes)
        self._hold("residual_logits", start)

    def _hold(self, name: str, start: Tensor) -> None:
        """A part of S: a parameter with ``update="optimizer"``, or a buffer."""
        if self.update != "optimizer":
            self.register_buffer(name, start)
            return
        parameter = nn.Parameter(start)
        self.register_parameter(name, parameter)
        # A hook of the parameter is called in compiled models, too.
        parameter.register_post_accumulate_grad_hook(StillnessWarning(self))  # type: ignore[no-untyped-call]

    @property
    def learns(self) -> bool:
        """Whether S is trained: it is not with ``update="frozen"`` or after ``requires_grad_(False)``."""
        return self.update == "self" or bool(self._trained())

    def _trained(self) -> list[nn.Parameter]:
        if self.update != "optimizer":
            return []
        return [parameter for parameter in self.parameters(recurse=False) if parameter.requires_grad]

    def residual_labels(self, rows: Tensor | Sequence[int] | None = None) -> Tensor:
        """The residual labels as probabilities with a zero diagonal: (K, K), or (len(rows), K) for some classes.

        Row k says what samples of class k are taken for: how their probability of other classes is divided.
        """
        device = self.accuracy.running.device
        labels = torch.arange(self.num_classes, device=device) if rows is None else torch.as_tensor(rows, device=device)
        if rows is not None:
            numbers_of_classes = labels.dim() == 1 and is_index(labels) and labels.dtype != torch.bool
            if not numbers_of_classes or not bool(((labels >= 0) & (labels < self.num_classes)).all()):
                raise ValueError(f"rows must be classes in [0, {self.num_classes - 1}], got {rows!r}")
        check_table_fits(len(labels), self.num_classes)
        with torch.no_grad():
            own = labels.unsqueeze(1)
            return F.softmax(self._rows_of(labels).scatter(1, own, -torch.inf), 1)

    def most_confused(self, n: int = 10, class_names: Sequence[str] | None = None) -> list[Confusion]:
        """The ``n`` largest entries of the residual labels, largest first.

        >>> criterion = AdaptiveLabelLoss(3, initial_labels=torch.tensor([[0., 9., 1.], [1., 0., 1.], [1., 3., 0.]]))
        >>> top, _ = criterion.most_confused(2, ["cat", "dog", "plane"])
        >>> top.label, top.taken_for, round(top.probability, 2)
        ('cat', 'dog', 0.9)
        """
        return largest(self.residual_labels, self.num_classes, n, class_names)

    @contextmanager
    def accumulation(self, targets: Iterable[Any] | None = None) -> Iterator[Self]:
        """In this context several forwards and their backwards are micro-batches of one step.

        The weight a stays as it is, and S moves once, at the end, by all of them. See :meth:`Criterion.accumulation`
        for ``targets``.

        >>> criterion = AdaptiveLabelLoss(3)
        >>> with criterion.accumulation():
        ...     for z, y in [(torch.zeros(2, 3, requires_grad=True), torch.tensor([0, 1]))] * 2:
        ...         (criterion(z, y) / 2).backward()
        """
        self.accuracy.update_average()
        self._pending = []
        try:
            with super().accumulation(targets):
                yield self
            if self._pending or (self.update == "self" and self.world() > 1):
                with torch.no_grad():
                    self._move(self._pending, self.world())
        finally:
            self._pending = None

    def _active_loss(self, batch: Batch, world: int) -> Tensor:
        if torch.compiler.is_compiling() or (self.reduction == "none" and self._trained()):
            return super()._active_loss(batch.with_probabilities(), world)  # in plain operations
        compute = partial(self._compute, batch, world)
        loss: Tensor = ClosedForm.apply(batch.logits, compute, *self._trained())  # type: ignore[no-untyped-call]
        return loss.reshape(batch.shape) if self.reduction == "none" else loss

    def _compute(self, batch: Batch, world: int, z: Tensor) -> DerivedLoss:
        """The loss, its gradients, and how the state changes when it is trained on."""
        if not self._accumulating:
            self.accuracy.update_average()
        a, own = self.accuracy.weight(), batch.sample_weight
        known = world == 1 or self._whole is not None or self.reduction != "mean"
        weight = self.shares(batch, world)[0] if known else batch.weight
        step = self._step(
            z,
            few_labels(batch.target),
            Weights(weight, own, a, mean=self.update == "self" and not self._accumulating and world == 1),
        )
        hard, residual, right = _sums(step, own)
        samples, updates = step.samples, step.update
        if not self.learns:
            rows: Any = None
        else:
            rows = self._told(step, z, batch)
        if world > 1:
            later = self._accumulating and self.update == "self"
            (right, samples, total), rows = self._share((right, samples, batch.sum(batch.weight)), rows, later)
            if not known:
                factor = over(world, total)
                weight = weight * factor
                step.gradient.mul_(factor)
        if self.reduction == "none":
            loss = weight * (step.values[:, 0] + a * step.values[:, 1])
        else:
            of_hard, of_residual, _ = _sums(step, weight)
            loss = of_hard + a * of_residual
        gradients: tuple[Tensor, ...] = ()
        if self._trained():  # DDP averages the gradients, which are those of all processes already
            count = world if self.reduction == "sum" else samples if self._whole is None else self._whole.samples
            gradients = self._gradients(rows, count)
            loss = loss + over(world * updates, count)
        here = step.samples
        parts = {"hard": over(hard, here), "residual": over(residual, here), "update": over(updates, here)}
        parts |= {"accuracy": over(right, samples), "weight": a}
        if rows is None:
            del parts["update"]
        self.__dict__["_parts"] = parts  # Module's own way takes ten times as long
        self.__dict__["_parts_made"] = {"dtype": z.dtype, "device": z.device}
        afterwards = partial(self._trained_on, self._pending, rows, right, samples, world)
        return DerivedLoss(torch.as_tensor(loss, dtype=z.dtype), step.gradient, gradients, afterwards)

    def _trained_on(self, pending: list[Any] | None, rows: Any, right: Any, samples: Any, world: int) -> None:
        """A backward pass has begun: count the predictions, and move S."""
        self.accuracy.count(right, samples)
        if self.update != "self":
            return
        if pending is not None and pending is self._pending:
            self._keep(pending, rows)
        else:
            self._move([rows], 1 if pending is None else world)

    # How S is held: of the following, LowRankAdaptiveLabelLoss has its own.

    def _rows_of(self, labels: Tensor | None) -> Tensor:
        """S in full coordinates, 0 in the own columns: (R, K) for some labels, or (K, K)."""
        if labels is not None:
            return restore(self.residual_logits.detach()[labels], labels)
        classes = self.num_classes
        full = self.residual_logits.new_zeros(classes * classes)
        between = full[1:].view(classes - 1, classes + 1)[:, :-1]  # the entries of the diagonal
        between.copy_(self.residual_logits.detach().reshape(classes - 1, classes))
        return full.view(classes, classes)

    def _step(self, z: Tensor, target: Labels | Tensor, weights: Weights) -> Step:
        table = self.residual_logits.detach()
        kernel, usual = None, type(z) in _PLAIN_TYPES and type(table) in _PLAIN_TYPES
        if (
            usual
            and isinstance(target, Labels)
            and z.device.type == "cpu"
            and table.dtype == z.dtype
            and table.is_contiguous()
            and table.device == z.device
        ):
            kernel, _ = kernels.find()
        if kernel is not None and isinstance(target, Labels):
            return kernels.kernel_step(kernel, z, target, table, weights, self.label_smoothing, self.attraction)
        rows_of = self._rows_of if table.dtype == z.dtype else lambda labels: self._rows_of(labels).to(z.dtype)
        return closed_form(z, target, rows_of, weights, self.label_smoothing, self.attraction)

    def _told(self, step: Step, z: Tensor, batch: Batch) -> Any:
        """What a batch tells S."""
        return step.rows

    def _share(self, counts: tuple[Any, ...], rows: Any, later: bool) -> tuple[Sequence[Any], Any]:
        """Sums over the processes, in one message; the rows stay this process's own if they are shared ``later``."""
        like = self.residual_logits
        message = [torch.stack([torch.as_tensor(count, dtype=torch.float64, device=like.device) for count in counts])]
        if rows is not None and not later:
            message += [part.double().flatten() for part in rows.spread(self.num_classes)]
        shared = torch.cat(message)
        dist.all_reduce(shared)
        if rows is not None and not later:
            rows = self._of_message(shared[len(counts) :])
        return numbers(shared[: len(counts)]), rows

    def _of_message(self, shared: Tensor) -> RowGradients:
        gradient, counts = shared.split([self.num_classes * (self.num_classes - 1), self.num_classes])  # type: ignore[no-untyped-call]
        like = self.residual_logits
        return RowGradients(None, gradient.view_as(like).to(like.dtype), counts.to(like.dtype))

    def _gradients(self, rows: Any, count: Any) -> tuple[Tensor, ...]:
        """The gradients of the mean L_upd by the parameters."""
        gradient, _ = rows.spread(self.num_classes)
        return (over(gradient, count).to(self.residual_logits.dtype),)

    def _keep(self, pending: list[Any], rows: Any) -> None:
        """Remember for the end of the step what a micro-batch has told S."""
        if pending:
            parts = [told.spread(self.num_classes) for told in (pending[0], rows)]
            rows = RowGradients(None, *(one + other for one, other in zip(*parts, strict=True)))
        pending[:] = [rows]

    def _move(self, told: list[Any], world: int) -> None:
        """``update="self"``: one step of S along the mean gradient of each class, over all processes."""
        table = self.residual_logits
        if world > 1:
            rows = told[0] if told else RowGradients(None, torch.zeros_like(table), table.new_zeros(len(table)))
            shared = torch.cat([part.double().flatten() for part in rows.spread(self.num_classes)])
            dist.all_reduce(shared)
            told = [self._of_message(shared)]
        (labels, rows, counts) = told[0]
        step = (rows if counts is None else over(rows, counts.unsqueeze(1))).to(table.dtype)
        if labels is None:
            table.sub_(step, alpha=self.residual_lr)
        else:
            table.index_add_(0, labels, step, alpha=-self.residual_lr)

    def _terms(self, batch: Batch, world: int) -> Terms:
        """The loss by the functions in :mod:`adaptive_labels.functional`, which torch.compile fuses."""
        z, t, own = batch.logits, batch.target, batch.sample_weight
        if not self._accumulating:
            self.accuracy.update_average()
        a, table = self.accuracy.weight(), self._plain_table().to(z.dtype)
        finite = z.detach().sum(1).isfinite()
        own = own * finite
        right, samples = self._all_reduce(torch.stack([(hits(z.detach(), t) * own).sum(), own.sum()]), world).unbind()
        hard, residual = hard_loss(z, t, self.label_smoothing), residual_loss(z, t, table, self.attraction)
        parts = {"hard": hard, "residual": residual, "accuracy": over(right, samples), "weight": a}
        if self.learns:
            parts["update"] = update_loss(z, t, table)

        def trained_on() -> None:
            self.accuracy.count(right, samples)
            if self.update == "self":
                mixed = as_probabilities(t, self.num_classes, z.dtype)
                self._move([self._told_plainly(z.detach().nan_to_num(0.0, 0.0, 0.0), mixed, own)], 1)

        return Terms(hard + a * residual, parts["update"] if self._trained() else None, parts, trained_on)

    def _told_plainly(self, z: Tensor, target: Tensor, own: Tensor) -> Any:
        mixed = target * own.unsqueeze(1)
        return RowGradients(None, update_loss_gradient(z, mixed, self.residual_logits.to(z.dtype)), mixed.sum(0))

    def _plain_table(self) -> Tensor:
        """S (K, K−1), through which autograd may reach its parameters."""
        return self.residual_logits


def few_labels(target: Any) -> Any:
    """Labels with their shares, where the target has only a few per sample; or class probabilities."""
    if isinstance(target, Labels):
        return target
    if is_index(target):
        return Labels(target.unsqueeze(1))
    if target.device.type != "cpu" or not target.numel():
        return target
    most = int(target.count_nonzero(1).amax())
    if most > FEW_LABELS or most == target.shape[1]:
        return target
    shares, classes = target.topk(most, sorted=False)
    return Labels(classes, shares)


def _sums(step: Step, share: Tensor | float) -> Sequence[Any]:
    """The sums of a step's values over the samples, each times its share."""
    if isinstance(share, Tensor) and share.dim():
        return numbers(share.to(step.values.dtype) @ step.values)
    sums = numbers(step.values.sum(0)) if step.sums is None else step.sums
    return sums if isinstance(share, float) and share == 1.0 else [share * total for total in sums]


def _checked_initial(labels: Tensor, classes: int) -> Tensor:
    if not isinstance(labels, Tensor):
        raise TypeError(f"initial_labels must be a torch.Tensor, got {type(labels).__name__}")
    if labels.shape != (classes, classes):
        raise ValueError(f"initial_labels must have shape ({classes}, {classes}), got {tuple(labels.shape)}")
    if not labels.is_meta and not bool((torch.isfinite(labels) & (labels >= 0)).all()):
        raise ValueError("initial_labels must be finite and at least 0: probabilities or counts of confusions")
    return residual_logits_from_labels(labels.detach().float())
