"""Make the pages of evidence/tables from the records: one per study, one per table of the paper and scale, an index.

    python evidence/pages.py

The same records give the same pages to the byte.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy import stats

from adaptive_labels.errors import UserError
from adaptive_labels.lab import tables
from adaptive_labels.lab.analysis.format import difference, p_value, percent_summary, signed
from adaptive_labels.lab.analysis.statistics import compare_paired, holm
from adaptive_labels.lab.analysis.table import MethodRow, TableColumn, lay_out, method_rows, metric_column
from adaptive_labels.lab.files import write_files
from adaptive_labels.lab.paper.comparison import compare_with_paper, format_comparison
from adaptive_labels.lab.paper.figure import draw_maps, figure_variant, heat_maps_of, labels_file
from adaptive_labels.lab.paper.recipes import all_reproductions, paper_figure, paper_tables
from adaptive_labels.lab.paper.records import read_records, record_metrics
from adaptive_labels.lab.paper.study import Figure, Record, Records, Study, Variant, load_study
from adaptive_labels.lab.report.charts import Axis, Curve, line_chart
from adaptive_labels.lab.report.figures import standalone
from adaptive_labels.lab.runs.arrays import load_residual_labels
from pooled_gains import combined_tables, draw_combined

EVIDENCE = Path(__file__).parent
PRINTED_RUNS = 5  # behind each mean ± standard deviation of the paper's
RANKING_SEEDS = 2
# The columns that a study may name: the metric, its heading, how many digits it is shown with, and its unit.
COLUMNS = {
    "top5": ("test_top5", "top-5 %", 1, 100.0),
    "nll": ("test_nll", "NLL", 3, 1.0),
    "nll_scaled": ("test_nll_scaled", "NLL, scaled", 3, 1.0),
    "ece": ("test_ece", "ECE", 3, 1.0),
    "ece_scaled": ("test_ece_scaled", "ECE, scaled", 3, 1.0),
    "aurc": ("test_aurc", "AURC", 4, 1.0),
    "worst_class": ("test_worst_class", "worst class %", 1, 100.0),
    "train_top1": ("train_top1", "train %", 1, 100.0),
    "loss_rise": ("loss_rise", "rise of validation NLL", 3, 1.0),  # from its lowest epoch to the last
    "residual_entropy": ("residual_entropy", "entropy of confusions", 3, 1.0),
    "rival_margin": ("rival_margin", "margin to rival", 3, 1.0),
    "confused_margin": ("confused_margin", "to most confused", 3, 1.0),
    "other_margin": ("other_margin", "to the mean other", 3, 1.0),
    "errors_to_confused": ("errors_to_confused", "errors to most confused %", 1, 100.0),
    "label_entropy": ("label_entropy", "entropy of S", 3, 1.0),
    "label_agreement": ("label_agreement", "S with test errors, Spearman", 3, 1.0),
    "label_top1": ("label_top1", "top of S is top error %", 1, 100.0),
}


# --------------------------------------------------------------------------------------------------------- all pages


def make_pages(studies: Path, results: Path) -> dict[str, str]:
    """Every page and picture by its file's name: of the studies in a folder, and of the paper's tables.

    Studies without records have none.
    """
    pages, index = {}, []
    for file in sorted(studies.glob("*.toml")):
        if file.name == "tasks.toml":
            continue
        study = load_study(file)
        done = StudyResults(study, read_records(results, study))
        if done.runs:
            pages[f"{study.name}.md"] = study_page(done)
            index.append([f"[{study.title}]({study.name}.md)", _answer(study.conclusion)])
            if (drawing := draw_study(done)) is not None:
                pages[f"{study.name}.svg"] = drawing
    reproduced, matrix = _reproduced(results)
    if not pages and not reproduced:
        return {}
    pages |= reproduced | {"paper.md": printed_gains()}
    studied = "\n".join(tables.markdown(["study", "answer"], index, left=None))
    parts = ["# All tables", "## The paper's tables", matrix, "The paper's own gains: [tests](paper.md).", "## Studies"]
    return pages | {"README.md": "\n\n".join([*parts, studied]) + "\n"}


def _reproduced(results: Path) -> tuple[dict[str, str], str]:
    """The pages of the paper's tables that have records, and which of all are done."""
    pages, lines = {}, []
    for one in all_reproductions():
        records = read_records(results, one.study)
        columns = compare_with_paper(one, records)
        begun = [column for column in columns if column.begun]
        elsewhere = sum("@" in column.task for column in begun)
        name = f"reproduce-{one.study.name}.md"
        seeds = sorted({row.n for column in begun for row in column.rows if row.n})
        cells = [row for column in begun for row in column.rows if row.label in column.printed]
        lines.append(
            [
                f"[{one.table.name}]({name})" if records else one.table.name,
                one.scale,
                f"{len(begun)} of {len(one.study.tasks)}{', on other data' if elsewhere else ''}",
                f"{sum(row.n > 0 for row in cells)} of {sum(len(one.rows(task)) for task in one.study.tasks)}",
                f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else "".join(map(str, seeds)),
            ]
        )
        if not records:
            continue
        page, done = format_comparison(one, columns, markdown=True), StudyResults(one.study, records)
        for task in done.runs:
            page += f"\n## {one.column(task).heading}: all metrics\n\n{task_table(done, task)}\n"
        pages[name] = page
        pages |= draw_kept(results, one.study, records)
    head = ["table", "scale", "columns begun", "the paper's cells run", "seeds"]
    return pages, "\n".join(tables.markdown(head, lines, left=None))


def _answer(conclusion: str) -> str:
    """The conclusion's first sentence, which stands in bold."""
    return conclusion.partition("**")[2].partition("**")[0] or "–"


# ----------------------------------------------------------------------------------------------------------- a study


@dataclass(frozen=True)
class StudyResults:
    """A study with its records, and what its pages need of them."""

    study: Study
    records: Records

    def runs_of(self, task: str, variant: Variant) -> dict[int, Record]:
        """Seed → record."""
        runs = {seed: self.records.get((task, variant.key, seed)) for seed in self.study.seeds_for(task)}
        return {seed: record for seed, record in runs.items() if record is not None}

    def shown(self, task: str, variant: Variant) -> Variant | None:
        """The variant itself; of a tuned one the value that is best on validation, None while a trial is missing."""
        if variant.tune is None:
            return variant
        return variant.best_trial(task, self.records, self.study.seeds_for(task))

    @cached_property
    def runs(self) -> dict[str, dict[str, dict[int, Record]]]:
        """Task → variant → seed → record, of the tasks and variants that have been run."""
        found: dict[str, dict[str, dict[int, Record]]] = {}
        for task in self.study.tasks:
            for variant in self.study.variants_on(task):
                shown = self.shown(task, variant)
                if shown is not None and (runs := self.runs_of(task, shown)):
                    found.setdefault(task, {})[variant.name] = runs
        return found

    @cached_property
    def rows(self) -> dict[str, list[MethodRow]]:
        """Task → a row per variant, with the differences from the study's reference."""
        return {
            task: method_rows({name: _metrics(some) for name, some in runs.items()}, self.study.reference)
            for task, runs in self.runs.items()
        }

    @property
    def accuracies(self) -> dict[str, dict[str, dict[int, float]]]:
        """Task → variant → seed → test accuracy."""
        return {task: {row.label: row.values("test_top1") for row in rows} for task, rows in self.rows.items()}


def _metrics(runs: Mapping[int, Record]) -> dict[int, dict[str, float]]:
    return {seed: record_metrics(record) for seed, record in runs.items()}


def study_page(done: StudyResults) -> str:
    """A study's page: its conclusion, its question, and a table for each task."""
    study = done.study
    parts = [f"# {study.title}", study.conclusion.strip(), study.question]
    if study.combined:
        parts += ["## All tasks together", *combined_tables(done.accuracies, study.combined)]
    for task, runs in done.runs.items():
        parts += [f"## {task}", task_table(done, task), _diverged(runs), gains_table(runs) if study.by_class else ""]
    return "\n\n".join([*filter(None, parts), _notes(study)]) + "\n"


def _notes(study: Study) -> str:
    return (
        "Mean ± standard deviation over n seeds, last epoch. Bold: the highest on validation. Differences in points of "
        f"test accuracy from {study.reference} on the same seeds with their 95% t interval; p of the paired t test "
        "after Holm over the rows. This page is made by `make results` from `evidence/records`."
    )


def _diverged(runs: Mapping[str, Mapping[int, Record]]) -> str:
    ended = [
        f"{name} (seed {seed})"
        for name, some in runs.items()
        for seed, run in some.items()
        if run["status"] != "finished"
    ]
    return f"Diverged: {', '.join(ended)}." if ended else ""


def task_table(done: StudyResults, task: str) -> str:
    """One task's Markdown table."""
    study, rows = done.study, done.rows[task]
    best = max(rows, key=lambda row: row.mean("validation_top1") or 0.0)
    shown = {variant.name: done.shown(task, variant) for variant in study.variants_on(task)}

    def name(row: MethodRow) -> str:
        variant = shown[row.label]
        text = row.label if variant is None else variant.name
        return f"**{text}**" if row is best else text

    def accuracy(split: str) -> Callable[[MethodRow], str]:
        return lambda row: percent_summary(row.summary(f"{split}_top1")) or "–"

    columns = [
        TableColumn("variant", name),
        TableColumn("n", lambda row: str(row.n)),
        TableColumn("validation %", accuracy("validation")),
        TableColumn("test %", accuracy("test")),
        TableColumn(f"vs. {study.reference}", lambda row: difference(row.versus), always=True),
        TableColumn("p", lambda row: p_value(row.versus.p_holm) if row.versus else "", always=True),
        *(_metric_column(study, name) for name in study.columns),
    ]
    return "\n".join(tables.markdown(*lay_out(rows, columns), left=None))


def _metric_column(study: Study, name: str) -> TableColumn:
    if name not in COLUMNS:
        raise UserError(f"{study.file} has the unknown column {name!r}; known are {', '.join(COLUMNS)}")
    metric, heading, digits, unit = COLUMNS[name]
    return metric_column(heading, metric, digits, unit, missing="–")


def gains_table(runs: Mapping[str, Mapping[int, Record]]) -> str:
    """In which classes a gain over the baseline lies: the third it knows worst, the middle one, and the best.

    The baseline's first seeds rank the classes and its others are compared with, since the classes that are worst with
    one seed would be better with another one by chance alone.
    """
    whole = {  # without the runs that diverged
        name: {s: run for s, run in some.items() if "right_by_class" in run} for name, some in runs.items()
    }
    right = {name: {s: np.array(run["right_by_class"]) for s, run in some.items()} for name, some in whole.items()}
    baseline = right.pop("baseline", {})
    if len(baseline) <= RANKING_SEEDS:
        return ""
    seeds = sorted(baseline)
    counts = np.array(whole["baseline"][seeds[0]]["test_by_class"])
    ranked = np.argsort(sum(baseline[seed] for seed in seeds[:RANKING_SEEDS]) / np.maximum(counts, 1), kind="stable")
    thirds = np.array_split(ranked, 3)
    head = ["gain over the baseline, points", "worst third of classes", "middle third", "best third"]
    lines = []
    for name, own in right.items():
        if gains := [own[seed] - baseline[seed] for seed in seeds[RANKING_SEEDS:] if seed in own]:
            mean = np.mean(gains, axis=0)
            lines.append([name, *(signed(mean[third].sum() / counts[third].sum()) for third in thirds)])
    return "\n".join(tables.markdown(head, lines, left=None)) if lines else ""


def curves_of(done: StudyResults, figure: Figure) -> dict[str, Curve]:
    """By task, the differences of test accuracy from the baseline in points, at the values that the study runs there.

    x is the place of a value among the figure's; the band is the 95% t interval over the seeds.
    """
    study, curves = done.study, {}
    for task in study.tasks:
        wanted = {variant.key for variant in study.variants_on(task)}
        baseline = _test_accuracy(done, task, Variant("baseline", "baseline"))
        points = []
        for place, value in enumerate(figure.values):
            changed = {} if value == figure.default else {figure.option: value}
            variant = Variant("", figure.method, {**study.options.get(figure.method, {}), **changed})
            gain = compare_paired(_test_accuracy(done, task, variant), baseline)
            if variant.key in wanted and gain.difference is not None:
                ends = [gain.difference if end is None else end for end in (gain.low, gain.high)]
                points.append((place, 100 * gain.difference, *(100 * end for end in ends)))
        if len(points) > 1:
            curves[task] = Curve.of(*zip(*points, strict=True))
    return curves


def _test_accuracy(done: StudyResults, task: str, variant: Variant) -> dict[int, float]:
    return MethodRow(variant.name, _metrics(done.runs_of(task, variant))).values("test_top1")


def draw_study(done: StudyResults) -> str | None:
    """The picture of a study that has one, as an SVG file."""
    study, figure = done.study, done.study.figure
    if figure is not None and (curves := curves_of(done, figure)):
        ticks = {float(place): f"{value:g}".replace("-", "−") for place, value in enumerate(figure.values)}
        x, y = Axis(figure.label, ticks=ticks), Axis(figure.title, signed=True)
        return standalone(line_chart(curves, figure.title, x, y, bars=True))
    if study.combined and (drawing := draw_combined(done.accuracies, study.combined, study.title)):
        return standalone(drawing)
    return None


# --------------------------------------------------------------------------------------------------------- the paper


def printed_gains() -> str:
    """Whether the gains that the paper prints are more than noise, by Welch's test of its means and deviations."""
    parts = ["# The paper's own gains", f"Welch's test of the printed means and deviations of {PRINTED_RUNS} runs."]
    for table in paper_tables().values():
        tests: list[tuple[str, str, float, float]] = []
        for column in table.columns.values():
            base = column.rows["baseline"]
            for method, row in column.rows.items():
                if row is not base and row.std is not None and base.std is not None:
                    both = (row.top1, row.std, PRINTED_RUNS, base.top1, base.std, PRINTED_RUNS)
                    p = float(stats.ttest_ind_from_stats(*both, equal_var=False).pvalue)
                    tests.append((column.heading, method, row.top1 - base.top1, p))
        corrected = holm([p for *_, p in tests])
        rows = [
            [heading, method, signed(gain / 100, 2), p_value(p), p_value(holm_p)]
            for (heading, method, gain, p), holm_p in zip(tests, corrected, strict=True)
        ]
        if rows:
            head = ["column", "method", "gain, points", "p (Welch)", "p (Holm)"]
            parts += [f"## {table.source}", "\n".join(tables.markdown(head, rows, left=None))]
    return "\n\n".join(parts) + "\n"


def draw_kept(results: Path, study: Study, records: Records) -> dict[str, str]:
    """The pictures, by file name, of a study's tasks whose labels were kept and whose run has a record."""
    found = {}
    for task in study.tasks:
        record, file = records.get((task, figure_variant(study).key, 0), {}), labels_file(results, task)
        if "course" in record and file.exists():
            accuracies = dict(enumerate(record["course"]["train_accuracy"], start=1))
            maps = heat_maps_of(load_residual_labels(file), accuracies, study.config(task).data.name, paper_figure())
            found[f"figure-{task}.svg"] = standalone(draw_maps(maps))
    return found


def main() -> None:
    """Write all pages, and print where they went."""
    for path in write_files(EVIDENCE / "tables", make_pages(EVIDENCE / "studies", EVIDENCE)):
        print(path)


if __name__ == "__main__":
    main()
