"""How long imports and commands take to start, each in its own process.

python benchmarks/start.py [--seconds 60]
"""

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from measure import Step, described, make_parser, measure, ratio_row, turns

REFERENCE = "import torch"
MAIN = "from adaptive_labels.lab.cli import main; main()"
# The reporter hears of the first step as soon as it is done.
FIRST_STEP = """
import tempfile, sys
from pathlib import Path
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.resolve import resolve_for
from adaptive_labels.lab.config import RunConfig
from adaptive_labels.lab.experiments.run import execute
from adaptive_labels.lab.jobs import Job
class Stop:
    def progress(self, now): sys.exit(0)
    def epoch(self, record, epochs): sys.exit("an epoch passed without a word")
    def close(self): pass
dataset = build.load_data(RunConfig().data)
config, _ = resolve_for(RunConfig(), dataset)
with tempfile.TemporaryDirectory() as folder:
    execute(Job("first", config, Path(folder), ()), build.prepare_data(config, dataset), Stop())
"""
COMMANDS: dict[str, tuple[str, ...]] = {
    REFERENCE: (REFERENCE,),
    "import adaptive_labels": ("import adaptive_labels",),
    "from adaptive_labels import AdaptiveLabelLoss": ("from adaptive_labels import AdaptiveLabelLoss",),
    "alr --help": (MAIN, "--help"),
    "alr train towns --dry-run": (MAIN, "train", "towns", "--dry-run"),
    "the first step on towns": (FIRST_STEP,),
}


def bench_start(
    seconds: float = 60.0, cpu_time: bool = False, commands: Mapping[str, tuple[str, ...]] = COMMANDS
) -> dict[str, Any]:
    """Measure every command from its start to its end, as multiples of ``import torch``, which most must wait for."""
    steps = {name: _process(arguments) for name, arguments in commands.items()}
    times = turns(steps, seconds, warm_up=1)
    kind = "a process from its start to its end"
    rows = [
        {"kind": kind, "command": name, **ratio_row(times, name, None if name == REFERENCE else REFERENCE)}
        for name in times
    ]
    unit = "a process; times as multiples, round by round"
    return described(rows, unit=unit, clock="perf_counter", group="kind", name="command")


def _process(arguments: tuple[str, ...]) -> Step:
    def run() -> None:
        done = subprocess.run([sys.executable, "-c", *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip() or "no message").splitlines()[-1]
            raise ValueError(f"{' '.join(arguments[1:]) or arguments[0]!r} ended with {done.returncode}: {last}")

    return run


if __name__ == "__main__":
    measure(bench_start, make_parser(__doc__).parse_args())
