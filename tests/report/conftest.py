"""A report of three methods by three seeds."""

import pytest

from adaptive_labels.lab.report import write_report
from adaptive_labels.lab.runs import RunFolder


@pytest.fixture(scope="session")
def source(comparison: list[RunFolder], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page as text."""
    return write_report(comparison, tmp_path_factory.mktemp("page") / "report.html").read_text(encoding="utf-8")
