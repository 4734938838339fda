"""One offline page that answers: which method, by how much, and what is confused with what."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from adaptive_labels.analysis.format import listed
from adaptive_labels.analysis.records import group_records, read_records
from adaptive_labels.analysis.suspects import Suspects
from adaptive_labels.report.figures import Figures
from adaptive_labels.report.group_data import GroupData, read_group
from adaptive_labels.report.page import heading, page
from adaptive_labels.report.sections.calibration import calibration_section
from adaptive_labels.report.sections.classes import classes_section
from adaptive_labels.report.sections.confused_pairs import pairs_section
from adaptive_labels.report.sections.confusion_maps import map_section
from adaptive_labels.report.sections.label_noise import noise_section
from adaptive_labels.report.sections.provenance import making_section
from adaptive_labels.report.sections.residual_labels import over_time_section
from adaptive_labels.report.sections.suspects import suspects_section
from adaptive_labels.report.sections.training import learning_section
from adaptive_labels.report.sections.verdict import answer_section
from adaptive_labels.runs import RunError, RunFolder, write_bytes

# What the epochs of all maps may take: with it, 12 runs with 100 classes stay well under 2 MB.
MAP_BYTES = 700_000


def write_report(
    runs: Iterable[RunFolder], path: str | Path, *, examples: bool = True, suspects: Sequence[Suspects] = ()
) -> Path:
    """Write the report of ``runs`` as one HTML file that needs nothing else, and return its path.

    Args:
        runs: what to report on.
        path: the file.
        examples: show inputs that were mistaken; leave them out where the data may not be passed on.
        suspects: rankings of training labels to show with their runs, from `read_suspects`.
    """
    title, body, _ = _compose(runs, examples, suspects)
    write_bytes(path, page(title, body).encode("utf-8", errors="replace"))
    return Path(path)


def write_figures(
    runs: Iterable[RunFolder], folder: str | Path, *, suspects: Sequence[Suspects] = ()
) -> tuple[list[Path], str | None]:
    """Write every figure of the report as SVG and PNG and every table as LaTeX into ``folder``.

    Returns:
        The files, and a sentence when the PNG files could not be made, else None.
    """
    _, _, figures = _compose(runs, examples=False, suspects=suspects)
    return figures.write(folder)


def _compose(runs: Iterable[RunFolder], examples: bool, suspects: Sequence[Suspects]) -> tuple[str, str, Figures]:
    groups = group_records(read_records(runs))
    if not groups:
        raise RunError("There are no runs to report on, so nothing was written.")
    known = {record.run.name for group in groups for record in group.records}
    for ranking in suspects:
        if ranking.run not in known:
            raise RunError(f"The suspects are of the run {ranking.run}, which is not among these runs.")
    title = f"Label regularisation on {listed(sorted({group.dataset for group in groups}))}"
    figures = Figures()
    body = [heading(1, title)]
    for number, group in enumerate(groups):
        figures.prefix = f"{group.title}-" if len(groups) > 1 else ""
        ranked = [ranking for ranking in suspects if ranking.run in {record.run.name for record in group.records}]
        body.append(_group(read_group(group), ranked, number, figures, examples, MAP_BYTES // len(groups)))
    return title, "\n".join(body), figures


def _group(
    found: GroupData, suspects: Sequence[Suspects], number: int, figures: Figures, examples: bool, budget: int
) -> str:
    def name(part: str) -> str:
        return f"g{number}-{part}"

    answer = answer_section(found, name("answer"), figures)
    parts = {
        "confusions": map_section(found, name("confusions"), figures, budget),
        "pairs": pairs_section(found, name("pairs"), figures, examples=examples),
        "over time": over_time_section(found, name("over-time"), figures),
        "training": learning_section(found, name("training"), figures),
        "calibration": calibration_section(found, name("calibration"), figures),
        "classes": classes_section(found, name("classes"), figures),
        "wrong labels": noise_section(found, name("wrong-labels"), figures),
        "suspects": suspects_section(suspects, name("suspects"), figures, examples=examples),
        "how it was made": making_section(found.group, name("how-it-was-made")),
    }
    links = "".join(
        f'<li><a href="#{name(words.replace(" ", "-"))}">{escape(words)}</a></li>'
        for words, part in parts.items()
        if part
    )
    navigation = f'<nav aria-label="Parts of this report"><ul>{links}</ul></nav>'
    return f'<section class="group">{answer}{navigation}{"".join(parts.values())}</section>'
