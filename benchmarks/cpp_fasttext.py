"""`fasttext` of this project beside the C++ fastText: accuracy on test, and seconds from the files to a trained model.

    pip install fasttext                                  # compiles for a minute or two; a C++ compiler is needed
    python benchmarks/cpp_fasttext.py FOLDER [--rounds 3] [--threads 2] [--csv FILE]

FOLDER has train.csv and test.csv in Zhang's format (label, title, description). Both learn from the same rows: those
that are left in train when this project has set its validation split aside. The C++ program reads a file of words, made
before the clock starts; this project's time includes parsing the CSVs, splitting, and counting duplicates. The two take
turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch

from adaptive_labels.lab.config import RunConfig
from adaptive_labels.lab.data import Dataset, Examples
from adaptive_labels.lab.data.encoders.hashes import Words
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.resolve import resolve_for
from adaptive_labels.lab.paper.recipes import load_reproduction
from adaptive_labels.lab.training.evaluation import predict_logits
from adaptive_labels.lab.training.loop import fit
from adaptive_labels.lab.training.progress import Reporter
from adaptive_labels.lab.training.recorders import Recorder
from measure import as_csv, described

TASK = "ag_news-fasttext-short"
# Those of the C++ program's paper for this data but for more dimensions and epochs, by which it gains.
CPP = {"dim": 50, "epoch": 10, "wordNgrams": 2, "lr": 0.5, "minCount": 1, "bucket": 2_000_000, "verbose": 0}


def ours(folder: Path, seed: int) -> tuple[float, float, float]:
    """Accuracy, seconds from the files to the trained network, and those of them that were training."""
    began = time.perf_counter()
    config = load_reproduction("text", "short").study.config(TASK)
    given = dataclasses.replace(config, data=dataclasses.replace(config.data, name=str(folder)), seed=seed)
    dataset, resolved = _load(given)
    prepared = build.prepare_data(resolved, dataset)
    objective = build.make_objective(resolved, dataset, prepared.encoder)
    ready = time.perf_counter()
    held_out = (prepared.validation, dataset.validation.labels)
    fit(
        objective,
        prepared.train,
        dataset.train.labels,
        held_out,
        resolved.training,
        seed,
        recorder=Recorder(),
        reporter=Reporter(),
    )
    done = time.perf_counter()
    predicted = predict_logits(objective.model, prepared.test).argmax(1)
    return float((predicted == dataset.test.labels).double().mean()), done - began, done - ready


def _load(config: RunConfig) -> tuple[Dataset, RunConfig]:
    dataset = build.load_data(config.data)
    return dataset, resolve_for(config, dataset)[0]


def cpp(file: Path, test: list[tuple[str, str]], seed: int, threads: int) -> tuple[float, float]:
    """Accuracy, and seconds from the file of words to the trained model."""
    import fasttext

    began = time.perf_counter()
    model = fasttext.train_supervised(input=str(file), seed=seed, thread=threads, **CPP)
    seconds = time.perf_counter() - began
    # The wrapper's own predict() needs an older NumPy.
    right = sum(model.f.predict(text + "\n", 1, 0.0, "strict")[0][1] == label for label, text in test)
    return right / len(test), seconds


def as_words(examples: Examples) -> list[tuple[str, str]]:
    """Each text as the words that this project sees in it, with spaces between, and its label as fastText has it."""
    assert isinstance(examples.inputs, list)
    found = []
    for text, label in zip(examples.inputs, examples.labels.tolist(), strict=True):
        words = Words.find([text.lower()])
        pieces = [words.codes[a:b].tobytes().decode("utf-32-le") for a, b in zip(words.starts, words.ends, strict=True)]
        found.append((f"__label__{label}", " ".join(pieces)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = load_reproduction("text", "short").study.config(TASK)
    dataset, _ = _load(dataclasses.replace(config, data=dataclasses.replace(config.data, name=str(options.folder))))
    test = as_words(dataset.test)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.txt"
        file.write_text("".join(f"{label} {text}\n" for label, text in as_words(dataset.train)), encoding="utf-8")
        for seed in range(options.rounds):
            accuracy, seconds = cpp(file, test, seed, options.threads)
            rows.append({"what": "C++ fastText", "seed": seed, "test": accuracy, "seconds": seconds, "training": None})
            accuracy, seconds, training = ours(options.folder, seed)
            rows.append(
                {"what": "adaptive-labels", "seed": seed, "test": accuracy, "seconds": seconds, "training": training}
            )
            for row in rows[-2:]:
                print(
                    f"{row['what']:<16} seed {seed}: {100 * row['test']:.2f}% after {row['seconds']:.1f} s", flush=True
                )
    ratios = [b["seconds"] / a["seconds"] for a, b in zip(rows[::2], rows[1::2], strict=True)]
    print(f"{statistics.median(ratios):.2f} times the C++ program's time ({', '.join(f'{r:.2f}' for r in ratios)})")
    if options.csv is not None:
        options.csv.write_text(as_csv(described(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
