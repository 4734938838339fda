"""Labels that look wrong, in all splits, judged by models that did not see the example.

Shapes: N examples of all splits, K classes, D features.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from adaptive_labels import label_issues
from adaptive_labels.errors import UserError
from adaptive_labels.lab.analysis.suspects import Suspect, Suspects, average_precision
from adaptive_labels.lab.config import RunConfig
from adaptive_labels.lab.data import (
    Dataset,
    Examples,
    StoredTexts,
    encode_split,
    encoder_options,
    encoder_to_dict,
    fit_encoder,
    input_digests,
)
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.defaults import are_latin_words, is_pretrained
from adaptive_labels.lab.experiments.mistakes import shown_input
from adaptive_labels.lab.experiments.out_of_fold import fold_numbers, head_probs, stored, text_features, text_probs
from adaptive_labels.lab.models.pretrained import efficientnet_lite, minilm
from adaptive_labels.lab.models.pretrained.packages import is_offered

FOLDS = 5
RAREST = 5  # a class with fewer examples cannot be judged
MOST_NUMBERS = 400_000_000  # N · K
PICTURE = 96  # the side of the pictures of suspects
PIXELS = 32  # the side of images that are judged by their pixels
SURE = 0.6  # the probability from which a label is said to be wrong
Progress = Callable[[str, int, int], None]


class Judged(NamedTuple):
    """The verdict on N labels; an example that could not be judged has NaN everywhere and itself as the suggestion."""

    quality: NDArray[np.float64]  # the lower, the more suspicious
    probability: NDArray[np.float64]  # of being wrong
    suggested: NDArray[np.int64]
    conflict: NDArray[np.bool_]  # equal inputs have another label more often
    rare: tuple[int, ...]  # the classes that could not be judged


def find_suspects(
    config: RunConfig, dataset: Dataset, *, folds: int = FOLDS, top: int | None = 20, progress: Progress | None = None
) -> Suspects:
    """The ``top`` examples of all splits by how suspicious their label is; None: as many as are estimated to be wrong.

    Args:
        config: how the data is read; a pretrained network in it makes the features.
        dataset: its data.
        folds: how many models share the work of judging what they did not see.
        top: how many are listed.
        progress: is called with what is being done, how much of it is done, and of how much.
    """
    if folds < 2:
        raise UserError(f"folds is {folds}; it must be at least 2")
    parts = [(name, examples) for name, examples in dataset.splits() if len(examples)]
    labels = np.concatenate([examples.labels.numpy() for _, examples in parts])
    if len(labels) * dataset.num_classes > MOST_NUMBERS:
        raise UserError(
            f"{dataset.name} has {len(labels):,} examples of {dataset.num_classes:,} classes, more probabilities than "
            f"can be judged at once ({MOST_NUMBERS:,}); judge a part of it"
        )
    groups = _equal_inputs([examples for _, examples in parts])
    key = [dataset.fingerprint, folds]
    features, reading = _features(config, dataset, key, progress or (lambda what, done, total: None))
    texts = _texts(dataset) if dataset.kind == "text" else None
    held = np.concatenate([np.full(len(examples), name == "test") for name, examples in parts])
    judged = judge(features, labels, dataset.num_classes, groups, [*key, reading], folds, texts, progress, held)
    return _listed(dataset, parts, labels, judged, top)


def judge(
    features: NDArray[np.float32],
    labels: NDArray[np.int64],
    num_classes: int,
    groups: NDArray[np.int64],
    key: Any,
    folds: int = FOLDS,
    texts: Sequence[str] | None = None,
    progress: Progress | None = None,
    held: NDArray[np.bool_] | None = None,
) -> Judged:
    """Judge labels (N,) by features (N, D), and by texts where there are some; ``groups`` number equal inputs.

    No label of the examples in ``held`` (N,) teaches a judge, so that cleaned data may be tested on them.

    Several judges are asked: a head on the features, out of fold; the same trained on all examples, over its epochs;
    the nearest neighbours, who count twice; and for texts their words, out of fold. How many labels are wrong is
    estimated from those judges that did not see the label, and the ranking is by all of them.
    """
    tell = progress or (lambda what, done, total: None)
    size = len(labels)
    counts = np.bincount(labels, minlength=num_classes)
    rare = tuple(np.flatnonzero((counts > 0) & (counts < RAREST)).tolist())
    rows = np.flatnonzero(~np.isin(labels, rare))
    given, known = np.unique(labels[rows], return_inverse=True), features[rows]
    kinds, y = given
    if len(kinds) < 2:
        raise UserError(f"fewer than two classes have {RAREST} examples; no label can be judged")
    taught = np.arange(len(rows)) if held is None else np.flatnonzero(~held[rows])
    fold = np.full(len(rows), -1)
    fold[taught] = fold_numbers(y[taught], groups[rows][taught], folds)
    head, seen = head_probs(
        known, y, len(kinds), fold, key=key, progress=lambda done, total: tell("trainings", done, total)
    )
    near = stored(
        [key, "neighbours", fold.tolist()], lambda: label_issues.neighbour_probs(y, known, len(kinds), taught)
    )
    judges = [head, seen, near, near]
    if texts is not None:
        judges.append(text_probs([texts[i] for i in rows.tolist()], y, len(kinds), fold, key=key))
    everyone = label_issues.consensus(*judges)
    chance = label_issues.probabilities_wrong(y, label_issues.consensus(head, near))
    probability = label_issues.calibrated(label_issues.log_margins(y, everyone), chance)
    conflict = _conflicts(groups[rows], y)
    quality = label_issues.get_label_quality_scores(y, everyone)
    best = everyone.copy()
    best[np.arange(len(y)), y] = -1
    whole = Judged(np.full(size, np.nan), np.full(size, np.nan), labels.copy(), np.zeros(size, dtype=np.bool_), rare)
    whole.quality[rows], whole.conflict[rows] = quality, conflict
    whole.probability[rows] = np.where(conflict, np.maximum(probability, 0.5), probability)
    whole.suggested[rows] = kinds[best.argmax(axis=1)]
    return whole


def _conflicts(groups: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(N,) whether equal inputs have other labels at least as often as this one."""
    size = int(labels.max()) + 1
    pairs, pair, counts = np.unique(groups * size + labels, return_inverse=True, return_counts=True)
    best = np.zeros(int(groups.max()) + 1, dtype=np.int64)
    np.maximum.at(best, pairs // size, counts)
    several = np.bincount(pairs // size, minlength=len(best)) > 1
    ties = np.bincount(pairs // size, weights=counts == best[pairs // size], minlength=len(best)) > 1
    return np.asarray(several[groups] & ((counts[pair] < best[groups]) | ties[groups]))


def _listed(
    dataset: Dataset,
    parts: Sequence[tuple[str, Examples]],
    labels: NDArray[np.int64],
    judged: Judged,
    top: int | None,
) -> Suspects:
    """The worst examples with all that is shown of them: first equal inputs with different labels."""
    can = ~np.isnan(judged.quality)
    estimated = round(float(judged.probability[can].sum()))
    order = np.lexsort((judged.quality, ~judged.conflict))
    order = order[can[order]][: estimated if top is None else top]
    starts = np.cumsum([0, *(len(examples) for _, examples in parts)])
    has_truth = any(examples.true_labels is not None for _, examples in parts)
    true = np.concatenate([(e.labels if e.true_labels is None else e.true_labels).numpy() for _, e in parts])
    found = []
    for rank, place in enumerate(order.tolist(), start=1):
        part = int(np.searchsorted(starts, place, side="right")) - 1
        (split, examples), index = parts[part], place - int(starts[part])
        text, png = shown_input(examples, index, PICTURE)
        found.append(
            Suspect(
                rank=rank,
                split=split,
                index=index,
                source=None if examples.sources is None else examples.sources[index],
                text=text,
                label=dataset.classes[labels[place]],
                suggested=dataset.classes[judged.suggested[place]],
                score=round(float(judged.quality[place]), 4),
                probability_wrong=round(float(judged.probability[place]), 4),
                conflict=bool(judged.conflict[place]),
                true_label=dataset.classes[true[place]] if has_truth else None,
                png=png,
            )
        )
    wrong = (labels != true)[can]
    return Suspects(
        dataset=dataset.name,
        examples=len(labels),
        estimated_wrong=estimated,
        suspects=tuple(found),
        sure=int((judged.probability[can] >= SURE).sum()),
        conflicts=int(judged.conflict.sum()),
        rare_classes=tuple(dataset.classes[k] for k in judged.rare),
        wrong_labels=int(wrong.sum()) if has_truth else None,
        average_precision=average_precision(-judged.quality[can], wrong) if has_truth and wrong.any() else None,
    )


def _features(config: RunConfig, dataset: Dataset, key: Any, tell: Progress) -> tuple[NDArray[np.float32], Any]:
    """(N, D) of all splits, and how they were made, as plain data.

    They are a pretrained encoder's, that of the configuration first; else the columns of a table, small pictures, or
    the main directions of TF-IDF. None of them looks at a label.
    """
    settings: dict[str, Any] = {}
    name: str | None
    if is_pretrained(config.model.name, config.model.options):
        name = build.reads(config)
        settings = {k: v for k, v in config.model.options.items() if k in encoder_options(name) and k != "tune"}
    elif dataset.kind == "text":
        name = "minilm" if is_offered(minilm.PACKAGE, "tokenizers") and are_latin_words(dataset) else None
    elif dataset.kind == "image":
        name = "efficientnet-lite0" if _is_coloured(dataset) and is_offered(efficientnet_lite.PACKAGE) else "pixels"
    else:
        name = "columns"
    if name is None:
        return text_features(_texts(dataset), key=key), "tf-idf"
    encoder = fit_encoder(name, dataset.train, settings)

    def progress(done: int, total: int | None) -> None:
        tell("inputs encoded", done, total or 0)

    encoded = [encode_split(encoder, examples, progress) for _, examples in dataset.splits() if len(examples)]
    vectors = []
    for examples in encoded:
        for start in range(0, len(examples), 1024):
            batch = examples.batch(torch.arange(start, min(start + 1024, len(examples))))
            assert isinstance(batch, torch.Tensor)
            vectors.append(batch if batch.ndim == 2 else _small(batch))
    return torch.cat(vectors).numpy(), encoder_to_dict(encoder)


def _texts(dataset: Dataset) -> list[str]:
    """All texts, split by split, in their order."""
    found: list[str] = []
    for _, examples in dataset.splits():
        assert isinstance(examples.inputs, list | StoredTexts)
        found.extend(examples.inputs)
    return found


def _is_coloured(dataset: Dataset) -> bool:
    images = dataset.train.inputs
    return not isinstance(images, torch.Tensor) or images.shape[1] == 3


def _small(images: torch.Tensor) -> torch.Tensor:
    """Images (n, C, H, W) as at most 32 × 32 pixels each, in a row."""
    if max(images.shape[2:]) > PIXELS:
        images = F.adaptive_avg_pool2d(images, PIXELS)
    return images.flatten(1)


def _equal_inputs(parts: Sequence[Examples]) -> NDArray[np.int64]:
    """(N,) a number for each different input; image files are the same where every byte is."""
    contents = np.concatenate([input_digests(examples.inputs)[:, :16] for examples in parts])
    return np.unique(contents, axis=0, return_inverse=True)[1].astype(np.int64)
