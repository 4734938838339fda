"""AdaptiveLabelLoss: adaptive label regularisation as a criterion."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Self, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adaptive_labels.losses.accuracy import TrainingAccuracy
from adaptive_labels.losses.arguments import check_choice, check_number
from adaptive_labels.losses.base import Criterion, Terms
from adaptive_labels.losses.batch import Batch, numbers, over, sums_by_class, wide_dtype
from adaptive_labels.losses.confusions import Confusion, largest
from adaptive_labels.losses.fused.dispatch import against_fusing, fused_loss
from adaptive_labels.losses.gradient_watch import GradientWatch
from adaptive_labels.losses.label_smoothing import hard_loss
from adaptive_labels.losses.memory import check_dense_fits, check_table_fits
from adaptive_labels.losses.registry import register_method
from adaptive_labels.losses.residual import (
    residual_logits_from_labels,
    residual_loss,
    residual_loss_of_rows,
    update_gradient_of_rows,
    update_loss,
    update_loss_gradient,
    update_loss_of_rows,
)
from adaptive_labels.losses.targets import erase, hits, is_index, restore


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
@final
class AdaptiveLabelLoss(Criterion):
    r"""Adaptive label regularisation (ALR); with ``label_smoothing`` ALR-S.

    .. math:: L = L_{hard} + a\,L_{res} + L_{upd}

    L_hard is cross entropy with the (smoothed) label. L_res moves the probabilities of the wrong classes towards the
    class's *residual label* softmax(S_y). L_upd moves the residual label towards those probabilities. The weight a is
    1 − (training accuracy) by default. The formulas are in :mod:`adaptive_labels.functional`.

    The criterion moves S itself, so that nothing has to be given to the optimizer. With ``update="optimizer"`` S is a
    parameter: ``SGD([{"params": model.parameters()}, *criterion.parameter_groups()])``, which keeps weight decay off S.

    Args:
        num_classes: K.
        label_smoothing: ε of L_hard.
        weight, ignore_index, reduction, check_inputs, check_finite, synchronize: see :class:`Criterion`. Class weights
            apply to L_hard and L_res. The reductions ``"none"`` and ``"sum"`` include L_upd, too.
        residual_weight: a. ``"running"``: 1 − a running average of the accuracy of past batches; ``"batch"``: of this
            batch; ``"epoch"``: of the epoch before the last :meth:`epoch_end`; ``"waiting"``: min(acc, 1 − acc) of the
            running average, so that L_res counts little until the network has learned something; or a constant number.
        normalization: ``"sum"`` over classes, as in the paper's gradients; ``"literal"``, with the factors of the
            paper's equations, 1/K on L_hard and 1/(K−1) on the others; ``"hybrid"``, 1/(K−1) on the others only.
        attraction: τ. L_res aims at softmax(τ·S); 1 is the paper.
        update: ``"self"``: the criterion moves S itself, in closed form, once in each forward with gradients on.
            ``"optimizer"``: your optimizer moves S, as one reads the paper. ``"frozen"``: S stays as it is.
        sparse: row-sparse gradients for S, as in ``torch.nn.Embedding``, for optimizers that take them.
        rank: S as a product of two (K, rank) factors, for many classes; ``None`` is the dense S.
        fused: compute the value and all gradients in one pass, which class indices and ``reduction`` "mean" or "sum"
            allow. ``None``: on the CPU, where possible; ``True``: on any device, with an error that says why if it is
            not possible; ``False``: never. The fused pass has no second derivative. It uses the compiled kernel if that
            was built (see docs/speed.md), else torch's operations. Inside ``torch.compile`` the compiler does the
            fusing.
        smooth_over: spread the smoothing over ``"all"`` K classes, or over the K−1 ``"others"``.
        accuracy_momentum: m, of the running average: after step t old + (batch − old) (1 − m) / (1 − m^t); 0 before.
        residual_lr: the learning rate of ``update="self"``, 0.1 by default; an optimizer's groups have their own rates.
        residual_reduction: ``"batch"``: L_upd is a mean over the samples, so the gradient of a row of S shrinks as 1/K.
            ``"class"``: a mean over the samples of each class, summed over classes, whose gradient does not shrink.
            ``None``: ``"batch"`` with the optimizer (as in the paper's total loss), ``"class"`` with ``update="self"``.
        initial_labels: (K, K), the start of S instead of uniform: residual labels of an earlier run, or counts of
            confusions (row: the true class). The diagonal is not used.

    Attributes:
        residual_logits: the parameter S (K, K−1); not with ``rank``.
        parts: the parts of the last training loss, as detached scalars: ``hard``, ``residual``, ``update``,
            ``weight`` (a), ``accuracy``.
        fused_path: what computed that loss: ``"kernel"``, ``"tensors"`` (fused, in torch's operations) or ``"plain"``.
        fused_reason: why it was not the kernel, or None.

    >>> criterion = AdaptiveLabelLoss(3)
    >>> z, y = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0]], requires_grad=True), torch.tensor([0, 1])
    >>> criterion(z, y)
    tensor(1.9259, grad_fn=<FusedLossBackward>)
    >>> {name: round(value.item(), 4) for name, value in criterion.parts.items()}
    {'hard': 0.4795, 'residual': 0.7532, 'update': 0.6931, 'accuracy': 1.0, 'weight': 1.0}

    Reference: Ding et al. 2019, Adaptive Regularization of Labels, section 3.2.
    """

    stateful = True
    residual_logits: nn.Parameter
    residual_left: nn.Parameter
    residual_right: nn.Parameter

    def __init__(
        self,
        num_classes: int,
        label_smoothing: float = 0.0,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        residual_weight: str | float = "running",
        normalization: str = "sum",
        attraction: float = 1.0,
        update: str = "self",
        sparse: bool = False,
        rank: int | None = None,
        fused: bool | None = None,
        smooth_over: str = "all",
        accuracy_momentum: float = 0.99,
        residual_lr: float = 0.1,
        residual_reduction: str | None = None,
        initial_labels: Tensor | None = None,
        check_inputs: bool | None = None,
        check_finite: bool = False,
        synchronize: bool | None = None,
    ) -> None:
        super().__init__(
            num_classes,
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
            check_inputs=check_inputs,
            check_finite=check_finite,
            synchronize=synchronize,
        )
        self.label_smoothing = check_number("label_smoothing", label_smoothing, 0, 1)
        self.normalization = check_choice("normalization", normalization, ("sum", "literal", "hybrid"))
        self.attraction = check_number("attraction", attraction)
        self.update = check_choice("update", update, ("optimizer", "self", "frozen"))
        self.smooth_over = check_choice("smooth_over", smooth_over, ("all", "others"))
        self.residual_lr, self.residual_reduction = check_number("residual_lr", residual_lr, 0), residual_reduction
        reduced = residual_reduction or ("class" if update == "self" else "batch")
        self.class_mean = check_choice("residual_reduction", reduced, ("batch", "class")) == "class"
        if sparse and update == "self":
            raise ValueError("sparse=True is for optimizers; update='self' needs no gradient of S at all")
        if fused is not None and not isinstance(fused, bool):
            raise TypeError(f"fused must be None, True or False, got {fused!r}")
        self.sparse, self.rank, self.fused = sparse, rank, fused
        self.residual_weight, self.accuracy_momentum = residual_weight, accuracy_momentum
        self.initial_labels = None if initial_labels is None else ...  # that they were given
        self.accuracy = TrainingAccuracy(residual_weight, accuracy_momentum)
        self._create_residual_parameters(initial_labels)
        self.fused_path: str | None = None
        self.fused_reason: str | None = None
        self.watch = GradientWatch()

    def _create_residual_parameters(self, initial_labels: Tensor | None) -> None:
        classes, trained = self.num_classes, self.update == "optimizer"
        if self.rank is None:
            check_dense_fits(classes, gradient=trained and not self.sparse)
            start = torch.zeros(classes, classes - 1, dtype=wide_dtype())
            if initial_labels is not None:
                start = _checked_initial(initial_labels, classes)
            self.residual_logits = nn.Parameter(start, requires_grad=trained)
            return
        if isinstance(self.rank, bool) or not isinstance(self.rank, Integral) or not 1 <= self.rank <= classes:
            raise ValueError(f"rank must be an int in [1, num_classes = {classes}] or None, got {self.rank!r}")
        if initial_labels is not None:
            raise ValueError("initial_labels needs the dense S: leave rank at None")
        self.rank = int(self.rank)
        # In full coordinates, since erased columns of different rows would not line up. U = 0 starts uniform; V is
        # scaled so that a step of U moves S = U Vᵀ as far as a step of a dense S would, on average.
        wide = wide_dtype()
        left, right = torch.zeros(classes, self.rank, dtype=wide), torch.randn(classes, self.rank).to(wide)
        self.residual_left = nn.Parameter(left, requires_grad=trained)
        self.residual_right = nn.Parameter(right / self.rank**0.5, requires_grad=trained)

    @property
    def learns(self) -> bool:
        """Whether S is trained: it is not with ``update="frozen"`` or after ``requires_grad_(False)``."""
        return self.update == "self" or any(p.requires_grad for p in self.residual_parameters())

    def factors(self) -> tuple[float, float]:
        """The factor of L_hard, and that of L_res and L_upd, by the normalization."""
        hard = 1.0 / self.num_classes if self.normalization == "literal" else 1.0
        return hard, 1.0 if self.normalization == "sum" else 1.0 / (self.num_classes - 1)

    def _active_loss(self, batch: Batch, world: int) -> Tensor:
        # torch.compile fuses the plain path itself, better than it could call a kernel.
        if torch.compiler.is_compiling():
            return super()._active_loss(batch, world)
        self._watch_gradients()
        reason = against_fusing(self, batch, world)
        if not reason:
            return fused_loss(self, batch)
        if self.fused:
            raise ValueError(f"fused=True: {reason}")
        self.fused_path, self.fused_reason = "plain", reason
        return super()._active_loss(batch, world)

    def residual_labels(self, rows: Tensor | Sequence[int] | None = None) -> Tensor:
        """The residual labels as probabilities with a zero diagonal: (K, K), or (len(rows), K) for some classes.

        Row k says what samples of class k are taken for: how their probability of other classes is divided.
        """
        self._warn_if_still()
        device = self.residual_parameters()[0].device
        labels = torch.arange(self.num_classes, device=device) if rows is None else torch.as_tensor(rows, device=device)
        if rows is not None:
            numbers_of_classes = labels.dim() == 1 and is_index(labels) and labels.dtype != torch.bool
            if not numbers_of_classes or not bool(((labels >= 0) & (labels < self.num_classes)).all()):
                raise ValueError(f"rows must be classes in [0, {self.num_classes - 1}], got {rows!r}")
        check_table_fits(len(labels), self.num_classes)
        with torch.no_grad():
            return restore(F.softmax(self._rows(labels), dim=1), labels)

    def most_confused(self, n: int = 10, class_names: Sequence[str] | None = None) -> list[Confusion]:
        """The ``n`` largest entries of the residual labels, largest first.

        >>> criterion = AdaptiveLabelLoss(3, initial_labels=torch.tensor([[0., 9., 1.], [1., 0., 1.], [1., 3., 0.]]))
        >>> top, _ = criterion.most_confused(2, ["cat", "dog", "plane"])
        >>> top.label, top.taken_for, round(top.probability, 2)
        ('cat', 'dog', 0.9)
        """
        return largest(self.residual_labels, self.num_classes, n, class_names)

    def epoch_end(self) -> None:
        """Call this at the end of each epoch: ``residual_weight="epoch"`` uses the accuracy of the epoch that ends."""
        self.accuracy.epoch_end()
        self._warn_if_still()

    @contextmanager
    def accumulation(self, targets: Iterable[Tensor] | None = None) -> Iterator[Self]:
        """In this context several forwards are micro-batches of one step, and the running weight stays constant.

        See :meth:`Criterion.accumulation` for ``targets``.

        >>> criterion = AdaptiveLabelLoss(3)
        >>> with criterion.accumulation():
        ...     for z, y in [(torch.zeros(2, 3, requires_grad=True), torch.tensor([0, 1]))] * 2:
        ...         (criterion(z, y) / 2).backward()
        """
        self._watch_gradients()
        self.accuracy.fold()
        with super().accumulation(targets):
            yield self

    def shares(self, batch: Batch, world: int) -> tuple[Tensor | float, Tensor | float]:
        """Each sample's share in L_hard and L_res, and in L_upd; see :meth:`Criterion.shares`."""
        prediction, own = super().shares(batch, world)
        if self.class_mean and self.reduction == "mean":
            world = world if self._whole is None else self._whole.world
            own = self.mean_share(batch, world)[0]
            own = own if world == 1 else world * own
        return prediction, own

    def mean_share(self, batch: Batch, world: int) -> tuple[Tensor | float, Tensor | float]:
        """Each sample's share in the mean of L_upd over the batch, or over each class and summed over classes.

        The second value is what mixed targets (M, K) are multiplied by first.
        """
        own, whole = batch.sample_weight, self._whole
        if not self.class_mean:
            if whole is not None:
                return over(own, whole.samples), 1.0
            samples = batch.sum(own)
            return over(own, samples if world == 1 else self._all_reduce(batch.vector(samples), world)), 1.0
        y, known = batch.target, None if whole is None else whole.classes
        totals = self._all_reduce(sums_by_class(own, y, batch.logits), world) if known is None else known
        totals = totals.to(batch.logits.dtype)  # (K,)
        return (over(own, totals[y]), 1.0) if is_index(y) else (own, over(1.0, totals))

    def _terms(self, batch: Batch, world: int) -> Terms:
        z, y = batch.logits, batch.target
        right = hits(z.detach(), y) * batch.sample_weight
        counts = self._all_reduce(batch.vector(right.sum(), batch.sum(batch.sample_weight)), world)
        right_ones, samples = numbers(counts)
        accuracy = over(right_ones, samples)
        weight = self.accuracy.weight(accuracy, fold=not self._accumulating)
        self.accuracy.count(right_ones, samples)
        hard = hard_loss(z, y, self.label_smoothing, self.smooth_over)
        index = is_index(y)
        rows = self._rows(y if index else torch.arange(self.num_classes, device=z.device)).to(z.dtype)
        residual = (residual_loss_of_rows if index else residual_loss)(z, y, rows, self.attraction)
        hard_factor, factor = self.factors()
        parts = {"hard": hard, "residual": residual, "weight": weight, "accuracy": accuracy}
        terms = Terms(hard_factor * hard + weight * factor * residual, parts=parts)
        if self.learns:
            parts["update"] = update = (update_loss_of_rows if index else update_loss)(z, y, rows)
            share, scale = self.mean_share(batch, world)
            if isinstance(scale, Tensor) and self.reduction == "mean":
                update = update_loss(z, y * scale, rows)
            terms.own = factor * update
            if self.update == "self":
                self._move(batch, rows.detach(), factor * share, scale, world)
            elif rows.requires_grad and not torch.compiler.is_compiling():
                rows.register_hook(self.watch.notice)  # type: ignore[no-untyped-call]
        return terms

    @torch.no_grad()
    def _move(self, batch: Batch, rows: Tensor, share: Tensor | float, scale: Tensor | float, world: int) -> None:
        """``update="self"``: one step of S along its closed-form gradient, whatever the upstream gradient will be."""
        z, y = batch.logits.detach(), batch.target
        each = share.unsqueeze(1) if isinstance(share, Tensor) else share  # (M, 1), or one number for all
        if is_index(y):
            moves, where = each * update_gradient_of_rows(z, y, rows), y  # (M, K−1)
        else:
            moves = update_loss_gradient(z, each * y * scale, rows)  # (K, K−1)
            where = torch.arange(self.num_classes, device=z.device)
        if self.rank is None:
            self._add(self.residual_logits, where, moves, world)
            return
        full = restore(moves, where)  # (M or K, K)
        left, right = self.residual_left.detach().clone(), self.residual_right.detach().clone()
        every = torch.arange(self.num_classes, device=z.device)
        self._add(self.residual_left, where, full @ right.to(full.dtype), world)
        self._add(self.residual_right, every, full.T @ left[where].to(full.dtype), world)

    def _add(self, parameter: nn.Parameter, rows: Tensor, moves: Tensor, world: int) -> None:
        moves = -self.residual_lr * moves.to(parameter.dtype)
        if world == 1:
            parameter.index_add_(0, rows, moves)
        else:
            parameter.add_(self._all_reduce(torch.zeros_like(parameter).index_add(0, rows, moves), world))

    def _rows(self, labels: Tensor) -> Tensor:
        """The rows of S for ``labels``, (M, K−1)."""
        if self.rank is None:
            return F.embedding(labels, self.residual_logits, sparse=self.sparse)
        left = F.embedding(labels, self.residual_left, sparse=self.sparse)
        return erase(left @ self.residual_right.T, labels)

    def residual_parameters(self) -> list[nn.Parameter]:
        """S, or its two factors."""
        return [self.residual_logits] if self.rank is None else [self.residual_left, self.residual_right]

    def sparse_parameters(self) -> list[nn.Parameter]:
        """The parameters that get sparse gradients: S, or of its two factors the left one."""
        return self.residual_parameters()[:1] if self.sparse else []

    def _watch_gradients(self) -> None:
        if self.update == "optimizer" and not self._accumulating:  # micro-batches are no steps
            self.watch.begin_step(self.residual_parameters()[0])

    def _warn_if_still(self) -> None:
        if self.learns:
            self.watch.warn_if_still(self.residual_parameters()[0])


def _checked_initial(labels: Tensor, classes: int) -> Tensor:
    if not isinstance(labels, Tensor):
        raise TypeError(f"initial_labels must be a torch.Tensor, got {type(labels).__name__}")
    if labels.shape != (classes, classes):
        raise ValueError(f"initial_labels must have shape ({classes}, {classes}), got {tuple(labels.shape)}")
    if not labels.is_meta and not bool((torch.isfinite(labels) & (labels >= 0)).all()):
        raise ValueError("initial_labels must be finite and at least 0: probabilities or counts of confusions")
    return residual_logits_from_labels(labels.detach().float())
