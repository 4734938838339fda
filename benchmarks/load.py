"""Large inputs: seconds and peak memory of whole commands, each in a process of its own.

    python benchmarks/load.py texts FOLDER [--rows 1000000 --classes 1000]   # one epoch, then the evaluation
    python benchmarks/load.py images FOLDER [--files 100000]                 # a folder of PNGs, read and split
    python benchmarks/load.py runs FOLDER [--count 500]                      # table, report and check of finished runs

What is generated in FOLDER stays there for the next time. Aims: 1,000,000 texts × 1,000 classes in 2 GB, evaluated in
no longer than the epoch takes; 500 runs in a table within 5 s, in a report within 10 s and 500 MB.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

COMMAND = [sys.executable, "-m", "adaptive_labels"]


def measured(*words: str | Path, marks: Sequence[tuple[Path, str]] = ()) -> tuple[str, dict[str, float]]:
    """Run a command: its seconds, those of them on a processor, and its peaks of memory, in words.

    Pages of mapped files, which the system may take back at any time, are in the resident memory and not in its own.
    The second value is how many seconds on a processor it had taken when each of `marks` was there: a folder, and a
    file's name in any folder of it.
    """
    began, own, taken = time.perf_counter(), 0.0, dict[str, float]()
    process = subprocess.Popen([*COMMAND, *map(str, words)], stdout=subprocess.DEVNULL)
    while True:
        found, status, usage = os.wait4(process.pid, os.WNOHANG)
        if found:
            break
        for folder, name in marks:
            if name not in taken and any(folder.glob(f"*/{name}")):
                fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
                taken[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        now = Path(f"/proc/{process.pid}/status").read_text().partition("RssAnon:")[2].split()
        own = max(own, float(now[0]) * 1024 / 1e6 if now else 0.0)
        time.sleep(0.1)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, words))} ended with status {process.returncode}")
    seconds, busy = time.perf_counter() - began, usage.ru_utime + usage.ru_stime
    memory = f"{own:.0f} MB of its own, {usage.ru_maxrss * 1024 / 1e6:.0f} MB resident"
    return f"{seconds:.1f} s ({busy:.1f} s of processor time), {memory}", {**taken, "end": busy}


def texts(folder: Path, rows: int, classes: int) -> None:
    """Short texts in many classes: one epoch of fastText, and the evaluation of all splits."""
    path, out = folder / f"texts-{rows}-{classes}.csv", folder / "texts-runs"
    if not path.exists():
        draw = random.Random(0)
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            for number in range(rows):
                label = number % classes
                writer.writerow(
                    [f"word{label} {draw.randrange(5000)} {draw.randrange(5000)} some text", f"class {label}"]
                )
    shutil.rmtree(out, ignore_errors=True)
    marks = [(out, "encoder.json"), (out, "history.jsonl")]  # the last files before the epoch and after it
    took, at = measured("train", path, "--model", "fasttext", "--epochs", "1", "--out", out, marks=marks)
    epoch, rest = at["history.jsonl"] - at["encoder.json"], at["end"] - at["history.jsonl"]
    (run,) = out.iterdir()
    count = len(json.loads((run / "result.json").read_text())["metrics"])
    print(f"texts: {rows:,} × {classes:,}: {took}")
    print(
        f"  processor time: {epoch:.0f} s epoch, {rest:.0f} s evaluation of {count} splits and all that is kept of it"
    )


def images(folder: Path, files: int) -> None:
    """Small PNGs in 100 classes: read, decoded, split and hashed."""
    import numpy as np
    from PIL import Image

    data = folder / f"images-{files}"
    if not data.exists():
        draw = np.random.default_rng(0)
        for number in range(files):
            place = data / f"class{number % 100}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 255, (32, 32, 3), np.uint8)).save(
                place / f"{number}.png", compress_level=1
            )
    print(f"images: {files:,} files: {measured('train', data, '--dry-run')[0]}")


def runs(folder: Path, count: int) -> None:
    """Finished runs of 10 methods: the table, the report and the check of all of them."""
    from adaptive_labels.lab.runs import RunFolder

    out, template = folder / f"runs-{count}", folder / "template"
    if not out.exists():
        shutil.rmtree(template, ignore_errors=True)
        measured("train", "digits", "--epochs", "2", "--model", "resnet32-w2", "--out", template)
        (one,) = template.iterdir()
        config, result = json.loads((one / "config.json").read_text()), json.loads((one / "result.json").read_text())
        result.pop("seal")
        for number in range(count):
            method = {"name": "alr", "options": {"attraction": -0.1 * (number % 10)}}
            made = RunFolder.create(out, {**config, "seed": number // 10, "method": method})
            for path in one.iterdir():
                if path.name not in ("config.json", "result.json"):
                    shutil.copy(path, made.path / path.name)
            made.finish({**result, "seed": number // 10})
    for words in (["table", out], ["report", out, "-o", folder / "report.html"], ["runs", "check", out]):
        print(f"runs: {count} runs, alr {words[0]}: {measured(*words)[0]}")


def main() -> None:
    """Parse the options and measure one case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("case", choices=["texts", "images", "runs"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--count", type=int, default=500)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    if given.case == "texts":
        texts(given.folder, given.rows, given.classes)
    elif given.case == "images":
        images(given.folder, given.files)
    else:
        runs(given.folder, given.count)


if __name__ == "__main__":
    main()
