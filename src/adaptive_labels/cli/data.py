"""`alr data`: what data there is, and how a data set of yours is read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from adaptive_labels.cli.options import Data, Json, with_config, with_reading
from adaptive_labels.cli.usage import Group

if TYPE_CHECKING:
    from adaptive_labels.config import RunConfig


def register(app: typer.Typer) -> None:
    """Add the commands."""
    data = typer.Typer(cls=Group, help="Data sets: list, verify, prepare.", rich_markup_mode=None)
    data.command("list", help="The data sets that have names.")(_list)
    data.command("verify", help="Read DATA, and say what was found, guessed, made and counted.")(_verify)
    data.command("prepare", help="Read and encode DATA as a run would, and say what that gives; get it if need be.")(
        _prepare
    )
    app.add_typer(data, name="data")


def _list(as_json: Json = False) -> None:
    from adaptive_labels.cli.list import _list as list_kind

    list_kind("datasets", as_json)


@with_reading
def _verify(data: Data, config: RunConfig, as_json: Json = False) -> None:
    from adaptive_labels.cli.show import prose
    from adaptive_labels.experiments.build import load_data

    dataset = load_data(config.data)
    counts = {
        name: dict(zip(dataset.classes, split.labels.bincount(minlength=dataset.num_classes).tolist(), strict=True))
        for name, split in dataset.splits()
    }
    if as_json:
        facts = {"name": dataset.name, "kind": dataset.kind, "fingerprint": dataset.fingerprint}
        typer.echo(json.dumps({**facts, "notes": dataset.notes, "examples": counts}, indent=2, ensure_ascii=False))
        return
    typer.echo(
        f"{dataset.name}: {dataset.num_classes} classes of {dataset.kind}s, fingerprint {dataset.fingerprint[:12]}"
    )
    for note in dataset.notes:
        prose(note, indent=2)
    width = max(len("class"), *(len(name) for name in dataset.classes))
    typer.echo(f"{'class':<{width}}  {'train':>8}  {'validation':>10}  {'test':>8}")
    for name in dataset.classes:
        train, validation, test = (counts[split][name] for split in ("train", "validation", "test"))
        typer.echo(f"{name:<{width}}  {train:>8,}  {validation:>10,}  {test:>8,}")


@with_config
def _prepare(data: Data, config: RunConfig) -> None:
    import time

    import torch

    from adaptive_labels.cli.show import prose, show_data
    from adaptive_labels.experiments import build

    _fetch(config)
    began = time.perf_counter()
    dataset = build.load_data(config.data)
    read = time.perf_counter()
    config, choice = build.resolve_for(config, dataset)
    prepared = build.prepare(config, dataset)
    encoded = time.perf_counter()
    show_data(dataset, choice, config)
    first = prepared.train.batch(torch.arange(min(len(dataset.train), 128)))
    shapes = ", ".join(str(tuple(part.shape)) for part in (first if isinstance(first, tuple) else (first,)))
    count = min(len(dataset.train), 128)
    prose(f"Read in {read - began:.1f} s, encoded in {encoded - read:.1f} s; {count} examples are tensors of {shapes}.")


def _fetch(config: RunConfig) -> None:
    """Download a data set that has to be downloaded to the folder that --data-dir names."""
    from pathlib import Path

    from adaptive_labels.cli.show import prose
    from adaptive_labels.data import DATASETS

    named = DATASETS.get(config.data.name)
    if named is None or named.fetch is None or config.data.data_dir is None:
        return
    with _Transfer() as transfer:
        done = named.fetch(Path(config.data.data_dir).expanduser(), transfer)
    for sentence in done:
        prose(sentence)


class _Transfer:
    """How far a download is: a bar on a terminal, elsewhere a line at every tenth."""

    def __enter__(self) -> _Transfer:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        console = Console(stderr=True)
        columns = (TextColumn("downloading"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self.bar = Progress(*columns, console=console) if console.is_terminal else None
        self.tenths = 0
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, done: int, total: int | None) -> None:
        if self.bar is not None:
            if not self.bar.tasks:
                self.bar.start()
                self.bar.add_task("", total=total)
            self.bar.update(self.bar.tasks[0].id, completed=done)
        elif total is not None and 10 * done // total > self.tenths:
            self.tenths = 10 * done // total
            typer.echo(f"downloaded {done / 1e6:,.1f} of {total / 1e6:,.1f} MB", err=True)
