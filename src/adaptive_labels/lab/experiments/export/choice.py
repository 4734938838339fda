"""The run of a comparison to export: the verdict's method, and its best seed, both by validation alone."""

from pathlib import Path

from adaptive_labels.errors import UserError
from adaptive_labels.lab.analysis.format import percent
from adaptive_labels.lab.analysis.records import RunGroup, RunRecord, group_records, read_run_records
from adaptive_labels.lab.analysis.table import best_row, group_rows
from adaptive_labels.lab.runs import list_runs
from adaptive_labels.lab.words import listed, plural


def best_run(folder: Path) -> tuple[Path, str]:
    """The best run in a folder of one comparison, and why it is."""
    groups = [group for group in group_records(read_run_records(list_runs(folder))) if group.counted]
    if not groups:
        raise UserError(f"there is no finished run in {folder}")
    if len(groups) > 1:
        titles = listed(f"{group.title} ({group.counted[0].run.name})" for group in groups)
        raise UserError(f"{folder} holds {len(groups)} comparisons: {titles}; give the folder of one run")
    best = best_record(groups[0])
    if best is None:
        raise UserError(
            f"not every method in {folder} has a validation accuracy to choose by: give the folder of one run"
        )
    seeds = [one.metrics["validation_top1"] for one in groups[0].by_label()[best.label]]
    reached, own = percent(sum(seeds) / len(seeds)), percent(best.metrics["validation_top1"])
    words = f"{best.label} is best on validation ({reached}%, {plural(len(seeds), 'seed')}); of its seeds, {best.seed}"
    return best.run.path, f"{words} is ({own}%): {best.run.path}"


def best_record(group: RunGroup) -> RunRecord | None:
    """The best seed of the best method; of equal ones the first. None where validation does not tell."""
    row = best_row(group_rows(group))
    return None if row is None else max(group.by_label()[row.label], key=lambda one: one.metrics["validation_top1"])
