"""What several commands print."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from adaptive_labels.config import RunConfig
    from adaptive_labels.data import Dataset
    from adaptive_labels.experiments.defaults import Choice

LONGEST_LINE = 110


def show_data(dataset: Dataset, choice: Choice, config: RunConfig) -> None:
    """The data, what was guessed about it, and the recipe."""
    from adaptive_labels.experiments.build import describe

    sizes = f"{len(dataset.train):,} train, {len(dataset.validation):,} validation, {len(dataset.test):,} test"
    prose(f"Data: {dataset.name}, {dataset.num_classes} classes of {dataset.kind}s; {sizes}.")
    for note in dataset.notes:
        prose(note, indent=2)
    prose(f"Recipe: {describe(config)}.")
    for reason in choice.reasons:
        prose(reason, indent=2)


def show_metrics(folder: Path, result: Mapping[str, Any]) -> None:
    """A run's result in a few lines."""
    if result.get("status") == "diverged":
        typer.echo(f"alr: the run diverged: {result['reason']}; it is recorded in {folder}", err=True)
        return
    train = result["metrics"]["train"]
    typer.echo(f"train: accuracy {train['top1']:.2%}{_top5(train)}, NLL {train['nll']:.3f}")
    for split in ("validation", "test"):
        metrics = result["metrics"][split]
        typer.echo(
            f"{split}: accuracy {metrics['top1']:.2%}{_top5(metrics)}, NLL {metrics['nll']:.3f}, "
            f"ECE {metrics['ece']:.3f} (15 bins; {metrics['ece_scaled']:.3f} after temperature scaling)"
        )
    if "wrong_labels" in train:
        typer.echo(
            f"noise: of {train['wrong_labels']:,.0f} labels made wrong, {train['memorised']:.1%} were memorised, "
            f"{train['recovered']:.1%} predicted as they were before"
        )
    _show_networks(result)
    typer.echo(f"{counted(result['epochs'], 'epoch')} in {clock(result['seconds'])}. Run: {folder}")


def _top5(metrics: Mapping[str, float]) -> str:
    return f", top-5 {metrics['top5']:.2%}" if "top5" in metrics else ""


def _show_networks(result: Mapping[str, Any]) -> None:
    """What a run needed beside the network that predicts: its peers with their figures, or its teacher."""
    for number, peer in enumerate(result.get("peers", {}).get("networks", ()), 1):
        metrics = peer["metrics"]
        figures = f"validation {metrics['validation']['top1']:.2%}, test {metrics['test']['top1']:.2%}"
        typer.echo(
            f"network {number}: {peer['model']}, {figures}" + (" (the one that predicts)" if number == 1 else "")
        )
    if "teacher" in result:
        teacher, top1 = result["teacher"], result["teacher"]["top1"]
        figures = f"validation {top1['validation']:.2%}, test {top1['test']:.2%}"
        typer.echo(f"teacher: {teacher['model']}, {figures} ({teacher['run']})")
    parameters = result["parameters"]
    if "teacher" in result or "peers" in result:
        share = parameters["training"] / parameters["network"]
        typer.echo(
            f"parameters: {parameters['network']:,} in the network that predicts, {parameters['training']:,} needed in "
            f"training ({share:.3g} times as many)"
        )


def prose(text: str, indent: int = 0) -> None:
    """Print a sentence: on a terminal broken between words, elsewhere on one line for grep."""
    margin = " " * indent
    if sys.stdout.isatty():
        width = min(shutil.get_terminal_size().columns, LONGEST_LINE)
        text = textwrap.fill(text, width, subsequent_indent=margin + "  ", initial_indent=margin)
        typer.echo(text)
    else:
        typer.echo(margin + text)


def block(text: str) -> None:
    """Print lines that are laid out already, a table for example, with no blank line after them."""
    typer.echo(text.rstrip("\n"))


def counted(number: int, thing: str) -> str:
    """1 epoch, 2 epochs."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def clock(seconds: float) -> str:
    """A time in words: 0.5 s, 45 s, 3 min, 2 h 5 min."""
    if seconds < 9.95:
        return f"{max(seconds, 0.1):.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
