"""What the losses cost, forward and backward, compared with torch's label-smoothed cross entropy.

    python benchmarks/loss.py [--seconds 60] [--shapes 128x10,256x1000] [--growth]

The figures are kept with their date in benchmarks/results/; `--growth` measures and draws how the cost grows instead.

Shapes: N samples, K classes.
"""

import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_labels.lab import tables
from adaptive_labels.lab.machine import usable_cores
from adaptive_labels.lab.report.charts import Axis, Curve, chart_grid, fitting_range, line_chart
from adaptive_labels.lab.report.figures import standalone
from adaptive_labels.lab.words import first_line
from adaptive_labels.losses import AdaptiveLabelLoss, create_loss
from adaptive_labels.losses.fused import kernel as kernels
from measure import (
    RESULTS,
    Row,
    Step,
    aim_words,
    as_csv,
    described,
    grouped,
    make_parser,
    peak_memory,
    timing,
    turns,
)

SHAPES = ((128, 10), (128, 100), (256, 1000), (1024, 1000), (256, 10_000), (256, 100_000))
DENSE = 20_000  # classes up to which S is kept dense here; beyond, rank=32
PLAIN = 1_000  # classes up to which what makes dense gradients of S is measured
SMOOTHING = 0.1
REFERENCE = f"F.cross_entropy(label_smoothing={SMOOTHING})"
SELF, TENSORS = "ALR-S, update=self", "ALR-S, update=self, without the kernel"
UNFUSED = "ALR-S, fused=False"
STEP = "the optimizer's step on S, apart"

# Losses of other packages, timed if they are installed: the package and the class → its module and its argument.
RELATED = {
    "timm: LabelSmoothingCrossEntropy": ("timm.loss", "smoothing"),
    "pytorch-toolbelt: SoftCrossEntropyLoss": ("pytorch_toolbelt.losses", "smooth_factor"),
}
# How the cost grows: the sizes along each axis, what stays fixed, and the losses drawn.
GROWTH_SAMPLES = (16, 64, 256, 1024, 4096)
GROWTH_CLASSES = (10, 100, 1000, 10_000, 100_000)
FIXED_SAMPLES, FIXED_CLASSES = 256, 1000
LINES = (REFERENCE, SELF, TENSORS, UNFUSED)
AXES = {
    "n": f"samples (K = {FIXED_CLASSES:,})",
    "k": f"classes (N = {FIXED_SAMPLES}; rank 32 at 100,000)",
    "threads": f"threads (1024 × {FIXED_CLASSES:,})",
}

# The columns of the tables in docs/speed.md.
COLUMNS = {
    "F.cross_entropy": "`F.cross_entropy`",
    "ALR-S, update=self": 'ALR-S, `update="self"`',
    "ALR-S, update=self, without the kernel": "the same without the kernel",
    "ALR-S, S in the optimizer": "ALR-S, S in the optimizer",
    "ALR-S, fused=False": "ALR-S, `fused=False`",
    "ols, as it is here": "OLS",
    "ls++, as it is here": "Label Smoothing++",
}
PICTURE = Path(__file__).parent.parent / "docs" / "images" / "loss-growth.svg"

Loss = Callable[[Tensor, Tensor], Tensor]


def bench_loss(shapes: Sequence[tuple[int, int]] = SHAPES, seconds: float = 60.0) -> dict[str, Any]:
    """Measure every loss at every shape (N, K); a row for each, with its ratio to the reference.

    ``memory`` is the peak of a step's allocations in units of the logits' size, its gradient included.
    """
    related, missing = _related_losses()
    rows = []
    for n, k in shapes:
        steps = _steps(n, k, related)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "AdaptiveLabelLoss: the residual labels")  # S is timed, not trained
            times = turns(steps, seconds / len(shapes))
        for name, found in times.items():
            memory = None if name == STEP else peak_memory(steps[name]) / (4 * n * k)
            rows.append(_row(n, k, name, found, times[REFERENCE], memory))
        del steps
    return _result(rows, missing)


def bench_growth(
    seconds: float = 60.0,
    samples: Sequence[int] = GROWTH_SAMPLES,
    classes: Sequence[int] = GROWTH_CLASSES,
    threads: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Measure along samples, classes and threads; rows as those of `bench_loss`, with the axis and the threads."""
    before = torch.get_num_threads()
    points = [("n", n, FIXED_CLASSES, before) for n in samples]
    points += [("k", FIXED_SAMPLES, k, before) for k in classes]
    points += [("threads", 1024, FIXED_CLASSES, count) for count in threads or range(1, usable_cores() + 1)]
    rows = []
    try:
        for axis, n, k, count in points:
            torch.set_num_threads(count)
            steps = {name: step for name, step in _steps(n, k, {}).items() if name in LINES}
            times = turns(steps, seconds / len(points))
            for name, found in times.items():
                row = _row(n, k, name, found, times[REFERENCE], None)
                rows.append({"axis": axis, "threads": count, **row})
    finally:
        torch.set_num_threads(before)
    return _result(rows, {})


def _related_losses() -> tuple[dict[str, Loss], dict[str, str]]:
    """The losses of other packages that can be had, and for the others why not."""
    found: dict[str, Loss] = {}
    missing: dict[str, str] = {}
    for name, (module, option) in RELATED.items():
        try:
            found[name] = getattr(import_module(module), name.split(": ")[1])(**{option: SMOOTHING})
        except Exception as error:  # another package may fail in its own way
            missing[name] = f"{type(error).__name__}: {first_line(error)}"
    return found, missing


def _result(rows: list[Row], missing: dict[str, str]) -> dict[str, Any]:
    _, reason = kernels.find()
    unit = "forward + backward, float32; ratios of medians"
    return described(rows, reference=REFERENCE, unit=unit, kernel=reason or "built", not_installed=missing)


def _row(n: int, k: int, name: str, times: list[float], reference_times: list[float], memory: float | None) -> Row:
    found, reference = timing(times), timing(reference_times).median
    limit = limit_of(name, k, reference)
    return {
        "n": n,
        "k": k,
        "loss": name,
        "ratio": found.median / reference,
        "p20": found.p20 / reference,
        "p80": found.p80 / reference,
        "microseconds": 1e6 * found.median,
        "repeats": len(times),
        "memory": memory,
        "limit": None if limit is None else limit / reference,
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


def _steps(n: int, k: int, related: dict[str, Loss]) -> dict[str, Step]:
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
    sparse = k > PLAIN
    steps[f"ALR-S, S in the optimizer{', sparse' if sparse else ''}"] = _step(adaptive(sparse=sparse), z, y)
    steps[STEP] = _optimizer_step(adaptive(sparse=sparse), z, y)
    if not sparse:
        steps[UNFUSED] = _step(adaptive(update="self", fused=False), z, y)
        for method in ("ols", "ls++"):
            steps[f"{method}, as it is here"] = _step(create_loss(method, k), z, y)
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


def _optimizer_step(criterion: AdaptiveLabelLoss, z: Tensor, y: Tensor) -> Step:
    """The step of SGD on S with the gradient of one batch."""
    optimizer = torch.optim.SGD(criterion.parameter_groups(), lr=1e-3)
    criterion(z, y).backward()
    return optimizer.step


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


def draw_growth(result: dict[str, Any]) -> str:
    """The rows of `bench_growth` as an SVG file: milliseconds per step, both scales logarithmic."""
    y = Axis("milliseconds per step, forward + backward", log=True)
    drawn: dict[str, dict[str, Curve]] = {}
    for axis in AXES:
        for name in LINES:
            rows = [row for row in result["rows"] if (row["axis"], row["loss"]) == (axis, name)]
            if rows:
                curve = Curve.of([row[axis] for row in rows], [row["microseconds"] / 1e3 for row in rows])
                drawn.setdefault(axis, {})[name] = curve
    ends = fitting_range([curve for curves in drawn.values() for curve in curves.values()], y)
    styles = {name: place for place, name in enumerate(LINES)}
    charts = []
    for axis, curves in drawn.items():
        values = sorted({value for curve in curves.values() for value in curve.x.tolist()})
        x = Axis(AXES[axis], log=True, ticks={value: f"{value:,.0f}" for value in values})
        charts.append(line_chart(curves, AXES[axis], x, y, styles=styles, y_range=ends, with_legend=False))
    words = f"Along samples, classes and threads, for {', '.join(LINES)}."
    return standalone(chart_grid(charts, "What a step of the losses costs", words, width=320.0, names=styles))


def markdown(rows: list[dict[str, Any]], figure: str) -> str:
    """A table for docs/speed.md: one row per shape, one column per loss; ``figure`` is "ratio" or "memory"."""
    lines = []
    for n, k in dict.fromkeys((row["n"], row["k"]) for row in rows):
        here = {row["loss"]: row for row in rows if (row["n"], row["k"]) == (n, k)}
        cells = [f"{n} × {k:,}", f"{here[REFERENCE]['microseconds']:,.0f}"]
        for name in COLUMNS:
            row, note = here.get(name), ""
            if row is None and f"{name}, sparse" in here:
                row, note = here[f"{name}, sparse"], " (sparse)"
            cells.append("–" if row is None else f"{row[figure]:.2f}{note}")
        lines.append(cells)
    return "\n".join(tables.markdown(["N × K", "reference, µs", *COLUMNS.values()], lines, left=None))


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--shapes", default=",".join(f"{n}x{k}" for n, k in SHAPES), help="NxK,...: samples x classes")
    parser.add_argument("--growth", action="store_true", help="along samples, classes and threads")
    options = parser.parse_args()
    torch.set_num_threads(options.threads or torch.get_num_threads())
    if options.growth:
        result = bench_growth(options.seconds)
        PICTURE.write_text(draw_growth(result), encoding="utf-8")
    else:
        shapes = [(int(n), int(k)) for n, _, k in (shape.partition("x") for shape in options.shapes.split(","))]
        result = bench_loss(shapes, options.seconds)
        print(markdown(result["rows"], "ratio"), markdown(result["rows"], "memory"), sep="\n\n", end="\n\n")
    print(as_text(result))
    day = result["environment"]["date"][:10]
    name = f"{'growth' if options.growth else 'loss'}-{day}.csv"
    (options.csv or RESULTS / name).write_text(as_csv(result), encoding="utf-8")


if __name__ == "__main__":
    main()
