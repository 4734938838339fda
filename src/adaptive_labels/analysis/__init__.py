"""Run folders → statistics, tables and confusions; torch is never needed."""

from adaptive_labels.analysis.confusions import Confusions, read_confusions
from adaptive_labels.analysis.confusions_table import (
    format_confusions,
    named_groups,
    one_way_pairs,
    summarise_confusions,
)
from adaptive_labels.analysis.examples import bootstrap_runs
from adaptive_labels.analysis.frames import (
    Columns,
    histories_of,
    metrics_of,
    open_runs,
    pairs_of,
    predictions_of,
    residuals_of,
)
from adaptive_labels.analysis.groups import AsymmetricPair, ConfusedGroup, asymmetric_pairs, confused_groups
from adaptive_labels.analysis.label_scores import SCORES, label_scores, mean_residual_labels, suggested_labels
from adaptive_labels.analysis.ordering import order_by_similarity
from adaptive_labels.analysis.ranking import average_precision, precision_at
from adaptive_labels.analysis.records import Group, Record, group_records, read_records
from adaptive_labels.analysis.residual_labels import (
    Agreement,
    Consistency,
    agreement,
    consistency,
    row_entropy,
    top_confusions,
)
from adaptive_labels.analysis.selective import RiskCoverage, confidence_and_correct, risk_coverage
from adaptive_labels.analysis.statistics import (
    Comparison,
    Summary,
    bootstrap_difference,
    compare,
    compare_all,
    holm,
    sign_flip_p,
    summarise,
)
from adaptive_labels.analysis.summary import Row, summarise_group
from adaptive_labels.analysis.suspects import Suspect, Suspects, read_suspects, suspects_to_dict, write_suspects
from adaptive_labels.analysis.table import table
from adaptive_labels.analysis.verdict import verdict

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
    "write_suspects",
]
