"""`alr reproduce`: the paper's tables and figure, ours beside the printed ones."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_labels.cli.compare import Workers
from adaptive_labels.cli.options import DryRun, Json, Out, at_least_one
from adaptive_labels.cli.output import check_output, open_output
from adaptive_labels.cli.show import block, counted, prose
from adaptive_labels.cli.usage import Group
from adaptive_labels.errors import UserError

if TYPE_CHECKING:
    from adaptive_labels.experiments.comparison import Plan
    from adaptive_labels.paper.recipes import Reproduction

Scale = Annotated[
    str,
    typer.Option(
        help="smoke: embedded images, minutes; short: narrow networks, 20 minutes a cell at most; paper: in full.",
        metavar="smoke|short|paper",
    ),
]
DataDir = Annotated[Path | None, typer.Option(help="Where data is looked for.", metavar="DIR")]
TABLES = {
    "cifar": "Table 1: CIFAR-10 and CIFAR-100.",
    "imagenet": "Table 2: ImageNet, top-1 and top-5.",
    "text": "Table 3: AG News, Yahoo! Answers and Yelp Review Full.",
    "dml": "Table 4: deep mutual learning and distillation on CIFAR-100.",
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        cls=Group, help="The paper's tables and figure, beside its printed figures.", rich_markup_mode=None
    )
    for name, words in TABLES.items():
        group.command(name, help=f"{words} Finished runs are not run again.")(_command(name))
    group.command("figure", help="Figure 3: heat maps of the residual labels over the epochs, as SVG and PNG.")(_figure)
    group.command("tables", help="Make the tables of all recipes that have records, as Markdown.")(_tables)
    app.add_typer(group, name="reproduce")


def _command(table: str) -> Callable[..., None]:
    def command(
        scale: Scale = "smoke",
        only: Annotated[
            str | None,
            typer.Option(help="Methods, with commas between; the paper's rows unless given, or all.", metavar="A,B,…"),
        ] = None,
        networks: Annotated[
            str | None, typer.Option(help="The paper's networks, with commas between.", metavar="A,B,…")
        ] = None,
        data: Annotated[
            str | None, typer.Option(help="The paper's data sets, with commas between.", metavar="A,B,…")
        ] = None,
        seeds: Annotated[
            int | None, typer.Option(help="How many seeds for each cell.", metavar="N", parser=at_least_one)
        ] = None,
        data_dir: DataDir = None,
        stand_ins: Annotated[
            list[str] | None,
            typer.Option("--from", help="Other data in the place of a data set; can be repeated.", metavar="NAME=PATH"),
        ] = None,
        workers: Workers = None,
        out: Out = Path("runs"),
        results: Annotated[
            Path | None, typer.Option(help="Where records are kept; DIR of --out unless given.", metavar="DIR")
        ] = None,
        dry_run: DryRun = False,
        as_json: Json = False,
    ) -> None:
        from adaptive_labels.experiments.studies.runner import Work
        from adaptive_labels.paper.recipes import Choice, load_reproduction

        check_output(out)
        reproduction = load_reproduction(table, scale)
        choice = Choice(_names(only), _names(networks), _names(data))
        folder = None if data_dir is None else str(data_dir)
        instead = _stand_ins(reproduction, stand_ins or [])
        work = Work(out, results or out, folder, workers or os.cpu_count() or 1, instead)
        failed = _conduct(reproduction, choice, seeds, work, dry_run, as_json)
        _show_table(reproduction, work.results, as_json)
        if failed:
            typer.echo(f"alr: {counted(failed, 'run')} failed; the same command does what is missing", err=True)
            raise typer.Exit(1)

    return command


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _stand_ins(reproduction: Reproduction, given: list[str]) -> dict[str, str]:
    """`NAME=PATH` by name; a name that no recipe of the table has is refused."""
    known = {reproduction.study.config(task).data.name for task in reproduction.study.tasks}
    found = {}
    for one in given:
        name, _, path = one.partition("=")
        if name not in known or not path:
            raise UserError(f"--from: {one!r} is not NAME=PATH with one of {', '.join(sorted(known))} for the name")
        found[name] = path
    return found


def _conduct(reproduction: Reproduction, choice: Any, seeds: int | None, work: Any, dry_run: bool, quiet: bool) -> int:
    """Do what is missing of the chosen cells, or only check that it could be done; how many runs failed."""
    from adaptive_labels.experiments.studies.runner import count_runs, run_study
    from adaptive_labels.paper.dry_run import check_cell
    from adaptive_labels.paper.recipes import choose, limited

    failed = 0
    for task, variants in choose(reproduction, choice):
        study = limited(reproduction.study, variants, seeds)
        wanted, done = count_runs(study, task, work)
        if not quiet:
            heading, name = reproduction.column(task).heading, work.recorded_as(study, task)
            prose(f"{heading}, {name}: {counted(wanted, 'run')}, {done} recorded already.")
        if dry_run:
            for variant in variants:
                words = check_cell(study.config(task), variant)
                if not quiet:
                    prose(f"{variant.method}: {words}", indent=2)
        elif done < wanted:
            open_output(work.out)
            for outcome in run_study(study, task, work, _listening(quiet)):
                failed += 1
                typer.echo(f"alr: {task}, {outcome.job.name}: {outcome.error}", err=True)
    return failed


def _listening(quiet: bool) -> Callable[[Plan], Any]:
    from adaptive_labels.cli.live import make_listener

    return lambda plan: make_listener(plan, quiet)


def _show_table(reproduction: Reproduction, results: Path, as_json: bool) -> None:
    from adaptive_labels.experiments.studies.records import read_records
    from adaptive_labels.paper.comparison import compare_with_paper, render, to_plain

    compared = compare_with_paper(reproduction, read_records(results, reproduction.study))
    if as_json:
        typer.echo(json.dumps(to_plain(reproduction, compared), indent=2, ensure_ascii=False))
    else:
        typer.echo("")
        block(render(reproduction, compared))


def _figure(
    scale: Scale = "smoke",
    data: Annotated[
        str | None,
        typer.Option(
            help="cifar10 unless given; cifar100; at the scale smoke digits; or a folder of images.", metavar="NAME"
        ),
    ] = None,
    data_dir: DataDir = None,
    out: Out = Path("runs"),
    figures: Annotated[
        Path | None, typer.Option(help="Where the picture goes; DIR of --out unless given.", metavar="DIR")
    ] = None,
    as_json: Json = False,
) -> None:
    check_output(out)
    from adaptive_labels.experiments.studies.runner import Work
    from adaptive_labels.paper import figure
    from adaptive_labels.paper.printed import paper_figure
    from adaptive_labels.paper.recipes import load_reproduction

    reproduction, paper = load_reproduction("cifar", scale), paper_figure()
    task = figure.find_task(reproduction, data)
    if not as_json:
        prose(f"Paper: {paper.source}. Scale: {scale}, {figure.METHOD} on {task}. {reproduction.study.question}")
    open_output(out)
    work = Work(out, out, None if data_dir is None else str(data_dir))
    elsewhere = None if data == reproduction.study.config(task).data.name else data
    run = figure.train(reproduction, task, work, _listening(as_json), elsewhere)
    maps = figure.read_heat_maps(run, paper)
    of = task if elsewhere is None else f"{maps.data}-{scale}"
    written, without = figure.write_picture(maps, figures or out, f"figure-{of}")
    if as_json:
        plain = {"source": paper.source, "scale": scale, "recipe": task, **figure.to_plain(maps)}
        typer.echo(json.dumps({**plain, "files": [str(path) for path in written]}, ensure_ascii=False))
        return
    typer.echo("")
    for sentence in figure.sentences(maps, paper):
        prose(sentence)
    for path in written:
        typer.echo(str(path))
    if without is not None:
        prose(without)


def _tables(
    results: Annotated[Path, typer.Option(help="Where records and tables are.", metavar="DIR")] = Path("results"),
    template: Annotated[
        Path | None, typer.Option(help="A page with {{cifar-short}} where that table goes.", metavar="FILE")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Where the filled template goes.", metavar="FILE")] = None,
) -> None:
    from adaptive_labels.paper.comparison import fill_template, write_tables

    if (template is None) != (page is None):
        raise UserError("--template and --page belong together: what to fill, and where it goes")
    for path in write_tables(results):
        typer.echo(str(path))
    if template is not None and page is not None:
        page.write_text(fill_template(template, results), encoding="utf-8")
        typer.echo(str(page))
