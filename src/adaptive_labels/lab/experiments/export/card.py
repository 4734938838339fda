"""The model card of an export: what a hub shows of a model, with the figures of the comparison that it comes from."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import jinja2
import numpy as np

from adaptive_labels.errors import UserError
from adaptive_labels.lab import tables
from adaptive_labels.lab.analysis.confusion_matrix import order_by_similarity, without_diagonal
from adaptive_labels.lab.analysis.confusions import Confusions, read_confusions, top_pairs
from adaptive_labels.lab.analysis.format import percent, short_count
from adaptive_labels.lab.analysis.records import RunRecord, group_records, read_run_records
from adaptive_labels.lab.data import Dataset, Encoder, Pretrained, TableRows
from adaptive_labels.lab.data.encoders.text import UNITS
from adaptive_labels.lab.files import write_bytes
from adaptive_labels.lab.report.figures import as_png, standalone
from adaptive_labels.lab.report.heatmap import heat_map
from adaptive_labels.lab.report.sections.confusion_maps import most_confused
from adaptive_labels.lab.runs import RunFolder, list_runs
from adaptive_labels.lab.words import joined, listed, plural

_DRAWN, _PAIRS, _WORST = 30, 8, 5
_METRICS = {
    "top1": "accuracy %",
    "balanced_accuracy": "balanced accuracy %",
    "macro_f1": "macro F1 %",
    "top5": "top-5 accuracy %",
    "nll_scaled": "negative log-likelihood",
}
_FILES = {
    "model.onnx": "the network, for onnxruntime and others",
    "model.pt2": "the network, for `torch.export.load`",
    "model.safetensors": "the weights, for `adaptive_labels.load`",
    "config.json": "the classes by their numbers, the temperature",
    "encode.py": "inputs → arrays for the network, by numpy alone",
    "preprocessing.json": "how inputs are read",
    "tokenizer.json": "the encoder's tokenizer, for the package tokenizers",
    "golden.json": "inputs with the arrays that they become; `python encode.py` compares",
}


def write_card(
    run: RunFolder, dataset: Dataset, encoder: Encoder, settings: Mapping[str, Any], differences: Mapping[str, float],
    checked: int, folder: Path,
) -> None:  # fmt: skip
    """Write README.md and its picture into the folder of an export, beside its files."""
    records = _records_of_method(run)
    own = next(record for record in records if record.run.path.samefile(run.path))
    confusions = read_confusions([record.run for record in records])
    environment = run.environment or {}
    lengths = {unit: getattr(encoder, name) for name, unit in UNITS.items() if hasattr(encoder, name)}
    reads = [f"Of a text it reads the first {length:,} {unit}." for unit, length in lengths.items()]
    values = {
        "title": f"{dataset.name} by {own.model}",
        "data": dataset,
        "classes": listed(dataset.classes, 8),
        "model": own.model,
        "method": own.method,
        "parameters": short_count(own.parameters["network"]),
        "task": f"{'tabular' if dataset.kind == 'row' else dataset.kind}-classification",
        "backbone": encoder.backbone if isinstance(encoder, Pretrained) else None,
        "example": _example(dataset),
        "logits": settings["output"] == "logits",
        "temperature": settings["temperature"],
        "files": {name: words for name, words in _FILES.items() if (folder / name).exists()},
        "accuracy": own.metrics["test_top1"],
        "seeds": plural(len(records), "seed"),
        "several": len(records) > 1,
        "few": len(records) < 6,
        "seed": own.seed,
        "epochs": plural(own.epochs or 0, "epoch"),
        "metrics": _metrics(records, own),
        **{name: percent(own.metrics.get(f"test_{name}", np.nan)) for name in ("ece", "ece_scaled")},
        **_confused(confusions, folder),
        "limits": [*reads, *(run.result or {}).get("pretraining", [])],
        "versions": environment.get("versions", {}),
        "date": str(environment.get("date", ""))[:10],
        "command": _command(str(environment.get("command", ""))),
        "formats": joined(list(differences)),
        "difference": max(differences.values()),
        "checked": checked,
    }
    write_bytes(folder / "README.md", _template().render(values).encode(errors="replace"))


def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("adaptive_labels.lab.experiments.export")
    # Markdown is escaped by `md`, which the template asks for wherever the data speaks.
    environment = jinja2.Environment(
        loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    environment.filters["md"] = lambda text: tables.markdown_escape(tables.one_line(str(text)))
    environment.filters["thousands"] = lambda number: f"{number:,}"
    return environment.get_template("card.md")


def _records_of_method(run: RunFolder) -> list[RunRecord]:
    """This run and those beside it that differ from it in the seed alone."""
    try:
        groups = group_records(read_run_records(list_runs(run.path.absolute().parent)))
    except UserError:  # a folder there that is no readable run
        groups = []
    for group in groups:
        for records in group.by_label().values():
            if any(record.run.path.samefile(run.path) for record in records):
                return records
    return read_run_records([run])


def _metrics(records: list[RunRecord], own: RunRecord) -> list[list[str]]:
    """Rows of the table of figures: its name, over the seeds if there are several, of this run."""
    rows = []
    for name, words in _METRICS.items():
        every = [record.metrics[f"test_{name}"] for record in records if f"test_{name}" in record.metrics]
        if every:
            scale, digits = (100, 1) if words.endswith("%") else (1, 3)
            mean, spread = scale * np.mean(every), scale * np.std(every, ddof=1) if len(every) > 1 else 0.0
            over_seeds = [f"{mean:.{digits}f} ± {spread:.{digits}f}"] if len(records) > 1 else []
            rows.append([words, *over_seeds, f"{scale * own.metrics[f'test_{name}']:.{digits}f}"])
    return rows


def _confused(confusions: Confusions, folder: Path) -> dict[str, Any]:
    """The most confused pairs, the weakest classes and the picture, which is written."""
    assert confusions.rates is not None
    assert confusions.counts is not None
    errors = without_diagonal(confusions.rates)
    shown = most_confused(errors, _DRAWN)
    part = errors[np.ix_(shown, shown)]
    order = [shown[place] for place in order_by_similarity(part).tolist()]
    names = [confusions.classes[place] for place in order]
    drawing = standalone(heat_map(errors[np.ix_(order, order)], names, "Test errors", "Rows are the true classes."))
    image = as_png(drawing)
    picture = "confusions.svg" if image is None else "confusions.png"
    write_bytes(folder / picture, drawing.encode(errors="replace") if image is None else image)
    examples, right = confusions.counts.sum(axis=1), confusions.rates.diagonal()
    there = np.flatnonzero(examples)
    weakest = there[np.argsort(right[there], kind="stable")][:_WORST].tolist()
    pairs = top_pairs(confusions, _PAIRS, by="test")
    return {
        "picture": picture,
        "drawn": len(shown),
        "pairs": [[pair.true, pair.taken_for, percent(pair.rate)] for pair in pairs.itertuples()],
        "worst": [[confusions.classes[place], percent(right[place]), f"{examples[place]:.0f}"] for place in weakest],
    }


def _example(dataset: Dataset) -> str:
    """Inputs as Python writes them, nobody's."""
    inputs = dataset.train.inputs
    if isinstance(inputs, TableRows):
        return repr(
            [{name: 1.5 if numeric else "…" for name, numeric in zip(inputs.names, inputs.numeric, strict=True)}]
        )
    return '["a text", "another one"]' if dataset.kind == "text" else '["a.jpg", "b.png"]'


def _command(command: str) -> str:
    """The command that trained, without where things are on that machine."""
    words = [PurePath(word).name if os.sep in word else word for word in shlex.split(command)]
    return shlex.join(words)
