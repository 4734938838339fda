r"""ALR's losses and their gradients in closed form, for any target: one pass, which ``backward`` only scales.

Shapes: M samples, K classes; z (M, K) logits; t (M, K) target distributions, one-hot for labels; S in full coordinates
F (K, K), whose diagonal is not used; Q = softmax(τF) and q = softmax(F) without the diagonal. p = softmax(z), and
lse is the log-sum-exp of z. Then

    lse over j ≠ k of z_j   = lse + log(1 − p_k)
    Σ_k t_k L_res(k)        = Σ_k t_k (lse + log(1 − p_k)) − ⟨tQ, z⟩
    its gradient by z_j     = p_j (A − r_j) − (tQ)_j,   r_k = t_k / (1 − p_k),   A = Σ_k r_k
    Σ_n gradient of row k   = (Σ_n t_nk) q_k − Σ_n r_nk p_n, without its own column

1 − p_k is exact for every class but the most likely one, ``top``, whose p may be 1 to the last bit. So the exponentials
e are taken relative to the *second* largest logit, and e_top is 0. With s = Σ e, and o = 1 − p_top = s g / (1 + s g)
where g = exp(second − largest):

    p_i = e_i g / (1 + s g) for i ≠ top,      p_res of label top = e / s,      lse without top = second + log s

so that label ``top`` has r = 0 above and adds t_top e / s to Σ_k t_k p_res. Labels, one or a few per sample, need
gathers; class probabilities two matrix products, tQ and rᵀp.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from adaptive_labels.losses.targets import Labels, erase, put_own


class Weights(NamedTuple):
    """What each sample counts, (M,) or one number for all: in the gradient of the logits, and in that of S.

    ``residual`` is a, the weight on L_res; ``mean``: the gradients of the rows of S may come divided by their counts.
    """

    prediction: Tensor | float
    own: Tensor | float
    residual: Tensor | float
    mean: bool = False


class RowGradients(NamedTuple):
    """The gradient (R, K−1) of Σ own L_upd by the rows of S of some ``labels`` (R,), or of all if that is None.

    ``counts`` (R,): the sum of the samples' shares of each class, times their weight ``own``; None if the rows have
    been divided by it.
    """

    labels: Tensor | None
    rows: Tensor
    counts: Tensor | None

    def spread(self, classes: int) -> tuple[Tensor, Tensor]:
        """Gradient (K, K−1) and counts (K,) of all rows."""
        assert self.counts is not None
        if self.labels is None:
            return self.rows, self.counts
        rows = self.rows.new_zeros(classes, classes - 1).index_copy_(0, self.labels, self.rows)
        return rows, self.counts.new_zeros(classes).index_copy_(0, self.labels, self.counts)


class Step(NamedTuple):
    """What one pass finds.

    ``values`` (M, 3): L_hard, L_res, and the target's probability of the predicted class; ``gradient`` (M, K) of the
    logits; ``rows``: the gradient of S; ``update``: Σ own L_upd; ``samples``: Σ own. Samples whose logits are not
    finite have a loss of NaN and count in nothing else. ``sums``: those of the columns of ``values``, if known.
    """

    values: Tensor
    gradient: Tensor
    rows: RowGradients | None
    update: Any
    samples: Any
    sums: tuple[float, ...] | None = None


class Prediction(NamedTuple):
    """The softmax of z (M, K) around its largest entry, see above; all but ``e`` are (M, 1)."""

    top: Tensor
    largest: Tensor
    e: Tensor  # (M, K)
    sum: Tensor
    others: Tensor  # o
    factor: Tensor  # g / (1 + s g)
    log_total: Tensor  # lse − largest
    log_others: Tensor  # lse without top − largest


def stable_softmax(z: Tensor) -> Prediction:
    """The parts from which all probabilities are made, with all their digits."""
    largest, top = z.max(1, keepdim=True)
    masked = z.scatter(1, top, -torch.inf)
    second = masked.amax(1, keepdim=True)
    e = masked.sub_(second).exp_()
    total, gap = e.sum(1, keepdim=True), second - largest
    g = gap.exp()
    odds = total * g
    return Prediction(top, largest, e, total, odds / (1 + odds), g / (1 + odds), odds.log1p(), gap + total.log())


RowsOf = Callable[[Tensor | None], Tensor]
"""S in full coordinates, a new tensor: the rows (R, K) of some labels (R,), or all (K, K)."""


class Rows(NamedTuple):
    """Rows (R, K) of S as probabilities, and as their logarithms; both are 0 in the own columns."""

    labels: Tensor | None
    q: Tensor
    log_q: Tensor

    @classmethod
    def read(cls, labels: Tensor | None, rows_of: RowsOf) -> "Rows":
        """The rows of some labels, or all."""
        log_q = torch.log_softmax(put_own(rows_of(labels), labels, -torch.inf), 1)
        return cls(labels, log_q.exp(), put_own(log_q, labels, 0.0))

    def aim(self, attraction: float) -> Tensor:
        """softmax(τS)."""
        if attraction == 1:
            return self.q
        return torch.softmax(put_own(attraction * self.log_q, self.labels, -torch.inf), 1)


class RowSums(NamedTuple):
    """For some rows of S: Σ own t p_res (R, K), whose own columns are not used, and Σ own t (R,)."""

    rows: Rows
    sums: Tensor
    counts: Tensor


def closed_form(
    z: Tensor,
    target: Labels | Tensor,
    rows_of: RowsOf,
    weights: Weights,
    smoothing: float,
    attraction: float,
    blocks: Sequence[Tensor | None] = (None,),
) -> Step:
    """The losses and gradients of logits (M, K) with labels or class probabilities (M, K).

    With class probabilities, S is read in ``blocks`` of classes, of which None means all at once; only then is the
    gradient of its rows kept.
    """
    z, weights, bad = without_bad_rows(z, weights)
    rows: RowGradients | None = None
    update: Any = 0.0
    found: Iterable[RowSums]
    if isinstance(target, Labels) and target.shares is None:
        hard, residual, right, gradient, one = _of_one_label(z, target, rows_of, weights, smoothing, attraction)
        found = [one]
    elif isinstance(target, Labels):
        p = stable_softmax(z)
        parts = label_parts(target, p, rows_of)
        hard, residual, right, gradient = _of_labels(z, target, p, parts, weights, smoothing, attraction)
        found = sums_of_labels(target, p, parts, weights.own)
    else:
        p = stable_softmax(z)
        tables = [Rows.read(None, rows_of)] if len(blocks) == 1 else None  # else each is read twice, and not kept
        aims = torch.zeros_like(z)
        for read in tables or (Rows.read(labels, rows_of) for labels in blocks):
            aims.addmm_(target if read.labels is None else target[:, read.labels], read.aim(attraction))
        hard, residual, right, gradient = _of_probabilities(z, target, p, aims, weights, smoothing)
        found = sums_of_probabilities(
            target, p, tables or (Rows.read(labels, rows_of) for labels in blocks), weights.own
        )
    for sums in found:
        full, own_update = update_of_rows(sums)
        update = own_update if rows is None and len(blocks) == 1 else update + own_update
        if len(blocks) == 1:
            rows = RowGradients(sums.rows.labels, _without_own(full, sums.rows.labels), sums.counts)
    if bad is not None:
        hard = torch.where(bad, torch.nan, hard)
        gradient.masked_fill_(bad.unsqueeze(1), torch.nan)
        right = right * ~bad
    own = weights.own
    samples = own.sum() if isinstance(own, Tensor) else own * len(z)
    values = torch.stack((hard, residual, right), 1)
    alike = not any(isinstance(each, Tensor) for each in (own, weights.prediction)) and z.device.type == "cpu"
    sums_of_values = tuple(values.sum(0).tolist()) if alike else None
    return Step(values, gradient, rows, update.item() if alike else update, samples, sums_of_values)


def without_bad_rows(z: Tensor, weights: Weights) -> tuple[Tensor, Weights, Tensor | None]:
    """Zeros for the logits of samples that are not finite, a weight of 0 for them in S, and which they are, if any."""
    bad = z.sum(1) * 0.0 != 0.0  # NaN if not finite
    if z.device.type == "cpu" and not torch.compiler.is_compiling() and not bool(bad.any()):
        return z, weights, None
    counted = bad & (weights.own > 0) if isinstance(weights.own, Tensor) else bad  # an ignored sample has no loss
    return z.masked_fill(bad.unsqueeze(1), 0.0), weights._replace(own=weights.own * ~bad), counted


def _column(each: Tensor | float) -> Tensor | float:
    return each.unsqueeze(1) if isinstance(each, Tensor) and each.dim() else each


def _places(y: Tensor, classes: int) -> tuple[Tensor | None, Tensor]:
    """The classes (R,) that occur among labels, or None for all, and which of them each label is."""
    return (None, y) if classes <= y.numel() or y.is_meta else torch.unique(y, return_inverse=True)


def _of_one_label(
    z: Tensor, target: Labels, rows_of: RowsOf, weights: Weights, smoothing: float, attraction: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, RowSums]:
    """L_hard, L_res, the hits, the gradient of the logits, and the sums for S: where labels are whole, p_res itself.

    With u = z_y − lse over the others, p_y is the sigmoid of u, and p_i = (1 − p_y) p_res_i for the others.
    """
    y, a, weight, classes = target.classes, weights.residual, _column(weights.prediction), z.shape[1]
    labels, place = _places(y.squeeze(1), classes)
    rows = Rows.read(labels, rows_of)
    masked = z.scatter(1, y, -torch.inf)
    log_p = torch.log_softmax(masked, 1)  # of the others
    lse = masked.amax(1, keepdim=True) - log_p.amax(1, keepdim=True)
    p = log_p.exp_()
    own_z = z.gather(1, y)
    u = lse - own_z
    others = u.sigmoid()  # 1 − p_y
    hard = torch.nn.functional.softplus(u)
    if smoothing:
        hard = hard + smoothing * (own_z - z.mean(1, keepdim=True))
    aims = rows.aim(attraction)[place]
    residual = lse.squeeze(1) - (aims * z).sum(1)
    gradient = p * (weight * (others + a))
    gradient = _minus(gradient, aims, weight * a)
    if smoothing:
        gradient -= weight * smoothing / classes
    gradient.scatter_(1, y, weight * (smoothing - smoothing / classes - others))
    right = (z.argmax(1, keepdim=True) == y).squeeze(1).to(z.dtype)
    own = weights.own
    if isinstance(own, Tensor):
        sums = p.new_zeros(rows.q.shape).index_add_(0, place, p * own.unsqueeze(1))
        counts = own.new_zeros(len(sums)).index_add_(0, place, own)
    else:  # each counts once
        sums = p.new_zeros(rows.q.shape).index_add_(0, place, p)
        counts = p.new_zeros(len(sums)).index_add_(0, place, p.new_ones(()).expand(len(place)))
    return hard.squeeze(1), residual, right, gradient, RowSums(rows, sums, counts)


class LabelParts(NamedTuple):
    """What follows from the labels (M, C): whether they are the top, their p, and their rows of S.

    ``place`` (M, C) says which of the rows is that of each label.
    """

    is_top: Tensor
    p: Tensor  # 0 for the top
    place: Tensor
    rows: Rows


def label_parts(target: Labels, p: Prediction, rows_of: RowsOf) -> LabelParts:
    """The parts for a prediction, with those rows of S that are needed."""
    y = target.classes
    labels, place = _places(y, p.e.shape[1])
    return LabelParts(y == p.top, p.e.gather(1, y) * p.factor, place, Rows.read(labels, rows_of))


def _of_labels(
    z: Tensor,
    target: Labels,
    p: Prediction,
    parts: LabelParts,
    weights: Weights,
    smoothing: float,
    attraction: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """L_hard, L_res, the hits, and the gradient of the logits, for several labels with their shares."""
    y, shares, a, weight = target.classes, _shares(target, p), weights.residual, _column(weights.prediction)
    is_top, p_y, place, rows = parts
    total, right = shares.sum(1, keepdim=True), (shares * is_top).sum(1, keepdim=True)
    r = (shares / (1 - p_y)).masked_fill_(is_top, 0.0)
    excluded = r.sum(1, keepdim=True)
    hard = total * (p.log_total + p.largest) - (shares * z.gather(1, y)).sum(1, keepdim=True)
    without = (total - right) * p.log_total + right * p.log_others + total * p.largest
    without = without + (shares * torch.log1p(-p_y)).sum(1, keepdim=True)
    aim = rows.aim(attraction)  # (R, K)
    aims = aim[place[:, 0]].mul_(shares[:, :1])
    for column in range(1, y.shape[1]):
        aims.addcmul_(aim[place[:, column]], shares[:, column : column + 1])
    residual = without.squeeze(1) - (aims * z).sum(1)
    hards = (1 - smoothing) * total + smoothing
    by_p = hards + a * excluded
    gradient = p.e * (weight * (p.factor * by_p + a * right / p.sum))
    gradient = _minus(gradient, aims, weight * a)
    if smoothing:
        hard = _smoothed(hard, z, p, smoothing)
        gradient -= weight * smoothing / z.shape[1]
    gradient.scatter_add_(1, p.top, weight * (1 - p.others) * by_p)
    gradient.scatter_add_(1, y, (-weight) * ((1 - smoothing) * shares + a * p_y * r))
    return hard.squeeze(1), residual, right.squeeze(1), gradient


def _minus(x: Tensor, y: Tensor, factor: Tensor | float) -> Tensor:
    """x − factor · y, in their place."""
    return x.sub_(y.mul_(factor)) if isinstance(factor, Tensor) else x.sub_(y, alpha=factor)


def _shares(target: Labels, p: Prediction) -> Tensor:
    return torch.ones_like(target.classes, dtype=p.e.dtype) if target.shares is None else target.shares


def _smoothed(hard: Tensor, z: Tensor, p: Prediction, smoothing: float) -> Tensor:
    return (1 - smoothing) * hard + smoothing * (p.log_total + p.largest - z.mean(1, keepdim=True))


def _of_probabilities(
    z: Tensor, target: Tensor, p: Prediction, aims: Tensor, weights: Weights, smoothing: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same for class probabilities; ``aims``: tQ (M, K)."""
    a, weight = weights.residual, _column(weights.prediction)
    total, right = target.sum(1, keepdim=True), target.gather(1, p.top)
    everywhere, r = _exclusions(target, p)
    buffer = target * z
    hard = total * (p.log_total + p.largest) - buffer.sum(1, keepdim=True)
    without = (total - right) * p.log_total + right * p.log_others + total * p.largest
    torch.log1p(-everywhere.scatter(1, p.top, 0.0), out=buffer)
    residual = without.squeeze(1) + buffer.mul_(target).sum(1) - torch.mul(aims, z, out=buffer).sum(1)
    hards = (1 - smoothing) * total + smoothing
    by_p = hards + a * r.sum(1, keepdim=True)
    gradient = torch.mul(r, -a, out=buffer).add_(by_p).mul_(everywhere)
    gradient.addcmul_(p.e, a * right / p.sum)
    gradient -= aims.mul_(a)
    gradient.sub_(target, alpha=1 - smoothing)
    if smoothing:
        hard = _smoothed(hard, z, p, smoothing)
        gradient -= smoothing / z.shape[1]
    return hard.squeeze(1), residual, right.squeeze(1), gradient.mul_(weight)


def _exclusions(target: Tensor, p: Prediction) -> tuple[Tensor, Tensor]:
    """p (M, K), and r = t / (1 − p), which is 0 for the top."""
    everywhere = (p.e * p.factor).scatter_(1, p.top, 1 - p.others)
    return everywhere, (target / (1 - everywhere)).scatter_(1, p.top, 0.0)


def sums_of_labels(target: Labels, p: Prediction, parts: LabelParts, own: Tensor | float) -> Iterator[RowSums]:
    """The sums over the samples of each class that occurs, as one block."""
    is_top, p_y, place, rows = parts
    own = _shares(target, p) * _column(own)  # (M, C)
    rest = own / (1 - p_y)
    by_e = torch.where(is_top, own / p.sum, rest * p.factor)
    sums = p.e.new_zeros(rows.q.shape)
    for column in range(place.shape[1]):
        sums.index_add_(0, place[:, column], p.e * by_e[:, column : column + 1])
    where = (place * sums.shape[1] + p.top).flatten()
    sums.view(-1).index_add_(0, where, (rest * (1 - p.others)).masked_fill_(is_top, 0.0).flatten())
    counts = own.new_zeros(len(sums)).index_add_(0, place.flatten(), own.flatten())
    yield RowSums(rows, sums, counts)


def sums_of_probabilities(
    target: Tensor, p: Prediction, blocks: Iterable[Rows], own: Tensor | float
) -> Iterator[RowSums]:
    """The same for class probabilities, one block of rows after the other."""
    everywhere, r = _exclusions(target, p)
    share = _column(own)
    r *= share
    of_top, tops = p.e * (target.gather(1, p.top) * share / p.sum), p.top.squeeze(1)
    for rows in blocks:
        labels = rows.labels
        if labels is None:
            sums = (r.T @ everywhere).index_add_(0, tops, of_top)
            counts = (target * share).sum(0)
        else:
            first = int(labels[0])
            inside = ((tops >= first) & (tops < first + len(labels))).nonzero().squeeze(1)
            sums = (r[:, labels].T @ everywhere).index_add_(0, tops[inside] - first, of_top[inside])
            counts = (target[:, labels] * share).sum(0)
        yield RowSums(rows, sums, counts)


def update_of_rows(found: RowSums) -> tuple[Tensor, Tensor]:
    """The gradient Σ own (q − p_res) of each row, (R, K) in full coordinates, and Σ own L_upd."""
    sums = put_own(found.sums, found.rows.labels, 0.0)
    update = -torch.dot(sums.view(-1), found.rows.log_q.view(-1))
    return (found.rows.q * found.counts.unsqueeze(1)).sub_(sums), update


def _without_own(full: Tensor, labels: Tensor | None) -> Tensor:
    """Rows (R, K) without their own columns, (R, K−1)."""
    if labels is not None:
        return erase(full, labels)
    classes = len(full)  # all of them: what lies between the entries of the diagonal
    return full.view(-1)[1:].view(classes - 1, classes + 1)[:, :-1].reshape(classes, classes - 1)
