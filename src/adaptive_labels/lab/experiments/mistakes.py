"""Inputs that were predicted wrong: all of a finished run, and a few that are small enough to store with every run.

Shapes: N test examples, K classes.
"""

import base64
import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from adaptive_labels.errors import UserError
from adaptive_labels.lab.data import Dataset, Examples, TableRows
from adaptive_labels.lab.data.encoders.images import image_at
from adaptive_labels.lab.data.stored_texts import StoredTexts
from adaptive_labels.lab.experiments.build import data_of_run
from adaptive_labels.lab.runs import RunError, RunFolder
from adaptive_labels.lab.words import shorten

PAIRS = 40
EXAMPLES_OF_A_PAIR = 3
LONGEST_TEXT = 200
THUMBNAIL_SIDE = 32
LARGEST_FILE = 180_000
_AT_ONCE = 2**22  # logits whose probabilities are in memory together


def example_mistakes(dataset: Dataset, logits: Tensor) -> dict[str, Any]:
    """The pairs with most test mistakes, each with the inputs that were mistaken most confidently.

    ``logits`` (N, K) are of the test split. The result is plain data for ``examples.json``: at most 40 pairs of 3
    inputs, fewer where they would exceed 180 kB.
    """
    test, predicted, confidence = dataset.test, torch.empty(len(logits), dtype=torch.int64), torch.empty(len(logits))
    for rows in torch.arange(len(logits)).split(max(1, _AT_ONCE // logits.shape[1])):  # type: ignore[no-untyped-call]
        confidence[rows], predicted[rows] = logits[rows].float().softmax(1).amax(1), logits[rows].argmax(1)
    pairs: list[dict[str, Any]] = []
    size = 0
    for true, taken_for, count in _largest_pairs(test.labels, predicted, dataset.num_classes):
        members = ((test.labels == true) & (predicted == taken_for)).nonzero().flatten()
        surest = members[confidence[members].argsort(descending=True, stable=True)][:EXAMPLES_OF_A_PAIR]
        pair = {
            "true": dataset.classes[true],
            "predicted": dataset.classes[taken_for],
            "count": count,
            "of": int((test.labels == true).sum()),
            "examples": [_example(test, int(i), float(confidence[i])) for i in surest],
        }
        size += len(json.dumps(pair, indent=2))
        if size > LARGEST_FILE:
            break
        pairs.append(pair)
    return {"kind": dataset.kind, "split": "test", "pairs": pairs}


@dataclass(frozen=True)
class Mistake:
    """One input that a run predicted wrong."""

    rank: int  # 1 is the mistake that the network was surest of
    split: str
    index: int  # its place in the split
    source: str | None  # the file, and for tables the line, it came from, if the data says so
    text: str | None  # None for images
    label: str
    predicted: str
    probability: float  # of the predicted class
    label_probability: float


def find_mistakes(run: RunFolder, split: str = "test") -> list[Mistake]:
    """All that a finished run predicted wrong in a split, the surest first; its data is read again."""
    if split not in ("test", "validation"):
        raise UserError(f"split is {split!r}; it must be test or validation")
    stored, dataset = run.load_predictions(), data_of_run(run)
    if stored is None:
        raise RunError(f"{run.path} has kept no predictions")
    logits = stored.test_logits if split == "test" else stored.validation_logits
    examples: Examples = getattr(dataset, split)
    labels = examples.labels
    probabilities = torch.from_numpy(logits.astype("float32")).softmax(1)
    confidence, predicted = probabilities.max(1)
    wrong = (predicted != labels).nonzero().flatten()
    wrong = wrong[confidence[wrong].argsort(descending=True, stable=True)]
    return [
        Mistake(
            rank=rank,
            split=split,
            index=index,
            source=None if examples.sources is None else examples.sources[index],
            text=shown_input(examples, index)[0] if dataset.kind != "image" else None,
            label=dataset.classes[int(labels[index])],
            predicted=dataset.classes[int(predicted[index])],
            probability=float(confidence[index]),
            label_probability=float(probabilities[index, labels[index]]),
        )
        for rank, index in enumerate(wrong.tolist(), start=1)
    ]


def _largest_pairs(labels: Tensor, predicted: Tensor, classes: int) -> list[tuple[int, int, int]]:
    """(true, predicted, count) of the most frequent mistakes, the first class first where counts tie."""
    counts = torch.bincount(labels * classes + predicted, minlength=classes * classes).view(classes, classes)
    values, cells = counts.fill_diagonal_(0).flatten().sort(descending=True, stable=True)
    largest = zip(cells[:PAIRS].tolist(), values[:PAIRS].tolist(), strict=True)
    return [(*divmod(cell, classes), count) for cell, count in largest if count]


def _example(examples: Examples, index: int, confidence: float) -> dict[str, Any]:
    text, png = shown_input(examples, index)
    if text is None:
        return {"confidence": round(confidence, 4), "png": png}
    return {"confidence": round(confidence, 4), "text": shorten(text, LONGEST_TEXT)}


def shown_input(examples: Examples, index: int, side: int = THUMBNAIL_SIDE) -> tuple[str | None, str | None]:
    """An input to be shown: its text or None, and a small picture of it (PNG in base64) or None."""
    if isinstance(examples.inputs, TableRows):
        return examples.inputs.shown(index), None
    if isinstance(examples.inputs, list | StoredTexts):
        return examples.inputs[index], None
    return None, base64.b64encode(thumbnail(image_at(examples, index), side)).decode("ascii")


def thumbnail(image: Tensor, side: int = THUMBNAIL_SIDE) -> bytes:
    """A uint8 image (C, H, W), grey or RGB, as a PNG of at most ``side`` × ``side`` pixels.

    >>> thumbnail(torch.zeros(1, 64, 48, dtype=torch.uint8))[:4]
    b'\\x89PNG'
    """
    pixels = image.permute(1, 2, 0).numpy()  # (H, W, C)
    picture = Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))
    picture.thumbnail((side, side))
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()
