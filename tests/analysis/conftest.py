"""Run folders as training would leave them."""

from pathlib import Path

import pytest

from adaptive_labels.lab.runs import RunFolder
from run_maker import Maker, three_methods


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "runs")


@pytest.fixture
def comparison(maker: Maker) -> list[RunFolder]:
    return three_methods(maker)
