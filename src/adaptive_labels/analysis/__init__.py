"""Run folders → statistics, tables, confusions and a report; torch is never needed."""

from .confusions import Confusions, format_confusions, read_confusions
from .examples import bootstrap_runs
from .records import Group, Record, group_records, read_records
from .report import write_figures, write_report
from .statistics import Comparison, Summary, bootstrap_difference, compare, compare_all, holm, sign_flip_p, summarise
from .summary import Row, summarise_group
from .table import table
from .verdict import verdict

__all__ = [
    "Comparison",
    "Confusions",
    "Group",
    "Record",
    "Row",
    "Summary",
    "bootstrap_difference",
    "bootstrap_runs",
    "compare",
    "compare_all",
    "format_confusions",
    "group_records",
    "holm",
    "read_confusions",
    "read_records",
    "sign_flip_p",
    "summarise",
    "summarise_group",
    "table",
    "verdict",
    "write_figures",
    "write_report",
]
