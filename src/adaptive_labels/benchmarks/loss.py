"""`alr bench loss`: what the losses cost, forward and backward, beside torch's label-smoothed cross entropy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_labels.benchmarks.measure import Row, Timing, aim_words, described, grouped, peak_memory, take_turns
from adaptive_labels.losses import AdaptiveLabelLoss, create_loss
from adaptive_labels.losses.fused import kernel as kernels

SHAPES = ((128, 10), (128, 100), (256, 1000), (1024, 1000), (256, 10_000), (256, 100_000))
DENSE = 20_000  # classes up to which S is kept dense here; beyond, rank=32
PLAIN = 1_000  # classes up to which what makes dense gradients of S is measured
SMOOTHING = 0.1
REFERENCE = f"F.cross_entropy(label_smoothing={SMOOTHING})"
SELF, TENSORS = "ALR-S, update=self", "ALR-S, update=self, without the kernel"
STEP = "the optimizer's step on S, apart"

# Losses of other packages, timed if they are installed: the module, the class and its arguments.
RELATED: dict[str, tuple[str, str, dict[str, float]]] = {
    "timm: LabelSmoothingCrossEntropy": ("timm.loss", "LabelSmoothingCrossEntropy", {"smoothing": SMOOTHING}),
    "pytorch-toolbelt: SoftCrossEntropyLoss": (
        "pytorch_toolbelt.losses",
        "SoftCrossEntropyLoss",
        {"smooth_factor": SMOOTHING},
    ),
}

Step = Callable[[], None]
Loss = Callable[[Tensor, Tensor], Tensor]


def bench_loss(shapes: Sequence[tuple[int, int]] = SHAPES, seconds: float = 60.0) -> dict[str, Any]:
    """Measure every loss at every shape (N, K); a row for each, with its ratio to the reference.

    ``memory`` is the peak of a step's allocations in units of the logits' size, its gradient included.
    """
    related, missing = related_losses()
    rows = []
    for n, k in shapes:
        steps = steps_of(n, k, related)
        timings = take_turns(steps, seconds / len(shapes))
        reference = timings[REFERENCE]
        for name, found in timings.items():
            memory = None if name == STEP else peak_memory(steps[name]) / (4 * n * k)
            rows.append(row_of(n, k, name, found, reference, memory))
        del steps
    return result_of(rows, missing)


def related_losses() -> tuple[dict[str, Loss], dict[str, str]]:
    """The losses of other packages that can be had, and for the others why not."""
    found: dict[str, Loss] = {}
    missing: dict[str, str] = {}
    for name, (module, loss, options) in RELATED.items():
        try:
            found[name] = getattr(import_module(module), loss)(**options)
        except Exception as error:  # another package may fail in its own way
            missing[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return found, missing


def result_of(rows: list[Row], missing: dict[str, str]) -> dict[str, Any]:
    """The rows with what one needs to know about where they come from."""
    _, reason = kernels.find()
    unit = "forward + backward, float32; ratios of medians"
    return described(rows, reference=REFERENCE, unit=unit, kernel=reason or "built", not_installed=missing)


def row_of(n: int, k: int, name: str, found: Timing, reference: Timing, memory: float | None) -> Row:
    """A row of the result: one loss at one shape."""
    limit = limit_of(name, k, reference.median)
    return {
        "n": n,
        "k": k,
        "loss": name,
        "ratio": found.median / reference.median,
        "p20": found.p20 / reference.median,
        "p80": found.p80 / reference.median,
        "microseconds": 1e6 * found.median,
        "repeats": found.repeats,
        "memory": memory,
        "limit": None if limit is None else limit / reference.median,
        "within": None if limit is None else found.median <= limit,
    }


def limit_of(name: str, k: int, reference: float) -> float | None:
    """The seconds that a loss may take by the project's own aims, or None where there is none.

    >>> limit_of(SELF, 100, 50e-6), limit_of(SELF, 10_000, 2e-3), limit_of(TENSORS, 10, 50e-6)
    (0.00015, 0.004, 0.0002)
    """
    if name == TENSORS:
        return 4 * reference
    if name != SELF:
        return None
    if k <= 1000:
        return max(1.5 * reference, round(reference + 100e-6, 12))
    return (2 if k <= DENSE else 3) * reference


def steps_of(n: int, k: int, related: dict[str, Loss]) -> dict[str, Step]:
    """The steps to be timed, by name."""
    generator = torch.Generator().manual_seed(0)
    z, y = 2 * torch.randn(n, k, generator=generator), torch.randint(k, (n,), generator=generator)
    rank = None if k <= DENSE else 32

    def adaptive(**options: Any) -> AdaptiveLabelLoss:
        return AdaptiveLabelLoss(k, SMOOTHING, rank=rank, **options)

    steps = {REFERENCE: _step(lambda a, b: F.cross_entropy(a, b, label_smoothing=SMOOTHING), z, y)}
    steps["F.cross_entropy"] = _step(F.cross_entropy, z, y)
    steps[SELF] = _step(adaptive(update="self"), z, y)
    steps[TENSORS] = _without_kernel(_step(adaptive(update="self"), z, y))
    if k <= PLAIN:
        steps["ALR-S, S in the optimizer"], steps[STEP] = _with_optimizer(adaptive(), z, y)
        steps["ALR-S, fused=False"] = _step(adaptive(update="self", fused=False), z, y)
        for method in ("ols", "ls++"):
            steps[f"{method}, as it is here"] = _step(create_loss(method, k), z, y)
    else:
        steps["ALR-S, S in the optimizer, sparse"], steps[STEP] = _with_optimizer(adaptive(sparse=True), z, y)
    for name, other in related.items():
        steps[name] = _step(other, z, y)
    return steps


def _step(loss: Loss, z: Tensor, y: Tensor) -> Step:
    """Forward and backward; the gradients are dropped, as ``zero_grad`` drops them."""
    parameters = list(loss.parameters()) if isinstance(loss, torch.nn.Module) else []

    def step() -> None:
        logits = z.detach().requires_grad_()
        loss(logits, y).backward()  # type: ignore[no-untyped-call]
        for parameter in parameters:
            parameter.grad = None

    return step


def _without_kernel(step: Step) -> Step:
    def without() -> None:
        with kernels.switched_off():
            step()

    return without


def _with_optimizer(criterion: AdaptiveLabelLoss, z: Tensor, y: Tensor) -> tuple[Step, Step]:
    """The loss that leaves S to the optimizer, and the step of SGD on S with the gradient of one batch."""
    twin = AdaptiveLabelLoss(criterion.num_classes, SMOOTHING, sparse=criterion.sparse, rank=criterion.rank)
    optimizer = torch.optim.SGD(twin.parameter_groups(), lr=1e-3)
    twin(z, y).backward()
    return _step(criterion, z, y), optimizer.step


def as_text(result: dict[str, Any]) -> str:
    """The result for people."""

    def shape(row: Row) -> str:
        return f"{row['n']} × {row['k']:,}" + (f", {row['threads']} threads" if "threads" in row else "")

    def cells(row: Row) -> list[str]:
        spread = f"{row['ratio']:.2f} [{row['p20']:.2f}, {row['p80']:.2f}]"
        memory = "" if row["memory"] is None else f"{row['memory']:.1f} × the logits"
        return [row["loss"], spread, f"{row['microseconds']:,.0f} µs", memory, aim_words(row)]

    lines = [f"Ratios to {result['reference']}, {result['unit']}; {result['threads']} threads; median [p20, p80]."]
    lines += grouped(result["rows"], shape, cells)
    if result["kernel"] != "built":
        lines += ["", f"Without the kernel: {result['kernel']}."]
    for name, why in result["not_installed"].items():
        lines += ["", f"Not measured: {name} ({why})."]
    return "\n".join(lines)
