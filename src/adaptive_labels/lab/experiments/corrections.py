"""Training data without its suspects, or with corrected labels; the test split stays as it is."""

from collections.abc import Callable
from dataclasses import replace

import torch

from adaptive_labels.lab.analysis.suspects import Correction, read_corrections
from adaptive_labels.lab.data import DataError, Dataset, Examples, fingerprint
from adaptive_labels.lab.data.dataset import SplitName
from adaptive_labels.lab.words import plural

CLEANED: tuple[SplitName, ...] = ("train", "validation")


def correct(dataset: Dataset, drop: str | None, relabel: str | None) -> Dataset:
    """The data set without the examples in the file ``drop``, and with the labels in the file ``relabel``.

    Where a person has filled in the label that an example has already, it is neither dropped nor changed.
    """
    if drop is not None:
        dataset = _changed(dataset, drop, _dropped, "left out")
    return dataset if relabel is None else _changed(dataset, relabel, _relabelled, "relabelled")


def _changed(dataset: Dataset, path: str, change: Callable[[Examples, dict[int, int]], Examples], what: str) -> Dataset:
    splits, numbers = dict(dataset.splits()), {name: number for number, name in enumerate(dataset.classes)}
    chosen: dict[str, dict[int, int]] = {name: {} for name in splits}
    for correction in read_corrections(path):
        index = _checked(correction, dataset, splits)
        if correction.corrected != correction.label:
            chosen[correction.split][index] = numbers[correction.corrected]
    for name in CLEANED:
        splits[name] = change(splits[name], chosen[name])
    if not len(splits["train"]):
        raise DataError(f"{path} leaves no training example")
    count = sum(len(chosen[name]) for name in CLEANED)
    left = f"; {len(chosen['test']):,} of the test split stay as they are" if chosen["test"] else ""
    return replace(
        dataset,
        train=splits["train"],
        validation=splits["validation"],
        notes=(*dataset.notes, f"{plural(count, 'example')} of training and validation {what}, by {path}{left}."),
        fingerprint=fingerprint(dataset.classes, splits.items()),
    )


def _checked(correction: Correction, dataset: Dataset, splits: dict[SplitName, Examples]) -> int:
    """The place of an example in its split; what does not fit the data is refused."""
    examples = {str(name): split for name, split in splits.items()}.get(correction.split)
    if examples is None or correction.index >= len(examples):
        raise DataError(f"{correction.where}: {dataset.name} has no {correction.split} example {correction.index}")
    label = dataset.classes[int(examples.labels[correction.index])]
    if label != correction.label:
        raise DataError(
            f"{correction.where}: {correction.split} example {correction.index} of {dataset.name} is labelled "
            f"{label!r}, not {correction.label!r}; the file is of other data"
        )
    if correction.corrected not in dataset.classes:
        raise DataError(f"{correction.where}: {correction.corrected!r} is no class of {dataset.name}")
    return correction.index


def _dropped(examples: Examples, chosen: dict[int, int]) -> Examples:
    return examples.subset(torch.tensor([i for i in range(len(examples)) if i not in chosen], dtype=torch.int64))


def _relabelled(examples: Examples, chosen: dict[int, int]) -> Examples:
    labels = examples.labels.clone()
    for index, label in chosen.items():
        labels[index] = label
    return replace(examples, labels=labels)
