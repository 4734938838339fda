"""The report: one offline page made from finished runs."""

from adaptive_labels.lab.report.report import write_figures, write_report

__all__ = ["write_figures", "write_report"]
