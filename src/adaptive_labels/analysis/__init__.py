"""Run folders → statistics, tables, confusions and a report; torch is never needed."""

from .confusions import Confusions, format_confusions, read_confusions
from .examples import bootstrap_runs
from .groups import AsymmetricPair, ConfusedGroup, asymmetric_pairs, confused_groups
from .ordering import order_by_similarity
from .records import Group, Record, group_records, read_records
from .report import write_figures, write_report
from .residuals import Agreement, Consistency, agreement, consistency, row_entropy, top_confusions
from .selective import RiskCoverage, confidence_and_correct, risk_coverage
from .statistics import Comparison, Summary, bootstrap_difference, compare, compare_all, holm, sign_flip_p, summarise
from .summary import Row, summarise_group
from .table import table
from .verdict import verdict

__all__ = [
    "Agreement",
    "AsymmetricPair",
    "Comparison",
    "ConfusedGroup",
    "Confusions",
    "Consistency",
    "Group",
    "Record",
    "RiskCoverage",
    "Row",
    "Summary",
    "agreement",
    "asymmetric_pairs",
    "bootstrap_difference",
    "bootstrap_runs",
    "compare",
    "compare_all",
    "confidence_and_correct",
    "confused_groups",
    "consistency",
    "format_confusions",
    "group_records",
    "holm",
    "order_by_similarity",
    "read_confusions",
    "read_records",
    "risk_coverage",
    "row_entropy",
    "sign_flip_p",
    "summarise",
    "summarise_group",
    "table",
    "top_confusions",
    "verdict",
    "write_figures",
    "write_report",
]
