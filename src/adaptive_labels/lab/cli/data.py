"""`alr data`: list the named data sets, and check how your own data is read."""

import time
from functools import partial
from typing import TYPE_CHECKING

import typer

from adaptive_labels.lab.cli.app import add_group
from adaptive_labels.lab.cli.list import list_names
from adaptive_labels.lab.cli.options import READING, Data, Json, with_config
from adaptive_labels.lab.cli.output import prose, show_data, show_json
from adaptive_labels.lab.cli.progress import show_encoding, show_progress
from adaptive_labels.lab.tables import aligned

if TYPE_CHECKING:
    from adaptive_labels.lab.config import RunConfig

group = add_group("data", "Data sets: list, verify, prepare.")


@group.command("list")
def list_datasets(as_json: Json = False) -> None:
    """The data sets that have names."""
    list_names("datasets", as_json)


@group.command()
@partial(with_config, shared=READING)
def verify(data: Data, config: "RunConfig", as_json: Json = False) -> None:
    """Read DATA, and say what was found, chosen, made and counted."""
    from adaptive_labels.lab.experiments.build import load_data

    dataset = load_data(config.data)
    counts = {
        name: dict(zip(dataset.classes, split.labels.bincount(minlength=dataset.num_classes).tolist(), strict=True))
        for name, split in dataset.splits()
    }
    if as_json:
        facts = {"name": dataset.name, "kind": dataset.kind, "fingerprint": dataset.fingerprint}
        show_json({**facts, "notes": dataset.notes, "examples": counts})
        return
    typer.echo(
        f"{dataset.name}: {dataset.num_classes} classes of {dataset.kind}s, fingerprint {dataset.fingerprint[:12]}"
    )
    for note in dataset.notes:
        prose(note, indent=2)
    rows = [[name, *(f"{split[name]:,}" for split in counts.values())] for name in dataset.classes]
    typer.echo("\n".join(aligned(["class", *counts], rows)))


@group.command("prepare")
@with_config
def read_and_encode(data: Data, config: "RunConfig") -> None:
    """Read and encode DATA as a run would, and say what that gives. Download it first if need be."""
    import torch

    from adaptive_labels.lab.experiments import build
    from adaptive_labels.lab.experiments.resolve import resolve_for

    _fetch(config)
    began = time.perf_counter()
    dataset = build.load_data(config.data, config.model)
    read = time.perf_counter()
    config, reasons = resolve_for(config, dataset)
    with show_encoding() as progress:
        prepared = build.prepare_data(config, dataset, progress)
    encoded = time.perf_counter()
    show_data(dataset, config, reasons)
    count = min(len(dataset.train), 128)
    first = prepared.train.batch(torch.arange(count))
    shapes = ", ".join(str(tuple(part.shape)) for part in (first if isinstance(first, tuple) else (first,)))
    prose(f"Read in {read - began:.1f} s, encoded in {encoded - read:.1f} s; {count} examples are tensors of {shapes}.")


def _fetch(config: "RunConfig") -> None:
    """Download a data set that can be downloaded to the folder that --data-dir names."""
    from adaptive_labels.lab.data import DATASETS
    from adaptive_labels.lab.files import expanded

    named = DATASETS.get(config.data.name)
    if named is None or named.fetch is None or config.data.data_dir is None:
        return
    with show_progress(lambda done, total: f"downloaded {done / 1e6:,.1f} of {total / 1e6:,.1f} MB") as progress:
        done = named.fetch(expanded(config.data.data_dir), progress)
    for sentence in done:
        prose(sentence)
