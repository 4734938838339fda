"""Training examples whose label looks wrong: a finished run predicts its own training data."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adaptive_labels.errors import UserError
from adaptive_labels.lab.analysis.suspects import (
    SCORES,
    Suspect,
    Suspects,
    average_precision,
    label_scores,
    suggested_labels,
)
from adaptive_labels.lab.data import DataError, Dataset, Examples, Pretrained
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.mistakes import shown_input
from adaptive_labels.lab.experiments.prediction import Predictor
from adaptive_labels.lab.runs import RunError, RunFolder
from adaptive_labels.lab.training.evaluation import predict_logits

DEFAULT_SCORE = "residual"
_EXAMPLES_AT_A_TIME = 2048
Progress = Callable[[int, int], None]


def find_suspects(
    path: str | Path,
    *,
    top: int = 20,
    score: str = DEFAULT_SCORE,
    data: str | Path | None = None,
    progress: Progress | None = None,
) -> Suspects:
    """The ``top`` training examples of the finished run in ``path`` by how suspicious their label is.

    ``score`` is one of `analysis.SCORES`. The data is read again, from ``data`` if it has moved, and must be what the
    run was trained on. ``progress`` is called with the number of examples the network has seen, and of all. Nothing is
    written.
    """
    if score not in SCORES:
        raise UserError(f"score is {score!r}; it must be one of {', '.join(SCORES)}")
    if top < 1:
        raise UserError(f"top is {top}; it must be at least 1")
    run = RunFolder(path)
    predictor = Predictor.load(path)
    dataset = training_data(run, data)
    logits = _logits(predictor, dataset.train, progress or (lambda done, total: None))
    stored = run.load_residual_labels()
    residual = stored.matrix() if stored is not None and len(stored.epochs) else None
    scores = label_scores(logits, dataset.train.labels.numpy(), residual)
    return _ranked(run, dataset, logits, scores, score, top)


def training_data(run: RunFolder, data: str | Path | None = None) -> Dataset:
    """The data set that a run was trained on, read again; a `RunError` if it is gone or has changed."""
    whole = run.config
    config = whole.data
    if data is not None:
        config = dataclasses.replace(config, name=str(data))
    try:
        dataset = build.load_data(config, whole.model)
    except DataError as error:
        hint = "" if data is not None else " If it has moved, say where with --data."
        raise RunError(f"the training data of {run.path} cannot be read again: {error}{hint}") from error
    if dataset.fingerprint != config.fingerprint:
        raise RunError(
            f"{config.name} is not the data that {run.path} was trained on: its content has changed, so that the "
            "examples cannot be told apart; train on it again first"
        )
    return dataset


def _logits(predictor: Predictor, examples: Examples, progress: Progress) -> np.ndarray:
    """(N, K) float32, encoded and predicted in pieces, so that long work shows that it moves."""
    if isinstance(predictor.encoder, Pretrained):
        build.encode(predictor.encoder, examples)  # at once, unless its features are kept: then it tells how far it is
    parts = []
    for piece in torch.split(torch.arange(len(examples)), _EXAMPLES_AT_A_TIME):
        parts.append(predict_logits(predictor.model, build.encode(predictor.encoder, examples.subset(piece))))
        progress(int(piece[-1]) + 1, len(examples))
    return torch.cat(parts).numpy()


def _ranked(
    run: RunFolder, dataset: Dataset, logits: np.ndarray, scores: dict[str, Any], score: str, top: int
) -> Suspects:
    train, labels = dataset.train, dataset.train.labels.numpy()
    order = np.argsort(-scores[score], kind="stable")[:top]
    suggested = suggested_labels(logits[order], labels[order])
    probabilities = torch.from_numpy(logits[order]).double().softmax(1).numpy()
    wrong = None if train.true_labels is None else labels != train.true_labels.numpy()
    found = tuple(
        Suspect(
            rank=rank + 1,
            index=int(index),
            source=None if train.sources is None else train.sources[index],
            text=(shown := shown_input(train, int(index)))[0],
            png=shown[1],
            label=dataset.classes[labels[index]],
            suggested=dataset.classes[suggested[rank]],
            score=float(scores[score][index]),
            label_probability=float(probabilities[rank, labels[index]]),
            suggested_probability=float(probabilities[rank, suggested[rank]]),
            true_label=None if train.true_labels is None else dataset.classes[int(train.true_labels[index])],
        )
        for rank, index in enumerate(order)
    )
    areas = None
    if wrong is not None and wrong.any():
        areas = {name: average_precision(values, wrong) for name, values in scores.items()}
    return Suspects(
        run=run.name,
        dataset=dataset.name,
        method=run.config.method.name,
        seed=run.config.seed,
        fingerprint=dataset.fingerprint,
        ranked_by=score,
        examples=len(train),
        suspects=found,
        wrong_labels=None if wrong is None else int(wrong.sum()),
        average_precision=areas,
    )
