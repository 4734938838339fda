"""What AdaptiveLabelLoss costs: forward, backward and the move of S, beside torch's cross entropy.

    python benchmarks/loss.py [--seconds 60] [--shapes 128x10,256x1000] [--growth] [--threads 1]

Times are of the processor, so that other programs on the machine distort them little. The figures are kept with their
date in benchmarks/results/; `--growth` measures and draws how the cost grows instead.

Shapes: N samples, K classes.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from adaptive_labels.lab import tables
from adaptive_labels.lab.report.charts import Axis, Curve, chart_grid, fitting_range, line_chart
from adaptive_labels.lab.report.figures import standalone
from adaptive_labels.losses import AdaptiveLabelLoss, LowRankAdaptiveLabelLoss
from adaptive_labels.losses.fused import kernel as kernels
from measure import RESULTS, Row, Step, aim_words, as_csv, described, grouped, make_parser, peak_memory, timing, turns

SHAPES = ((128, 10), (128, 100), (256, 1000), (1024, 1000), (256, 10_000))
DENSE = 20_000  # classes up to which S is kept dense; beyond, rank 32
PROBABILITIES = 1000  # classes up to which dense probabilities are measured: their matrix products grow as K²
SMOOTHING = 0.1
LABELS, PAIRS, SOFT = "labels", "two labels", "probabilities"
REFERENCE, PRODUCTS = "F.cross_entropy", "the two matrix products"
KERNEL, TORCH = "ALR", "ALR without the kernel"
# The project's own aims, as multiples of the reference: by target and way, up to 999 classes and from 1,000.
AIMS = {(LABELS, KERNEL): (1.3, 1.0), (LABELS, TORCH): (2.2, 3.2), (PAIRS, KERNEL): (3.5, 2.0), (PAIRS, TORCH): (6, 6)}
COLUMNS = [(target, way) for target in (LABELS, PAIRS) for way in (KERNEL, TORCH)]

GROWTH = {"n": [(n, 1000) for n in (16, 64, 256, 1024)], "k": [(256, k) for k in (10, 100, 1000, 10_000, 100_000)]}
AXES = {"n": "samples (K = 1,000)", "k": "classes (N = 256; rank 32 at 100,000)"}
PICTURE = Path(__file__).parent.parent / "docs" / "images" / "loss-growth.svg"


def bench_loss(shapes: Sequence[tuple[int, int]] = SHAPES, seconds: float = 60.0) -> dict[str, Any]:
    """A row for every shape (N, K), form of target and way to compute, with its ratio to the reference.

    ``memory`` is the peak of a step's allocations in units of the logits' size, the gradient included.
    """
    rows: list[Row] = []
    for n, k in shapes:
        forms = (LABELS, PAIRS, SOFT) if k <= PROBABILITIES else (LABELS, PAIRS)
        for target in forms:
            steps = steps_of(n, k, target)
            times = turns(steps, seconds / len(shapes) / len(forms), clock=time.process_time)
            rows += [_row(n, k, target, name, times, steps) for name in steps]
    return _result(rows)


def bench_growth(seconds: float = 60.0) -> dict[str, Any]:
    """The same for labels, along samples and classes, with the axis."""
    rows: list[Row] = []
    for axis, shapes in GROWTH.items():
        for n, k in shapes:
            steps = steps_of(n, k, LABELS)
            times = turns(steps, seconds / 9, clock=time.process_time)
            rows += [{"axis": axis, **_row(n, k, LABELS, name, times, None)} for name in steps]
    return _result(rows)


def steps_of(n: int, k: int, target: str) -> dict[str, Step]:
    """The steps to be timed with one form of target, by name."""
    generator = torch.Generator().manual_seed(0)
    z, (y, other) = 2 * torch.randn(n, k, generator=generator), torch.randint(k, (2, n), generator=generator)
    given: Any = y
    smoothing, theirs = (SMOOTHING, y) if target == LABELS else (0.0, torch.randn(n, k, generator=generator).softmax(1))
    if target == PAIRS:
        given, theirs = (y, other, 0.3), 0.3 * F.one_hot(y, k) + 0.7 * F.one_hot(other, k)
    elif target == SOFT:
        given = theirs

    def made() -> AdaptiveLabelLoss:
        return AdaptiveLabelLoss(k, smoothing) if k <= DENSE else LowRankAdaptiveLabelLoss(k, 32, smoothing)

    def without_kernel(step: Step) -> Step:
        def without() -> None:
            with kernels.switched_off():
                step()

        return without

    steps = {REFERENCE: _step(lambda a, b: F.cross_entropy(a, b, label_smoothing=smoothing), z, theirs)}
    if target == SOFT:
        table = torch.rand(k, k)
        steps[PRODUCTS] = lambda: (theirs @ table, theirs.T @ z)
    else:
        steps[KERNEL] = _step(made(), z, given)
    return steps | {TORCH: without_kernel(_step(made(), z, given))}


def _step(loss: Callable[[Tensor, Any], Tensor], z: Tensor, target: Any) -> Step:
    def step() -> None:
        logits = z.detach().requires_grad_()
        loss(logits, target).backward()  # type: ignore[no-untyped-call]

    return step


def _row(n: int, k: int, target: str, name: str, times: dict[str, list[float]], steps: Any) -> Row:
    found, reference = timing(times[name]), timing(times[REFERENCE]).median
    aims = AIMS.get((target, name))
    limit = None if aims is None else aims[k >= 1000]
    if target == SOFT and name == TORCH:  # 5, and half as much again as the products
        limit = 5 + 1.5 * timing(times[PRODUCTS]).median / reference
    return {
        "n": n,
        "k": k,
        "target": target,
        "loss": name,
        "ratio": found.median / reference,
        "p20": found.p20 / reference,
        "p80": found.p80 / reference,
        "microseconds": 1e6 * found.median,
        "repeats": len(times[name]),
        "memory": peak_memory(steps[name]) / (4 * n * k) if steps else None,
        "limit": limit,
        "within": None if limit is None else found.median <= limit * reference,
    }


def _result(rows: list[Row]) -> dict[str, Any]:
    _, reason = kernels.find()
    unit = "forward + backward + the move of S, float32, processor time; ratios of medians"
    return described(rows, reference=REFERENCE, unit=unit, kernel=reason or "built")


def as_text(result: dict[str, Any]) -> str:
    """The result for people."""

    def cells(row: Row) -> list[str]:
        spread = f"{row['ratio']:.2f} [{row['p20']:.2f}, {row['p80']:.2f}]"
        memory = "" if row["memory"] is None else f"{row['memory']:.1f} × the logits"
        return [row["target"], row["loss"], spread, f"{row['microseconds']:,.0f} µs", memory, aim_words(row)]

    lines = [f"Ratios to {result['reference']}, {result['unit']}; {result['threads']} threads; median [p20, p80]."]
    lines += grouped(result["rows"], lambda row: f"{row['n']} × {row['k']:,}", cells)
    if result["kernel"] != "built":
        lines += ["", f"Without the kernel: {result['kernel']}."]
    return "\n".join(lines)


def draw_growth(result: dict[str, Any]) -> str:
    """The rows of `bench_growth` as an SVG file: milliseconds per step, both scales logarithmic."""
    y, drawn = Axis("milliseconds per step", log=True), {}
    for axis in AXES:
        for name in (REFERENCE, KERNEL, TORCH):
            rows = [row for row in result["rows"] if (row["axis"], row["loss"]) == (axis, name)]
            curve = Curve.of([row[axis] for row in rows], [row["microseconds"] / 1e3 for row in rows])
            drawn.setdefault(axis, {})[name] = curve
    ends = fitting_range([curve for curves in drawn.values() for curve in curves.values()], y)
    styles, charts = {name: place for place, name in enumerate((REFERENCE, KERNEL, TORCH))}, []
    for axis, curves in drawn.items():
        values = sorted({value for curve in curves.values() for value in curve.x.tolist()})
        x = Axis(AXES[axis], log=True, ticks={value: f"{value:,.0f}" for value in values})
        charts.append(line_chart(curves, AXES[axis], x, y, styles=styles, y_range=ends, with_legend=False))
    words = "Forward, backward and the move of S, along samples and classes."
    return standalone(chart_grid(charts, "What a step of the loss costs", words, width=320.0, names=styles))


def markdown(rows: list[Row]) -> str:
    """The table of docs/speed.md: one row per shape."""
    lines = []
    for n, k in dict.fromkeys((row["n"], row["k"]) for row in rows):
        here = {(row["target"], row["loss"]): row for row in rows if (row["n"], row["k"]) == (n, k)}
        cells = [f"{n} × {k:,}", *(f"{here[target, REFERENCE]['microseconds']:,.0f}" for target in (LABELS, PAIRS))]
        cells += [f"{here[column]['ratio']:.2f}" for column in COLUMNS]
        soft = here.get((SOFT, TORCH))
        cells.append("–" if soft is None else f"{soft['ratio']:.1f} ({here[SOFT, PRODUCTS]['ratio']:.1f})")
        lines.append([*cells, f"{here[LABELS, KERNEL]['memory']:.1f}"])
    heads = ["N × K", "CE, µs", "CE, two labels", *(f"{target}, {way}" for target, way in COLUMNS)]
    return "\n".join(tables.markdown([*heads, "probabilities (products)", "memory"], lines, left=None))


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--shapes", default=",".join(f"{n}x{k}" for n, k in SHAPES), help="NxK,...: samples x classes")
    parser.add_argument("--growth", action="store_true", help="along samples and classes")
    options = parser.parse_args()
    torch.set_num_threads(options.threads or torch.get_num_threads())
    if options.growth:
        result = bench_growth(options.seconds)
        PICTURE.write_text(draw_growth(result), encoding="utf-8")
    else:
        shapes = [(int(n), int(k)) for n, _, k in (shape.partition("x") for shape in options.shapes.split(","))]
        result = bench_loss(shapes, options.seconds)
        print(markdown(result["rows"]), end="\n\n")
    print(as_text(result))
    name = f"{'growth' if options.growth else 'loss'}-{result['environment']['date'][:10]}.csv"
    (options.csv or RESULTS / name).write_text(as_csv(result), encoding="utf-8")


if __name__ == "__main__":
    main()
