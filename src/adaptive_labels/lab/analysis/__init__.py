"""Run folders → statistics, tables and confusions; torch is never needed."""

from adaptive_labels.lab.analysis.advice import advice_frame
from adaptive_labels.lab.analysis.confusion_matrix import asymmetric_pairs, confused_groups, order_by_similarity
from adaptive_labels.lab.analysis.confusions import (
    Confusions,
    format_confusions,
    group_frame,
    one_way_pairs,
    read_confusions,
    summarise_confusions,
    top_pairs,
)
from adaptive_labels.lab.analysis.frames import (
    frame_of,
    histories_of,
    metrics_of,
    open_runs,
    pairs_of,
    predictions_of,
    residuals_of,
)
from adaptive_labels.lab.analysis.records import RunGroup, RunRecord, group_records, read_run_records
from adaptive_labels.lab.analysis.residual_labels import (
    agreement,
    consistency,
    mean_residual_labels,
    row_entropy,
    top_confusions,
)
from adaptive_labels.lab.analysis.statistics import (
    Summary,
    bootstrap_difference,
    compare_all,
    compare_paired,
    holm,
    sign_flip_p,
    summarise,
)
from adaptive_labels.lab.analysis.suspects import Suspect, Suspects, average_precision, read_suspects, suspects_to_dict
from adaptive_labels.lab.analysis.table import format_table, group_rows, method_rows
from adaptive_labels.lab.analysis.verdict import Verdict, verdict
from adaptive_labels.metrics import confidence_and_correct, risk_coverage

__all__ = [
    "Confusions",
    "RunGroup",
    "RunRecord",
    "Summary",
    "Suspect",
    "Suspects",
    "Verdict",
    "advice_frame",
    "agreement",
    "asymmetric_pairs",
    "average_precision",
    "bootstrap_difference",
    "compare_all",
    "compare_paired",
    "confidence_and_correct",
    "confused_groups",
    "consistency",
    "format_confusions",
    "format_table",
    "frame_of",
    "group_frame",
    "group_records",
    "group_rows",
    "histories_of",
    "holm",
    "mean_residual_labels",
    "method_rows",
    "metrics_of",
    "one_way_pairs",
    "open_runs",
    "order_by_similarity",
    "pairs_of",
    "predictions_of",
    "read_confusions",
    "read_run_records",
    "read_suspects",
    "residuals_of",
    "risk_coverage",
    "row_entropy",
    "sign_flip_p",
    "summarise",
    "summarise_confusions",
    "suspects_to_dict",
    "top_confusions",
    "top_pairs",
    "verdict",
]  # fmt: skip
