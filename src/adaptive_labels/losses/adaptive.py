"""AdaptiveLabelLoss: adaptive label regularisation as a criterion."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self, final

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from adaptive_labels import functional as AF
from adaptive_labels.losses.accuracy import TrainingAccuracy
from adaptive_labels.losses.arguments import check_choice, check_number
from adaptive_labels.losses.base import Criterion, Terms, over
from adaptive_labels.losses.batch import Batch
from adaptive_labels.losses.confusions import Confusion, largest
from adaptive_labels.losses.fused.dispatch import fused_loss
from adaptive_labels.losses.memory import check_dense_fits, check_table_fits

NORMALIZATIONS = ("sum", "literal", "hybrid")
SMOOTH_OVER = ("all", "others")
UPDATES = ("optimizer", "self")
RESIDUAL_REDUCTIONS = ("batch", "class")
FORWARDS_BEFORE_WARNING = 100


@final
class AdaptiveLabelLoss(Criterion):
    r"""Adaptive label regularisation (ALR); with ``label_smoothing`` ALR-S.

    .. math:: L = L_{hard} + a\,L_{res} + L_{upd}

    L_hard is cross entropy with the (smoothed) label; L_res draws the probabilities of the wrong classes towards the
    class's *residual label* softmax(S_y); L_upd draws the residual label towards those probabilities. a is
    1 − (training accuracy), unless ``residual_weight`` says otherwise. The formulas are in
    :mod:`adaptive_labels.functional`.

    S is a parameter, so the optimizer must know it: ``SGD([*model.parameters(), *criterion.parameters()])``, or
    ``SGD([{"params": model.parameters()}, *criterion.parameter_groups()])`` to keep weight decay off it; or let the
    criterion move it with ``update="self"``.

    Args:
        num_classes: K.
        label_smoothing: ε of L_hard.
        weight, ignore_index, reduction, check_inputs, check_finite, synchronize: see :class:`Criterion`. Class weights
            apply to L_hard and L_res. ``"none"`` and ``"sum"`` include L_upd, too.
        residual_weight: a. ``"running"``: 1 − a running average of the accuracy of past batches; ``"batch"``: of this
            batch; ``"epoch"``: of the epoch before the last :meth:`epoch_end`; ``"waiting"``:
            min(acc, 1 − acc) of the running average, so that L_res waits until something is learned; or a number,
            held constant.
        normalization: ``"sum"`` over classes, as in the paper's gradients; ``"literal"``, with the factors of the
            paper's equations, 1/K on L_hard and 1/(K−1) on the others; ``"hybrid"``, 1/(K−1) on the others only.
        attraction: τ. L_res aims at softmax(τ·S); 1 is the paper.
        update: ``"optimizer"``: S is moved by the optimizer that it was given to. ``"self"``: the criterion moves S
            itself, once in each forward with gradients on, in closed form: so micro-batches of accumulated gradients
            and the two passes of SAM are several steps of S.
        sparse: row-sparse gradients for S, as ``torch.nn.Embedding`` has them, for optimizers that take them.
        rank: S as a product of two (K, rank) factors, for many classes; ``None`` is the dense S.
        fused: the value and all gradients in one pass, for class indices and ``reduction`` "mean" or "sum": ``None``
            where it can be; ``True`` demands it, with an error that says why it cannot be; ``False`` never. It has no
            second derivative. It uses the compiled kernel if that was built (see docs/speed.md), else torch's own
            operations. Inside ``torch.compile`` the compiler does the fusing.
        smooth_over: spread the smoothing over ``"all"`` K classes, or over the K−1 ``"others"``.
        accuracy_momentum: of the running average, which starts at 0: old · m + batch · (1 − m).
        residual_lr: the step of ``update="self"``.
        residual_reduction: ``"batch"``: L_upd is a mean over the samples, so the gradient of a row of S shrinks as 1/K;
            ``"class"``: a mean over the samples of each class, summed over classes, so that it does not. ``None`` is
            ``"batch"`` with the optimizer (the paper's one total loss) and ``"class"`` with ``update="self"``.
        initial_labels: (K, K), where S starts instead of uniform: an earlier run's residual labels, or counts of
            confusions (row: the true class). The diagonal does not matter.
        frozen: keep S as it is, and leave L_upd out.

    Attributes:
        residual_logits: the parameter S (K, K−1); not with ``rank``.
        parts: of the last active forward, as detached scalars: ``hard``, ``residual``, ``update``, ``weight`` (a),
            ``accuracy``.
        fused_path: what computed it: ``"kernel"``, ``"tensors"`` (fused, by torch's operations) or ``"plain"``.
        fused_reason: why it was not the kernel, or None.

    >>> criterion = AdaptiveLabelLoss(3)
    >>> z, y = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0]], requires_grad=True), torch.tensor([0, 1])
    >>> criterion(z, y)
    tensor(1.9259, grad_fn=<FusedLossBackward>)
    >>> {name: round(value.item(), 4) for name, value in criterion.parts.items()}
    {'hard': 0.4795, 'residual': 0.7532, 'weight': 1.0, 'accuracy': 1.0, 'update': 0.6931}

    Reference: Ding et al. 2019, Adaptive Regularization of Labels, section 3.2.
    """

    stateful = True
    residual_logits: nn.Parameter

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
        update: str = "optimizer",
        sparse: bool = False,
        rank: int | None = None,
        fused: bool | None = None,
        smooth_over: str = "all",
        accuracy_momentum: float = 0.99,
        residual_lr: float = 0.1,
        residual_reduction: str | None = None,
        initial_labels: Tensor | None = None,
        frozen: bool = False,
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
        self.normalization = check_choice("normalization", normalization, NORMALIZATIONS)
        self.attraction = check_number("attraction", attraction)
        self.update = check_choice("update", update, UPDATES)
        self.smooth_over = check_choice("smooth_over", smooth_over, SMOOTH_OVER)
        self.residual_lr = check_number("residual_lr", residual_lr, 0)
        if residual_reduction is None:
            residual_reduction = "batch" if update == "optimizer" else "class"
        self.residual_reduction = check_choice("residual_reduction", residual_reduction, RESIDUAL_REDUCTIONS)
        if sparse and update == "self":
            raise ValueError("sparse=True is for optimizers; update='self' needs no gradient of S at all")
        if fused is not None and not isinstance(fused, bool):
            raise TypeError(f"fused must be None, True or False, got {fused!r}")
        self.sparse, self.rank, self.fused = sparse, rank, fused
        self.frozen = frozen
        self.accuracy = TrainingAccuracy(residual_weight, accuracy_momentum)
        self._create_residual_parameters(initial_labels)
        self.fused_path: str | None = None
        self.fused_reason: str | None = None
        self._gradients_seen = 0
        self._first_fingerprint: Tensor | None = None

    def _create_residual_parameters(self, initial_labels: Tensor | None) -> None:
        classes, trained = self.num_classes, self.update == "optimizer" and not self.frozen
        if self.rank is None:
            check_dense_fits(classes, gradient=trained and not self.sparse)
            start = torch.zeros(classes, classes - 1)
            if initial_labels is not None:
                start = _checked_initial(initial_labels, classes)
            self.residual_logits = nn.Parameter(start, requires_grad=trained)
            return
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or not 1 <= self.rank <= classes:
            raise ValueError(f"rank must be an int in [1, num_classes = {classes}] or None, got {self.rank!r}")
        if initial_labels is not None:
            raise ValueError("initial_labels needs the dense S: leave rank at None")
        # In full coordinates, since erased columns of different rows would not line up. U = 0 starts uniform; V is
        # scaled so that a step of U moves S = U Vᵀ as far as a step of a dense S would, on average.
        self.residual_left = nn.Parameter(torch.zeros(classes, self.rank), requires_grad=trained)
        self.residual_right = nn.Parameter(torch.randn(classes, self.rank) / self.rank**0.5, requires_grad=trained)

    @property
    def learns(self) -> bool:
        """Whether S moves: not if it is frozen, by the argument or by ``requires_grad_(False)``."""
        if self.frozen:
            return False
        return self.update == "self" or any(parameter.requires_grad for parameter in self.residual_parameters())

    def factors(self) -> tuple[float, float]:
        """The factor of L_hard, and that of L_res and L_upd, by the normalization."""
        hard = 1.0 / self.num_classes if self.normalization == "literal" else 1.0
        return hard, 1.0 if self.normalization == "sum" else 1.0 / (self.num_classes - 1)

    def forward(
        self,
        input: Tensor,
        target: Tensor,
        sample_weight: Tensor | None = None,
        guide: Tensor | Sequence[Tensor] | None = None,
    ) -> Tensor:
        """The loss; see :meth:`Criterion.forward`."""
        active = self.training and torch.is_grad_enabled()
        # torch.compile fuses the plain path itself, better than it could call a kernel.
        if active and not torch.compiler.is_compiling():
            if self.fused is False or guide is not None:
                self.fused_path, self.fused_reason = "plain", "fused=False"
            elif (loss := fused_loss(self, input, target, sample_weight)) is not None:
                return loss
        return super().forward(input, target, sample_weight, guide)

    def residual_labels(self, rows: Tensor | Sequence[int] | None = None) -> Tensor:
        """The residual labels as probabilities with a zero diagonal: (K, K), or (len(rows), K) for some classes.

        Row k says where the probability that class k does not get itself goes.
        """
        device = self.residual_parameters()[0].device
        labels = torch.arange(self.num_classes, device=device) if rows is None else torch.as_tensor(rows, device=device)
        check_table_fits(len(labels), self.num_classes)
        with torch.no_grad():
            return AF.restore(F.softmax(self._rows(labels), dim=1), labels)

    def most_confused(self, n: int = 10, class_names: Sequence[str] | None = None) -> list[Confusion]:
        """The ``n`` largest entries of the residual labels, largest first.

        >>> criterion = AdaptiveLabelLoss(3, initial_labels=torch.tensor([[0., 9., 1.], [1., 0., 1.], [1., 3., 0.]]))
        >>> top, _ = criterion.most_confused(2, ["cat", "dog", "plane"])
        >>> top.label, top.taken_for, round(top.probability, 2)
        ('cat', 'dog', 0.9)
        """
        return largest(self.residual_labels, self.num_classes, n, class_names)

    def epoch_end(self) -> None:
        """Say that an epoch is over: ``residual_weight="epoch"`` takes its accuracy from here on."""
        self.accuracy.epoch_end()
        if 2 <= self._gradients_seen < FORWARDS_BEFORE_WARNING:
            self._warn_if_still()

    @contextmanager
    def accumulation(self) -> Iterator[Self]:
        """Within this context several forwards are micro-batches of one step: the running weight stays as it is.

        >>> criterion = AdaptiveLabelLoss(3)
        >>> with criterion.accumulation():
        ...     for z, y in [(torch.zeros(2, 3, requires_grad=True), torch.tensor([0, 1]))] * 2:
        ...         (criterion(z, y) / 2).backward()
        """
        self.accuracy.fold()
        self.accuracy.held = True
        try:
            yield self
        finally:
            self.accuracy.held = False

    @torch.no_grad()
    def sync(self, group: dist.ProcessGroup | None = None) -> None:
        """Bring the processes of ``group`` to one S and one accuracy.

        For a criterion that stands beside a wrapped model: call it after ``backward()``, before the optimizer's step.
        Gradients of S become those of the whole batch, also when the processes' shares of it are unequal. With
        ``update="self"`` the processes' S are averaged.
        """
        if not (dist.is_available() and dist.is_initialized()):
            raise ValueError("sync: torch.distributed is not initialised, so there is no group to synchronise with")
        counts, was_global = self.accuracy.pending_counts, self.accuracy.pending_global
        local = counts[1].clone()
        if not was_global:
            self.accuracy.make_global(group)
        if not self.learns:
            return
        world = dist.get_world_size(group)
        mine = 1.0 / world
        if not was_global and self.update == "optimizer" and self.reduction == "mean":
            if self.residual_reduction == "class":
                raise ValueError("sync with residual_reduction='class' needs synchronize=True, which shares the counts")
            mine = float(over(local, self.accuracy.pending_counts[1]))
        for parameter in self.residual_parameters():
            shared = parameter.grad if self.update == "optimizer" else parameter.data
            if shared is not None and not (self.update == "self" and was_global):
                shared.mul_(mine if self.update == "optimizer" else 1.0 / world)
                dist.all_reduce(shared, group=group)

    def _terms(self, batch: Batch, world: int) -> Terms:
        self.watch_gradients()
        z, y = batch.logits, batch.target
        right = AF.hits(z.detach(), y)
        counts = self._all_reduce(torch.stack([(right * batch.sample_weight).sum(), batch.sample_weight.sum()]), world)
        a = self.accuracy.weight(counts, shared=world > 1).to(z.dtype)
        learns = self.learns
        hard = AF.hard_loss(z, y, self.label_smoothing, self.smooth_over)
        if AF.is_index(y):
            rows = self._rows(y).to(z.dtype)  # (M, K−1)
            residual = AF.residual_loss_of_rows(z, y, rows, self.attraction)
            update = AF.update_loss_of_rows(z, y, rows) if learns else None
        else:
            rows = self._rows(torch.arange(self.num_classes, device=z.device)).to(z.dtype)  # (K, K−1)
            residual = AF.residual_loss(z, y, rows, self.attraction)
            update = AF.update_loss(z, y, rows) if learns else None
        hard_factor, factor = self.factors()
        parts = {"hard": hard, "residual": residual, "weight": a, "accuracy": over(counts[0], counts[1])}
        terms = Terms(hard_factor * hard + a * factor * residual, parts=parts)
        if update is not None:
            terms.own = factor * update
            parts["update"] = update
            totals = self._class_totals(batch, world) if self.residual_reduction == "class" else None
            if totals is not None:
                terms.own_mean = factor * self._class_mean(batch, rows, update, totals)
            if self.update == "self":
                self._move(batch, rows.detach(), counts[1] if totals is None else totals, factor, world)
        return terms

    def _class_totals(self, batch: Batch, world: int) -> Tensor:
        """How many samples each class has in the batch, (K,)."""
        if AF.is_index(batch.target):
            totals = batch.logits.new_zeros(self.num_classes).index_add(0, batch.target, batch.sample_weight)
        else:
            totals = batch.sample_weight @ batch.target
        return self._all_reduce(totals, world)

    def _class_mean(self, batch: Batch, rows: Tensor, update: Tensor, totals: Tensor) -> Tensor:
        """L_upd as a mean over the samples of each class, summed over classes."""
        shares = over(torch.ones_like(totals), totals)  # (K,)
        if AF.is_index(batch.target):
            return (batch.sample_weight * shares[batch.target] * update).sum()
        scaled = batch.sample_weight.unsqueeze(1) * batch.target * shares
        return AF.update_loss(batch.logits, scaled, rows).sum()

    @torch.no_grad()
    def _move(self, batch: Batch, rows: Tensor, totals: Tensor, factor: float, world: int) -> None:
        """``update="self"``: one step of S along its closed-form gradient, whatever the upstream gradient will be."""
        z, y = batch.logits.detach(), batch.target
        shares = over(torch.ones_like(totals), totals)  # scalar, or (K,) for class means
        step = -self.residual_lr * factor
        if AF.is_index(y):
            each = batch.sample_weight * (shares[y] if shares.dim() else shares)  # (M,)
            moves = step * each.unsqueeze(1) * AF.update_gradient_of_rows(z, y, rows)  # (M, K−1)
            where = y
        else:
            scaled = batch.sample_weight.unsqueeze(1) * y * shares
            moves = step * AF.update_loss_gradient(z, scaled, rows)  # (K, K−1)
            where = torch.arange(self.num_classes, device=z.device)
        if self.rank is None:
            self._add(self.residual_logits, where, moves, world)
            return
        full = AF.restore(moves, where)  # (M or K, K)
        left, right = self.residual_left.detach().clone(), self.residual_right.detach().clone()
        every = torch.arange(self.num_classes, device=z.device)
        self._add(self.residual_left, where, full @ right.to(full.dtype), world)
        self._add(self.residual_right, every, full.T @ left[where].to(full.dtype), world)

    def _add(self, parameter: nn.Parameter, rows: Tensor, moves: Tensor, world: int) -> None:
        moves = moves.to(parameter.dtype)
        if world == 1:
            parameter.index_add_(0, rows, moves)
        else:
            parameter.add_(self._all_reduce(torch.zeros_like(parameter).index_add(0, rows, moves), world))

    def _rows(self, labels: Tensor) -> Tensor:
        """The rows of S for ``labels``, (M, K−1)."""
        if self.rank is None:
            return F.embedding(labels, self.residual_logits, sparse=self.sparse)
        left = F.embedding(labels, self.residual_left, sparse=self.sparse)
        return AF.erase(left @ self.residual_right.T, labels)

    def residual_parameters(self) -> list[nn.Parameter]:
        """S, or its two factors."""
        return [self.residual_logits] if self.rank is None else [self.residual_left, self.residual_right]

    def watch_gradients(self) -> None:
        """Notice, from one active forward to the next, an S that gathers gradients and never moves.

        It was left out of the optimizer.
        """
        if torch.compiler.is_compiling() or self.update == "self" or self._gradients_seen >= FORWARDS_BEFORE_WARNING:
            return
        first = self.residual_parameters()[0]
        if first.grad is None:
            return
        if self._gradients_seen == 0:
            self._first_fingerprint = first.detach().abs().sum()
        self._gradients_seen += 1
        if self._gradients_seen == FORWARDS_BEFORE_WARNING:
            self._warn_if_still()

    def _warn_if_still(self) -> None:
        first = self.residual_parameters()[0]
        still = self._first_fingerprint is not None and bool(first.detach().abs().sum() == self._first_fingerprint)
        if still and self.learns and first.grad is not None and bool(first.grad.abs().sum() > 0):
            self._gradients_seen = FORWARDS_BEFORE_WARNING  # say it once
            warnings.warn(
                "AdaptiveLabelLoss: the residual labels receive gradients but never change: their parameter was left "
                "out of the optimizer. Give it criterion.parameter_groups() beside the model's parameters, or "
                "construct the criterion with update='self' or frozen=True.",
                stacklevel=2,
            )

    def _own_repr(self) -> list[str]:
        defaults = {
            "label_smoothing": 0.0,
            "normalization": "sum",
            "attraction": 1.0,
            "update": "optimizer",
            "sparse": False,
            "rank": None,
            "fused": None,
            "smooth_over": "all",
            "frozen": False,
        }
        shown = [f"residual_weight={self.accuracy.residual_weight!r}"]
        shown += [
            f"{name}={getattr(self, name)!r}" for name, default in defaults.items() if getattr(self, name) != default
        ]
        return shown


def _checked_initial(labels: Tensor, classes: int) -> Tensor:
    if not isinstance(labels, Tensor):
        raise TypeError(f"initial_labels must be a torch.Tensor, got {type(labels).__name__}")
    if labels.shape != (classes, classes):
        raise ValueError(f"initial_labels must have shape ({classes}, {classes}), got {tuple(labels.shape)}")
    if not bool(torch.isfinite(labels.float()).all()) or bool((labels < 0).any()):
        raise ValueError("initial_labels must be finite and at least 0: probabilities or counts of confusions")
    return AF.residual_logits_from_labels(labels.detach().float())
