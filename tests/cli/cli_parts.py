"""Tiny real files, and what the command made of them."""

from __future__ import annotations

import csv
import functools
import http.server
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SOURCE = Path(__file__).parents[2] / "src"
COMMAND = [sys.executable, "-c", "from adaptive_labels.__main__ import main; main()"]
# A network that trains in a moment and still learns the texts below.
# A whole recipe but for the rate, so that the tests do not change with what is chosen by the data.
RECIPE = {
    "model": {"options": {"buckets": 512, "dim": 16, "hidden": 0, "dropout": 0.5}},
    "training": {"batch_size": 32, "schedule": "one-cycle", "weight_decay": 0.1, "threads": 1},
}
QUICK = [f"model.options.{name}={value}" for name, value in RECIPE["model"]["options"].items()]
QUICK += [f"{name}={value}" for name, value in RECIPE["training"].items()]
QUICK = [word for setting in QUICK for word in ("--set", setting)]
WORDS = {
    "food": "bread soup cheese cook taste oven salt fruit",
    "music": "song guitar band album concert singer tune drum",
    "sport": "match goal team player coach league score win",
}
FILLERS = ["the", "a", "very", "some", "today", "again", "with", "my"]


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status and what it printed."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Alr = Callable[..., Ended]
Start = Callable[..., "subprocess.Popen[str]"]


def write_texts(path: Path, count: int = 210, seed: int = 0) -> Path:
    """A CSV of short texts in three classes: a word of the class, one of any class, and some of none."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        label = list(WORDS)[number % len(WORDS)]
        words = [draw.choice(WORDS[label].split()), draw.choice(WORDS[draw.choice(list(WORDS))].split())]
        rows.append([" ".join([*words, *draw.choices(FILLERS, k=3)]), label])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text", "label"], *rows])
    return path


def write_images(folder: Path, count: int = 20) -> Path:
    """A folder of small PNGs in three classes, each with more of one colour."""
    draw = np.random.default_rng(0)
    for channel, label in enumerate(("red", "green", "blue")):
        (folder / label).mkdir(parents=True)
        for number in range(count):
            pixels = draw.integers(0, 120, (8, 8, 3), dtype=np.uint8)
            pixels[..., channel] += 80
            Image.fromarray(pixels).save(folder / label / f"{number}.png")
    return folder


def results(out: Path) -> dict[str, dict[str, Any]]:
    """The results of the finished runs under a folder, by the runs' names."""
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(out.rglob("result.json"))}


def metrics(out: Path) -> dict[str, Any]:
    """Their metrics only, which do not depend on how fast the machine was."""
    return {name: result["metrics"] for name, result in results(out).items()}


def weights(out: Path) -> dict[str, bytes]:
    """The networks of the run folders, to see that they are the same to the bit."""
    return {path.parent.name: path.read_bytes() for path in out.glob("*/model.safetensors")}


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, to see that nothing changed."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def served(folder: Path, handler: Any = http.server.SimpleHTTPRequestHandler) -> Iterator[str]:
    """The address of a server, on this machine, of what is in a folder."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[str], seconds: float = 240) -> None:
    """Wait until a process has done something; it must not end before."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)


def wait_until(condition: Callable[[], Any], seconds: float = 120) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
