"""What several commands print."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from adaptive_labels.config import RunConfig
    from adaptive_labels.data import Dataset
    from adaptive_labels.defaults import Choice


def show_data(dataset: Dataset, choice: Choice, config: RunConfig) -> None:
    """The data, what was guessed about it, and the recipe."""
    from adaptive_labels.build import describe

    sizes = f"{len(dataset.train):,} train, {len(dataset.validation):,} validation, {len(dataset.test):,} test"
    typer.echo(f"Data: {dataset.name}, {dataset.num_classes} classes of {dataset.kind}s; {sizes}.")
    for note in dataset.notes:
        typer.echo(f"  {note}")
    typer.echo(f"Recipe: {describe(config)}.")
    for reason in choice.reasons:
        typer.echo(f"  {reason}")


def show_metrics(folder: Path, result: Mapping[str, Any]) -> None:
    """A run's result in a few lines."""
    if result.get("status") == "diverged":
        typer.echo(f"Diverged: {result['reason']}. Recorded in {folder}.", err=True)
        return
    for split in ("validation", "test"):
        metrics = result["metrics"][split]
        top5 = f", top-5 {metrics['top5']:.2%}" if "top5" in metrics else ""
        typer.echo(
            f"{split}: accuracy {metrics['top1']:.2%}{top5}, NLL {metrics['nll']:.3f}, "
            f"ECE {metrics['ece']:.3f} (15 bins; {metrics['ece_scaled']:.3f} after temperature scaling)"
        )
    noise = result["metrics"].get("train")
    if noise:
        typer.echo(
            f"train: of {noise['wrong_labels']:,.0f} labels made wrong, {noise['memorised']:.1%} were memorised, "
            f"{noise['recovered']:.1%} predicted as they were before"
        )
    typer.echo(f"{result['epochs']} epochs in {result['seconds']:.1f} s. Run: {folder}")


def clock(seconds: float) -> str:
    """A time in words: 45 s, 3 min, 2 h 5 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
