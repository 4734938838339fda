"""The losses' cost, forward and backward, as ratios to torch's label-smoothed cross entropy on the same logits.

The variants take turns in one process, so that a busy machine slows all of them alike; medians with p20 and p80.

    python benchmarks/loss.py [--seconds 20] [--json]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from adaptive_labels.criteria import create_criterion

SHAPES = ((128, 10), (128, 100), (256, 1000))
VARIANTS: dict[str, tuple[str, dict]] = {
    "alr-s": ("alr-s", {}),
    "alr-s, update=self": ("alr-s", {"update": "self"}),
    "alr": ("alr", {}),
    "slr": ("slr", {}),
    "baseline": ("baseline", {}),
    "ols": ("ols", {}),
    "ls++": ("ls++", {}),
    "complement-entropy": ("complement-entropy", {}),
}
REFERENCE = "F.cross_entropy(label_smoothing=0.1)"


def steps(n: int, k: int) -> dict[str, Callable[[], None]]:
    z, y = torch.randn(n, k), torch.randint(k, (n,))

    def step_of(loss: Callable[[Tensor, Tensor], Tensor], parameters: list[Tensor]) -> Callable[[], None]:
        def step() -> None:
            inputs = z.detach().requires_grad_()
            loss(inputs, y).backward()
            for parameter in parameters:
                parameter.grad = None

        return step

    made = {REFERENCE: step_of(lambda a, b: torch.nn.functional.cross_entropy(a, b, label_smoothing=0.1), [])}
    for name, (method, options) in VARIANTS.items():
        criterion = create_criterion(method, k, **options)
        made[name] = step_of(criterion, list(criterion.parameters()))
    return made


def measure(n: int, k: int, seconds: float) -> dict[str, list[float]]:
    made = steps(n, k)
    for step in made.values():
        for _ in range(5):
            step()
    times: dict[str, list[float]] = {name: [] for name in made}
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for name, step in made.items():
            began = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - began)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="in all")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for n, k in SHAPES:
        times = measure(n, k, options.seconds / len(SHAPES))
        base = statistics.median(times[REFERENCE])
        for name, each in times.items():
            low, middle, high = (
                statistics.quantiles(each, n=10)[1],
                statistics.median(each),
                statistics.quantiles(each, n=10)[7],
            )
            row = {"n": n, "k": k, "loss": name, "ratio": middle / base, "microseconds": 1e6 * middle}
            rows.append({**row, "p20": low / base, "p80": high / base, "repeats": len(each)})
    hardware = {"torch": torch.__version__, "threads": torch.get_num_threads(), "machine": platform.machine()}
    if options.json:
        print(json.dumps({"reference": REFERENCE, **hardware, "rows": rows}, indent=2))
        return
    print(f"Ratios to {REFERENCE}; torch {hardware['torch']}, {hardware['threads']} threads.")
    for row in rows:
        shape = f"{row['n']} × {row['k']}"
        spread = f"[{row['p20']:.2f}, {row['p80']:.2f}]"
        print(f"{shape:<12} {row['loss']:<38} {row['ratio']:5.2f}  {spread:<14} {row['microseconds']:8.0f} µs")


if __name__ == "__main__":
    main()
