"""Run folders → statistics, tables, confusions and a report; torch is never needed."""

from .confusions import Confusions, read_confusions
from .examples import bootstrap_runs
from .frames import Columns, histories_of, metrics_of, open_runs, pairs_of, predictions_of, residuals_of
from .groups import AsymmetricPair, ConfusedGroup, asymmetric_pairs, confused_groups
from .label_scores import SCORES, label_scores, mean_residual_labels, suggested_labels
from .listing import format_confusions, named_groups, one_way_pairs, summarise_confusions
from .ordering import order_by_similarity
from .ranking import average_precision, precision_at
from .records import Group, Record, group_records, read_records
from .report import write_figures, write_report
from .residuals import Agreement, Consistency, agreement, consistency, row_entropy, top_confusions
from .selective import RiskCoverage, confidence_and_correct, risk_coverage
from .statistics import Comparison, Summary, bootstrap_difference, compare, compare_all, holm, sign_flip_p, summarise
from .summary import Row, summarise_group
from .suspects import Suspect, Suspects, read_suspects, suspects_to_dict, write_suspects
from .table import table
from .verdict import verdict

__all__ = [
    "SCORES",
    "Agreement",
    "AsymmetricPair",
    "Columns",
    "Comparison",
    "ConfusedGroup",
    "Confusions",
    "Consistency",
    "Group",
    "Record",
    "RiskCoverage",
    "Row",
    "Summary",
    "Suspect",
    "Suspects",
    "agreement",
    "asymmetric_pairs",
    "average_precision",
    "bootstrap_difference",
    "bootstrap_runs",
    "compare",
    "compare_all",
    "confidence_and_correct",
    "confused_groups",
    "consistency",
    "format_confusions",
    "group_records",
    "histories_of",
    "holm",
    "label_scores",
    "mean_residual_labels",
    "metrics_of",
    "named_groups",
    "one_way_pairs",
    "open_runs",
    "order_by_similarity",
    "pairs_of",
    "precision_at",
    "predictions_of",
    "read_confusions",
    "read_records",
    "read_suspects",
    "residuals_of",
    "risk_coverage",
    "row_entropy",
    "sign_flip_p",
    "suggested_labels",
    "summarise",
    "summarise_confusions",
    "summarise_group",
    "suspects_to_dict",
    "table",
    "top_confusions",
    "verdict",
    "write_figures",
    "write_report",
    "write_suspects",
]
