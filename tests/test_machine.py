import os

import pytest

from adaptive_labels.errors import UserError
from adaptive_labels.lab.machine import launched, usable_cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_cores_that_the_process_may_not_use_do_not_count() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert usable_cores() == len(before)


def test_without_affinity_all_cores_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1


def test_the_numbers_of_a_launcher_must_be_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "2")
    assert launched() == (2, 2)
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(UserError, match="RANK='first', WORLD_SIZE='2': torchrun sets them to whole numbers"):
        launched()
