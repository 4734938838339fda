"""Run folders as training would leave them, and a report of some."""

from pathlib import Path

import pytest

from adaptive_labels.lab.report import write_report
from adaptive_labels.lab.runs import RunFolder
from run_maker import Maker, three_methods


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "runs")


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    """Three methods by three seeds, for tests that only read."""
    return three_methods(Maker(tmp_path_factory.mktemp("comparison")))


@pytest.fixture(scope="session")
def source(comparison: list[RunFolder], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of these runs."""
    return write_report(comparison, tmp_path_factory.mktemp("page") / "report.html").read_text(encoding="utf-8")
