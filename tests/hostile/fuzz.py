"""Fuzz the readers for some time: `python tests/hostile/fuzz.py --minutes 60 [--target table] [--atheris]`.

Files are damaged by hypothesis, or with --atheris by libFuzzer, which watches the branches of the reader that it is led
through (`pip install atheris`). Whatever is not a `UserError` is shrunk and kept in `corpus/`, and the fuzzing goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).parent))
CORPUS = Path(__file__).parent / "corpus"


def kept(target: str, data: bytes) -> None:
    """Keep a file that led to a traceback; another of the same traceback is not kept."""
    path = traceback.extract_tb(sys.exc_info()[2])[-1]
    where = hashlib.sha256(f"{path.filename}{path.lineno}".encode()).hexdigest()[:8]
    file = CORPUS / f"{target}-{where}.bin"
    if not file.exists() or len(data) < file.stat().st_size:
        file.write_bytes(data)
        print(f"{file}: {traceback.format_exc()}", flush=True)


def with_hypothesis(names: list[str], minutes: float) -> None:
    """Damage files of each kind in turn, until the time is up."""
    from fuzz_targets import TARGETS, mutated, seeds
    from hypothesis import HealthCheck, given, settings, strategies as st

    count, failures, end = dict.fromkeys(names, 0), 0, time.monotonic() + 60 * minutes
    every = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
    while time.monotonic() < end:
        for name in names:

            @settings(max_examples=200, **every)
            @given(st.just(name), st.sampled_from(seeds(name)), st.integers(0, 2**64))
            def damaged(name: str, seed: bytes, number: int) -> None:
                nonlocal failures
                data = mutated(seed, random.Random(number))
                count[name] += 1
                try:
                    TARGETS[name](data)
                except Exception:
                    failures += 1
                    kept(name, data)

            damaged()
        print(f"{minutes - (end - time.monotonic()) / 60:.1f} min: {count}, {failures} failures", flush=True)


def with_atheris(name: str, minutes: float) -> NoReturn:
    """Let libFuzzer lead one target until the time is up."""
    import atheris

    with atheris.instrument_imports(
        include=["adaptive_labels.lab.data.sources", "adaptive_labels.lab.files", "csv", "json"]
    ):
        from fuzz_targets import LIMITS, TARGETS, seeds

    os.environ.update(LIMITS)

    def one(data: bytes) -> None:
        try:
            TARGETS[name](data)
        except Exception:
            kept(name, data)

    found = CORPUS.parent / ".atheris" / name
    found.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(name)):
        (found / f"seed-{number}").write_bytes(seed)
    limits = [f"-max_total_time={60 * minutes:.0f}", "-max_len=20000", "-timeout=60", "-rss_limit_mb=4000"]
    atheris.Setup([sys.argv[0], str(found), *limits], one)
    atheris.Fuzz()
    raise SystemExit


def main() -> None:
    """Parse the options and fuzz."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--target", choices=["table", "image", "run", "checkpoint", "study"])
    parser.add_argument("--atheris", action="store_true")
    given = parser.parse_args()
    if given.atheris:
        with_atheris(given.target or "table", given.minutes)
    from fuzz_targets import LIMITS, TARGETS

    os.environ.update(LIMITS)
    with_hypothesis([given.target] if given.target else list(TARGETS), given.minutes)


if __name__ == "__main__":
    main()
