"""Times that a busy machine cannot distort much, the rows they become, and those rows as text and CSV.

The variants take turns, and medians are compared.
"""

import argparse
import itertools
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from adaptive_labels.lab import tables
from adaptive_labels.lab.runs.environment import describe_environment

LEAST_REPEATS = 5
RESULTS = Path(__file__).parent / "results"
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # the profiler warns of memory that it has not seen taken

Step = Callable[[], object]
Row = dict[str, Any]


class Timing(NamedTuple):
    """Seconds of a step: the median, the 20th and the 80th percentile."""

    median: float
    p20: float
    p80: float


def turns(
    steps: Mapping[str, Step], seconds: float, warm_up: int = 3, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """The seconds of every call: each step once per round, in turning order, at least five rounds after a warm-up.

    On a busy machine, take `time.process_time` as the clock: it counts the processor time of all the process's threads.
    """
    for step in steps.values():
        for _ in range(warm_up):
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    order = list(steps)
    end = time.perf_counter() + seconds
    while len(times[order[0]]) < LEAST_REPEATS or time.perf_counter() < end:
        for name in order:
            began = clock()
            steps[name]()
            times[name].append(clock() - began)
        order = [*order[1:], order[0]]
    return times


def timing(times: Sequence[float]) -> Timing:
    """The quantiles of times, or of ratios of times.

    >>> timing([1.0, 2.0, 3.0, 4.0, 100.0])
    Timing(median=3.0, p20=1.8, p80=23.2)
    """
    fifths = statistics.quantiles(times, n=5, method="inclusive")
    return Timing(statistics.median(times), round(fifths[0], 9), round(fifths[3], 9))


def peak_memory(step: Step) -> int:
    """The most bytes that torch had allocated at once during a step, beyond what there was before it.

    >>> peak_memory(lambda: (torch.zeros(1000), torch.zeros(500), None)[2])
    6000
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler reports its own beginning and end
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    results = profile.profiler.kineto_results if profile.profiler is not None else None
    if results is None:
        return 0
    changes = sorted((event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]")
    return int(max(itertools.accumulate((change for _, change in changes), initial=0)))


def peak_of_all(step: Step) -> int:
    """The peak of torch's tensors plus that of numpy's arrays and Python's objects, during a step.

    What other libraries allocate in C, as Pillow does, is not seen.

    >>> 6_000 <= peak_of_all(lambda: (torch.zeros(1000), bytearray(2000))) < 12_000
    True
    """
    tensors = peak_memory(step)
    tracemalloc.start()
    try:
        step()
        return tensors + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def ratio_row(times: Mapping[str, Sequence[float]], name: str, beside: str | None, limit: float | None = None) -> Row:
    """What was measured of a step: its median, and its time as a multiple of that of the step ``beside`` it.

    Ratios are taken round by round, so that slow minutes count for both. ``limit`` is the project's own aim, if any.

    >>> row = ratio_row({"a": [2.0, 20.0, 3.0], "b": [1.0, 10.0, 1.0]}, "a", "b", limit=1.5)
    >>> row["ratio"], row["p80"], row["within"]
    (2.0, 2.6, False)
    """
    each = times[name]
    found = timing([one / other for one, other in zip(each, times[beside or name], strict=True)])
    return {
        "seconds": statistics.median(each),
        "beside": beside,
        "ratio": found.median,
        "p20": found.p20,
        "p80": found.p80,
        "repeats": len(each),
        "limit": limit,
        "within": None if limit is None else found.median <= limit,
    }


def described(rows: list[Row], **facts: Any) -> dict[str, Any]:
    """The rows with what one needs to know about where they come from."""
    return {**facts, "threads": torch.get_num_threads(), "environment": describe_environment(sys.argv), "rows": rows}


def as_csv(result: Mapping[str, Any]) -> str:
    """The rows as comma-separated values, each with the date, the hardware and the versions."""
    environment = result["environment"]
    where = {
        "date": environment["date"],
        "cpu": environment["cpu"]["model"],
        "threads": result["threads"],
        "torch": environment["versions"]["torch"],
        "adaptive-labels": environment["versions"]["adaptive-labels"],
        "commit": environment["commit"],
    }
    where |= {name: result[name] for name in ("kernel", "clock") if name in result}
    names = list(dict.fromkeys([*result["rows"][0], *where]))  # rows of the growth have threads of their own
    cells = ([{**where, **row}[name] for name in names] for row in result["rows"])
    return tables.as_csv(names, [[f"{v:.4g}" if isinstance(v, float) else v for v in row] for row in cells])


def grouped(rows: Sequence[Row], group: Callable[[Row], str], cells: Callable[[Row], list[str]]) -> list[str]:
    """The lines of rows for people, each group of them under its name; a row is five cells."""
    lines = iter(tables.aligned((), [cells(row) for row in rows], left=(0, 4)))
    shown: list[str] = []
    for name, found in itertools.groupby(rows, group):
        shown += ["", name, *(f"  {next(lines)}" for _ in found)]
    return shown


def aim_words(row: Row) -> str:
    """The aim of a row and whether it is met; empty without one."""
    return "" if row["within"] is None else f"aim {row['limit']:.2f}: {'met' if row['within'] else 'MISSED'}"


def as_text(result: Mapping[str, Any]) -> str:
    """The ratio rows of a result for people, each with what was timed, its rate and memory where they are known."""

    def cells(row: Row) -> list[str]:
        beside = f"{row['ratio']:.3f} [{row['p20']:.3f}, {row['p80']:.3f}] × {row['beside']}" if row["beside"] else ""
        rate, peak = row.get("examples_per_second"), row.get("peak_bytes")
        return [
            row[result["name"]],
            f"{1e3 * row['seconds']:,.1f} ms",
            "" if rate is None else f"{rate:,.0f}/s",
            "" if peak is None else f"{peak / 1e6:,.1f} MB",
            "; ".join(words for words in (beside, aim_words(row)) if words),
        ]

    head = f"Times of {result['unit']} [p20, p80]; {result['threads']} threads; {result['clock']}."
    return "\n".join([head, *grouped(result["rows"], lambda row: str(row[result["group"]]), cells)])


def make_parser(words: str | None) -> argparse.ArgumentParser:
    """The options that all measurements have."""
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="about how long to measure in all")
    parser.add_argument("--threads", type=int, default=0, help="threads of torch; 0 leaves them as they are")
    parser.add_argument("--cpu-time", action="store_true", help="count processor time, for a busy machine")
    parser.add_argument("--csv", type=Path, help="where the rows go")
    return parser


def measure(bench: Callable[..., dict[str, Any]], options: argparse.Namespace) -> None:
    """Call ``bench`` with the options that are its own, print the rows, and write them if that is asked for."""
    settings = dict(vars(options))
    csv, threads = settings.pop("csv"), settings.pop("threads")
    torch.set_num_threads(threads or torch.get_num_threads())
    result = bench(**settings)
    print(as_text(result))
    if csv is not None:
        csv.write_text(as_csv(result), encoding="utf-8")
