"""`alr bench`: this machine's figures, as ratios to a named reference."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from adaptive_labels.cli.options import Json
from adaptive_labels.cli.usage import Group


def register(app: typer.Typer) -> None:
    """Add the commands."""
    bench = typer.Typer(
        cls=Group, help="This machine's figures, as ratios to a named reference.", rich_markup_mode=None
    )
    bench.callback()(_nothing)
    bench.command("loss", help="What the losses cost beside torch's label-smoothed cross entropy.")(_loss)
    app.add_typer(bench, name="bench")


def _nothing() -> None:
    """Keep `loss` a command of its own while it is the only one."""


def _loss(
    shapes: Annotated[
        str, typer.Option(metavar="NxK,…", help="Samples x classes of the logits; the usual six if not given.")
    ] = "",
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to measure, about, in all.")] = 60.0,
    threads: Annotated[int, typer.Option(min=0, help="Of torch; 0 leaves them as they are.")] = 0,
    csv: Annotated[Path | None, typer.Option(help="Write the rows to this file as well.")] = None,
    growth: Annotated[
        Path | None, typer.Option(help="Measure how the cost grows with N, K and threads, and draw it (SVG).")
    ] = None,
    as_json: Json = False,
) -> None:
    wanted = _shapes(shapes) if shapes else None
    for path, kind in ((csv, ".csv"), (growth, ".svg")):
        if path is not None and (path.suffix != kind or not path.absolute().parent.is_dir()):
            raise ValueError(f"{path}: must be a file {kind} in a folder that exists")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # the profiler warns of memory that it has not seen taken
    import torch

    from adaptive_labels.bench import growth as growing, loss as losses

    if threads:
        torch.set_num_threads(threads)
    if growth is not None:
        result = growing.bench_growth(seconds)
        growth.write_text(growing.draw(result), encoding="utf-8")
    else:
        result = losses.bench_loss(wanted or losses.SHAPES, seconds)
    if csv is not None:
        csv.write_text(losses.as_csv(result), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        typer.echo(losses.as_text(result))


def _shapes(text: str) -> list[tuple[int, int]]:
    shapes = []
    for part in text.split(","):
        sizes = part.strip().lower().replace("×", "x").split("x")
        if len(sizes) != 2 or not all(size.isdecimal() and int(size) > 0 for size in sizes) or int(sizes[1]) < 2:
            raise ValueError(f"--shapes: {part.strip()!r} is no shape NxK with N ≥ 1 and K ≥ 2, such as 128x10")
        shapes.append((int(sizes[0]), int(sizes[1])))
    return shapes
