"""Damaged files of every kind that is read: a `UserError` or a result, and nothing else.

A short form of `python tests/hostile/fuzz.py --minutes 60`; what that finds is kept in `corpus/` and read here.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_targets import LIMITS, TARGETS, mutated, seeds
from hypothesis import given, settings, strategies as st

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.bin"))


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    for variable, value in LIMITS.items():
        monkeypatch.setenv(variable, value)


@pytest.mark.parametrize("target", TARGETS)
def test_whole_and_damaged_files(target):
    for seed in seeds(target):
        TARGETS[target](seed)

    @settings(max_examples=40, database=None)
    @given(st.sampled_from(seeds(target)), st.randoms(use_true_random=False))
    def damaged(seed, draw):
        TARGETS[target](mutated(seed, draw))

    damaged()


@pytest.mark.parametrize("path", CORPUS, ids=[path.stem for path in CORPUS])
def test_what_was_once_a_traceback(path):
    TARGETS[path.stem.partition("-")[0]](path.read_bytes())
