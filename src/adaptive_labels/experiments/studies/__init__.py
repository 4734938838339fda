"""Studies: questions put as lists of variants, run on several data sets, kept as compact records, shown as tables."""

from adaptive_labels.experiments.studies.records import append_record, make_record, read_all_records
from adaptive_labels.experiments.studies.study import Study, StudyError, Variant, load_study
from adaptive_labels.experiments.studies.tables import study_table, write_tables

__all__ = [
    "Study",
    "StudyError",
    "Variant",
    "append_record",
    "load_study",
    "make_record",
    "read_all_records",
    "study_table",
    "write_tables",
]
