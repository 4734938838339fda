"""Run folders → statistics, tables and confusions, without torch. docs/analysis.md says which function is for what."""

from adaptive_labels.lab.analysis.advice import advice_frame as advice_frame
from adaptive_labels.lab.analysis.confusion_matrix import (
    asymmetric_pairs as asymmetric_pairs,
    confused_groups as confused_groups,
    order_by_similarity as order_by_similarity,
)
from adaptive_labels.lab.analysis.confusions import read_confusions as read_confusions
from adaptive_labels.lab.analysis.confusions_text import (
    format_confusions as format_confusions,
    summarise_confusions as summarise_confusions,
)
from adaptive_labels.lab.analysis.frames import (
    histories_of as histories_of,
    metrics_of as metrics_of,
    pairs_of as pairs_of,
    predictions_of as predictions_of,
    residuals_of as residuals_of,
)
from adaptive_labels.lab.analysis.records import (
    RunRecord as RunRecord,
    group_records as group_records,
    read_run_records as read_run_records,
)
from adaptive_labels.lab.analysis.residual_labels import (
    agreement as agreement,
    consistency as consistency,
    row_entropy as row_entropy,
)
from adaptive_labels.lab.analysis.statistics import (
    bootstrap_difference as bootstrap_difference,
    compare_all as compare_all,
    compare_paired as compare_paired,
    holm as holm,
    sign_flip_p as sign_flip_p,
)
from adaptive_labels.lab.analysis.suspects import (
    average_precision as average_precision,
    read_suspects as read_suspects,
)
from adaptive_labels.lab.analysis.table import format_table as format_table, method_rows as method_rows
from adaptive_labels.lab.analysis.verdict import verdict as verdict
