"""1.4 million texts: seconds and memory of reading, encoding and batching them, from the disk and in memory.

A file in the format of `yahoo_answers` is generated in FOLDER (about 1 GB; words of a Zipf-like distribution, three
columns of text), and the cache goes there, too; both are left for the next time. Every measurement is a process of its
own, which reports the peak of its resident memory, and of the part of it that is its own: pages of mapped files, which
the system may take back at any time and which other processes share, are in the first and not in the second.

    python benchmarks/many_texts.py FOLDER [--rows 1400000] [--in-memory]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from adaptive_labels.lab.data import Dataset, encode_split, fit_encoder, load_dataset
from adaptive_labels.lab.data.cache import CACHE
from adaptive_labels.lab.data.sources.zhang import YAHOO_ANSWERS
from adaptive_labels.lab.data.splits import assemble

RESULTS = Path(__file__).parent / "results"
COLUMNS = ["way", "step", "rows", "seconds", "processor_seconds", "peak_mb", "own_mb"]
WORDS, PER_TEXT, VOCABULARY, BATCH = 100, (8, 30, 62), 200_000, 128
FEATURES = {"char_ngrams": None, "word_ngrams": 2, "buckets": 2**19}


def generate(folder: Path, rows: int) -> None:
    """Write train.csv and test.csv, 23 times smaller, of ten classes."""
    spelt = np.array([_word(number) for number in range(VOCABULARY)], dtype=object)
    frequencies = 1 / np.arange(1, VOCABULARY + 1)
    cumulative = np.cumsum(frequencies / frequencies.sum())
    draw = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in sizes(rows).items():
        with (folder / f".{split}.part").open("w", encoding="utf-8") as file:
            for start in range(0, count, 10_000):
                drawn = np.searchsorted(cumulative, draw.random((min(10_000, count - start), WORDS)))
                lengths = draw.poisson(PER_TEXT, (len(drawn), 3)).cumsum(1)
                for number, (words, ends) in enumerate(zip(spelt[drawn], lengths, strict=True), start=start):
                    title, question, answer = (" ".join(part) for part in np.split(words, ends)[:3])
                    file.write(f'"{1 + number % 10}","{title} ?","{question}","{answer}\\n"\n')
        (folder / f".{split}.part").replace(folder / f"{split}.csv")


def sizes(rows: int) -> dict[str, int]:
    """How many rows train and test have, whole tens of both."""
    return {"train": rows // 10 * 10, "test": rows * 6 // 1400 * 10}


def _word(number: int) -> str:
    letters = ""
    while True:
        number, syllable = divmod(number, 10)
        letters += ("to", "re", "mi", "fa", "sol", "la", "ti", "en", "an", "u")[syllable]
        if number == 0:
            return letters


def load(folder: Path, way: str) -> Dataset:
    if way == "in memory":
        return load_dataset(str(folder))
    rows = json.loads((folder / "rows.json").read_text())
    per_class = {split: count // 10 for split, count in sizes(rows).items()}
    return assemble(replace(YAHOO_ANSWERS, per_class=per_class).read(folder))


def measure(folder: Path, way: str, step: str) -> dict[str, float]:
    """One step in this process: its seconds, and the peaks of the whole process."""
    memory = Memory()
    began = _now()
    dataset = load(folder, way)
    if step != "load":
        reads = "features" if step.startswith("fasttext") else "words"
        settings = FEATURES if reads == "features" else {}
        began = _now()
        encoder = fit_encoder(reads, dataset.train, settings)
        encoded = [encode_split(encoder, examples) for _, examples in dataset.splits()]
        if step.endswith("batches"):
            began = _now()
            for indices in torch.randperm(len(dataset.train)).split(BATCH):
                encoded[0].batch(indices)
    seconds, busy = (round(now - then, 1) for now, then in zip(_now(), began, strict=True))
    return {"seconds": seconds, "processor_seconds": busy, **memory.peaks()}


def _now() -> tuple[float, float]:
    """Seconds by the clock, and on a processor, which mean something on a busy machine as well."""
    return time.perf_counter(), time.process_time()


class Memory:
    """The peaks of this process's resident memory, in megabytes: all of it, and the part that is no mapped file."""

    def __init__(self) -> None:
        self.own, self.ended = 0, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def peaks(self) -> dict[str, float]:
        self.ended.set()
        self.thread.join()
        return {"peak_mb": round(_status("VmHWM") / 1000), "own_mb": round(self.own / 1000)}

    def _watch(self) -> None:
        while not self.ended.wait(0.02):
            self.own = max(self.own, _status("RssAnon"))


def _status(name: str) -> int:
    """A number of kilobytes that Linux knows of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 // 1000
    raise SystemExit(f"/proc/self/status has no {name}: this needs Linux")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_400_000)
    parser.add_argument("--in-memory", action="store_true", help="also the way of small data, for about 8 GB of memory")
    parser.add_argument("--step", nargs=2, metavar=("WAY", "STEP"), help="one measurement, as JSON")
    options = parser.parse_args()
    if options.step:
        print(json.dumps(measure(options.folder, *options.step)))
        return
    folder = options.folder
    about = folder / "rows.json"
    if not about.exists() or json.loads(about.read_text()) != options.rows:
        print(f"generating {options.rows:,} rows in {folder}", flush=True)
        generate(folder, options.rows)
        about.write_text(json.dumps(options.rows))
    environment = {**os.environ, CACHE: str(folder / "cache")}
    shutil.rmtree(folder / "cache", ignore_errors=True)
    steps: list[tuple[str, str, str]] = [
        ("on disk", "load", "first load"),
        ("on disk", "load", "second load"),
        ("on disk", "fasttext", "encode for fasttext"),
        ("on disk", "fasttext", "encode for fasttext again"),
        ("on disk", "words", "fit and encode words"),
        ("on disk", "words", "fit and encode words again"),
        ("on disk", "fasttext batches", "an epoch of batches for fasttext"),
        ("on disk", "words batches", "an epoch of batches of words"),
    ]
    if options.in_memory:
        names = {"load": "load", "fasttext": "encode for fasttext", "words": "fit and encode words"}
        steps += [("in memory", step, name) for step, name in names.items()]
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"many-texts-{datetime.now(UTC).date().isoformat()}.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for way, step, name in steps:
            command = [sys.executable, __file__, str(folder), "--step", way, step]
            ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
            found = json.loads(ended.stdout) if ended.returncode == 0 else {}
            writer.writerow({"way": way, "step": name, "rows": options.rows, **found})
            file.flush()
            print(way, name, found or f"ended with {ended.returncode}", flush=True)
    print(f"{path}: {platform.processor() or platform.machine()}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
