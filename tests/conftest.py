"""Shared by all tests."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Machines that run the tests may be slow and shared: no test is failed by the clock.
# In CI a commit always gets the same examples, so that it passes or fails for a reason of its own.
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("patient")

# A suite started in the background (`make test &` in a script) inherits an ignored Ctrl-C, and one under nohup an
# ignored SIGHUP; so would the commands whose interruption is tested.
if threading.current_thread() is threading.main_thread():
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)

sys.path.insert(0, str(Path(__file__).parent))  # tests import `reference`, which is not part of the package


@pytest.fixture(autouse=True, scope="session")
def _cache_of_this_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that a test keeps goes to the user's own cache; processes that it starts have it from here, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALR_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("ALR_ENCODERS", "off")  # so that defaults are the same whether encoders are installed or not
        yield


@pytest.fixture(autouse=True)
def _seeded() -> None:
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)  # the suite runs one process a core


@pytest.fixture
def maker(tmp_path: Path) -> Any:
    """Makes run folders as training would leave them."""
    from run_maker import Maker

    return Maker(tmp_path / "runs")


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs of three methods by three seeds, for tests that only read."""
    from run_maker import Maker, three_methods

    return three_methods(Maker(tmp_path_factory.mktemp("comparison")))
