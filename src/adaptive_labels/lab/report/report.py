"""One offline page that answers: which method, by how much, and what is confused with what."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from markupsafe import Markup

from adaptive_labels.lab.analysis.records import group_records, read_run_records
from adaptive_labels.lab.analysis.suspects import Suspects
from adaptive_labels.lab.report.figures import Figures
from adaptive_labels.lab.report.group_data import read_group
from adaptive_labels.lab.report.page import page, render
from adaptive_labels.lab.report.sections import Context, all_sections
from adaptive_labels.lab.runs import RunError, RunFolder, write_bytes
from adaptive_labels.lab.words import joined

# What the epochs of all maps may take: with it, 12 runs with 100 classes stay well under 2 MB.
MAP_BYTES = 700_000


@dataclass(frozen=True)
class PagePart:
    """A section that has been written."""

    name: str  # its id in the page
    title: str
    link: str
    content: Markup


def write_report(
    runs: Iterable[RunFolder],
    path: str | Path,
    *,
    examples: bool = True,
    suspects: Sequence[Suspects] = (),
) -> Path:
    """Write the report of ``runs`` as one HTML file that needs nothing else, and return its path.

    Args:
        runs: what to report on.
        path: the file.
        examples: show inputs that were mistaken; leave them out where the data may not be passed on.
        suspects: labels that look wrong in the data of these runs, from `read_suspects`.
    """
    title, groups, _ = _compose(runs, examples, suspects)
    write_bytes(path, page(title, groups).encode("utf-8", errors="replace"))
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


def _compose(
    runs: Iterable[RunFolder], examples: bool, suspects: Sequence[Suspects]
) -> tuple[str, list[list[PagePart]], Figures]:
    groups = group_records(read_run_records(runs))
    if not groups:
        raise RunError("There are no runs to report on, so nothing was written.")
    for found in suspects:
        if not any(found.dataset == group.dataset for group in groups):
            raise RunError(f"The suspects are of {found.dataset}, which none of these runs was trained on.")
    figures, written = Figures(), []
    for number, group in enumerate(groups):
        figures.prefix = group.title if len(groups) > 1 else ""
        ranked = [found for found in suspects if found.dataset == group.dataset]
        context = Context(read_group(group), figures, f"g{number}", ranked, examples, MAP_BYTES // len(groups))
        written.append(_parts(context))
    title = f"Label regularisation on {joined(sorted({group.dataset for group in groups}))}"
    return title, written, figures


def _parts(context: Context) -> list[PagePart]:
    """The sections of a group that have something to show."""
    parts = []
    for section in all_sections():
        name = f"{context.name}-{section.link.replace(' ', '-')}"
        values = section.values(replace(context, name=name))
        if values is not None:
            parts.append(PagePart(name, section.title, section.link, render(section.template, values)))
    return parts
