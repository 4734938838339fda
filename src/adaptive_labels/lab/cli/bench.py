"""`alr bench`: this machine's figures, as ratios to a named reference."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from adaptive_labels.errors import UserError
from adaptive_labels.lab.cli.app import add_group
from adaptive_labels.lab.cli.options import Json, count, option, split_names
from adaptive_labels.lab.cli.output import show_json

Seconds = Annotated[float, typer.Option(min=0.1, help="About how long to measure in all.")]
Threads = Annotated[int, typer.Option(min=0, help="Threads of torch; 0 leaves them as they are.")]
Csv = Annotated[Path | None, option("FILE", "Write the rows to this CSV file as well.")]
CpuTime = Annotated[bool, option(None, "Count processor time, for a busy machine.", "--cpu-time")]

group = add_group("bench", "This machine's figures, as ratios to a named reference.")


@group.command()
def loss(
    shapes: Annotated[str, option("NxK,…", "Samples x classes of the logits; by default six shapes.")] = "",
    seconds: Seconds = 60.0,
    threads: Threads = 0,
    csv: Csv = None,
    growth: Annotated[Path | None, option("SVG", "Draw how the cost grows with N, K and threads.")] = None,
    as_json: Json = False,
) -> None:
    """What the losses cost beside torch's label-smoothed cross entropy."""
    wanted = _shapes(shapes) if shapes else None
    if wanted and growth is not None:
        raise UserError("--shapes and --growth exclude each other: how the cost grows is measured at shapes of its own")
    _check_file(growth, ".svg")
    _prepare(csv, threads)
    from adaptive_labels.lab.benchmarks import loss as losses
    from adaptive_labels.lab.files import write_bytes

    if growth is not None:
        result = losses.bench_growth(seconds)
        write_bytes(growth, losses.draw_growth(result).encode())
    else:
        result = losses.bench_loss(wanted or losses.SHAPES, seconds)
    _show(result, csv, as_json, losses.as_text)


@group.command()
def train(
    networks: Annotated[str, option("NAME,…", "By default two for images and one for texts.")] = "",
    full: Annotated[bool, option(None, "preact-resnet18 at its full width in the place of w16.", "--full")] = False,
    compile: Annotated[bool, option(None, "Measure torch.compile, too; takes minutes.", "--compile")] = False,
    aims_only: Annotated[bool, option(None, "Measure only what has an aim, more often.", "--aims-only")] = False,
    examples: Annotated[int, typer.Option(min=0, help="Examples per epoch; 0 is the usual number.")] = 0,
    batch: Annotated[int, typer.Option(min=0, help="Examples per step; 0 is the usual number.")] = 0,
    seconds: Seconds = 180.0,
    threads: Threads = 1,
    cpu_time: CpuTime = False,
    csv: Csv = None,
    as_json: Json = False,
) -> None:
    """Whole steps: the loop beside a bare one, ALR-S beside the baseline."""
    if full and networks:
        raise UserError("--full and --networks exclude each other: name preact-resnet18 among the networks")
    if compile and aims_only:
        raise UserError("--compile and --aims-only exclude each other: a compiled network has no aim")
    _prepare(csv, threads)
    from adaptive_labels.lab.benchmarks import train as training

    chosen = split_names(networks) or training.NETWORKS
    if full:
        chosen = (training.FULL, *chosen[1:])
    result = training.bench_train(
        chosen,
        seconds,
        examples=examples or None,
        batch=batch or None,
        compiled=compile,
        cpu_time=cpu_time,
        aims_only=aims_only,
    )
    _show(result, csv, as_json)


@group.command()
def data(
    batch: Annotated[int, count("Images per batch.")] = 128,
    images: Annotated[int, count("Images in memory.")] = 10_000,
    texts: Annotated[int, count("Texts that are encoded at once.")] = 5_000,
    seconds: Seconds = 40.0,
    threads: Threads = 1,
    cpu_time: CpuTime = False,
    csv: Csv = None,
    as_json: Json = False,
) -> None:
    """Images and texts per second, beside Pillow and scikit-learn."""
    _prepare(csv, threads)
    from adaptive_labels.lab.benchmarks import data

    result = data.bench_data(seconds, batch=batch, images=images, texts=texts, cpu_time=cpu_time)
    _show(result, csv, as_json)


@group.command()
def start(seconds: Seconds = 60.0, csv: Csv = None, as_json: Json = False) -> None:
    """How long imports and commands take to start."""
    _check_file(csv, ".csv")
    from adaptive_labels.lab.benchmarks import start

    _show(start.bench_start(seconds), csv, as_json)


def _prepare(csv: Path | None, threads: int = 0) -> None:
    _check_file(csv, ".csv")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # the profiler warns of memory that it has not seen taken
    import torch

    if threads:
        torch.set_num_threads(threads)


def _check_file(path: Path | None, kind: str) -> None:
    if path is not None and (path.suffix != kind or not path.absolute().parent.is_dir()):
        raise UserError(f"{path}: must be a file {kind} in a folder that exists")


def _show(
    result: dict[str, Any],
    csv: Path | None,
    as_json: bool,
    words: Callable[[dict[str, Any]], str] | None = None,
) -> None:
    from adaptive_labels.lab.benchmarks.measure import as_csv, as_text
    from adaptive_labels.lab.files import write_bytes

    if csv is not None:
        write_bytes(csv, as_csv(result).encode())
    if as_json:
        show_json(result)
    else:
        typer.echo((words or as_text)(result))


def _shapes(text: str) -> list[tuple[int, int]]:
    shapes = []
    for part in text.split(","):
        sizes = part.strip().lower().replace("×", "x").split("x")
        if len(sizes) != 2 or not all(size.isdecimal() and int(size) > 0 for size in sizes) or int(sizes[1]) < 2:
            raise UserError(f"--shapes: {part.strip()!r} is no shape NxK with N ≥ 1 and K ≥ 2, such as 128x10")
        shapes.append((int(sizes[0]), int(sizes[1])))
    return shapes
