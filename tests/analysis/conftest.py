"""Run folders as training would leave them."""

from pathlib import Path

import pytest

from adaptive_labels.lab.runs import RunFolder
from run_maker import Maker, three_methods


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "runs")


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """Three methods by three seeds, for tests that only read."""
    return three_methods(Maker(tmp_path_factory.mktemp("comparison")))
