"""Shared by all tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Machines that run the tests may be slow and shared: no test is failed by the clock.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

sys.path.insert(0, str(Path(__file__).parent))  # tests import `reference`, which is not part of the package


@pytest.fixture(autouse=True)
def _seeded() -> None:
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)  # the suite runs one process a core
