"""`alr reproduce`: rerun the paper's tables and figure, and compare with the printed ones."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_labels.errors import UserError
from adaptive_labels.lab.cli.app import add_group
from adaptive_labels.lab.cli.options import (
    DataDir,
    Json,
    Log,
    Out,
    Workers,
    count,
    option,
    split_names,
    with_executor,
)
from adaptive_labels.lab.cli.output import (
    block,
    check_output,
    end_with_failures,
    open_output,
    prose,
    show_json,
)
from adaptive_labels.lab.cli.progress import make_listener
from adaptive_labels.lab.cli.study import run_missing

if TYPE_CHECKING:
    from adaptive_labels.lab.jobs import JobExecutor
    from adaptive_labels.lab.paper.recipes import Reproduction

_SCALES = (
    "smoke: minutes, on embedded images; short: narrow networks, at most 20 minutes per cell; cpu: all of CIFAR with a "
    "fast network, at most 25 minutes on two cores; paper: in full."
)
Scale = Annotated[str, option("smoke|short|cpu|paper", _SCALES)]
TABLES = {
    "cifar": "Table 1: CIFAR-10 and CIFAR-100.",
    "imagenet": "Table 2: ImageNet, top-1 and top-5.",
    "text": "Table 3: AG News, Yahoo! Answers and Yelp Review Full.",
    "dml": "Table 4: deep mutual learning and distillation on CIFAR-100.",
}
group = add_group("reproduce", "The paper's tables and figure, next to the printed ones.")


def _command(table: str) -> Callable[..., None]:
    @with_executor
    def command(
        executor: "JobExecutor | None",
        scale: Scale = "smoke",
        only: Annotated[str | None, option("A,B,…", "Methods, or all; by default the paper's rows.")] = None,
        networks: Annotated[str | None, option("A,B,…", "Some of the paper's networks.")] = None,
        data: Annotated[str | None, option("A,B,…", "Some of the paper's data sets.")] = None,
        seeds: Annotated[int | None, count("How many seeds for each cell.")] = None,
        data_dir: DataDir = None,
        stand_ins: Annotated[list[str] | None, option("NAME=PATH", "Other data for one of them.", "--from")] = None,
        workers: Workers = None,
        log: Log = None,
        out: Out = Path("runs"),
        results: Annotated[Path | None, option("DIR", "Where records are kept; by default DIR of --out.")] = None,
        as_json: Json = False,
    ) -> None:
        from adaptive_labels.lab.paper.comparison import compare_with_paper, format_comparison, to_plain
        from adaptive_labels.lab.paper.recipes import choose_cells, load_reproduction
        from adaptive_labels.lab.paper.records import read_records
        from adaptive_labels.lab.paper.runner import StudyOptions

        check_output(out)
        reproduction = load_reproduction(table, scale)
        cells = choose_cells(reproduction, split_names(only), split_names(networks), split_names(data))
        instead = _stand_ins(reproduction, stand_ins or [])
        options = StudyOptions(out, results or out, data_dir, workers, instead, executor, split_names(log))
        failed = _fill(reproduction, cells, seeds, options, as_json)
        compared = compare_with_paper(reproduction, read_records(options.results, reproduction.study))
        if as_json:
            show_json(to_plain(reproduction, compared))
        else:
            typer.echo("")
            block(format_comparison(reproduction, compared))
        end_with_failures(failed)

    return command


for _name, _words in TABLES.items():
    group.command(_name, help=f"{_words} Finished runs are not run again.")(_command(_name))


def _stand_ins(reproduction: "Reproduction", given: list[str]) -> dict[str, str]:
    """`NAME=PATH` by name; a name that no recipe of the table has is refused."""
    known = {reproduction.study.config(task).data.name for task in reproduction.study.tasks}
    stand_ins = {}
    for pair in given:
        name, _, path = pair.partition("=")
        if name not in known or not path:
            raise UserError(f"--from: {pair!r} is not NAME=PATH with one of {', '.join(sorted(known))} for the name")
        stand_ins[name] = path
    return stand_ins


def _fill(reproduction: "Reproduction", cells: Any, seeds: int | None, options: Any, quiet: bool) -> int:
    """Do what is missing of the chosen cells; how many runs failed."""
    failed = 0
    for task, variants in cells:
        study = reproduction.study.limited(variants, seeds)
        heading = f"{reproduction.column(task).heading}, {options.recorded_as(study, task)}"
        failed += run_missing(heading, study, task, options, quiet=quiet)
    return failed


@group.command()
def figure(
    scale: Scale = "smoke",
    data: Annotated[str | None, option("NAME", "cifar10, cifar100, digits (at smoke), a folder of images.")] = None,
    data_dir: DataDir = None,
    out: Out = Path("runs"),
    figures: Annotated[Path | None, option("DIR", "Where the picture goes; by default DIR of --out.")] = None,
    results: Annotated[Path | None, option("DIR", "Keep the labels shown here.")] = None,
) -> None:
    """Figure 3: heat maps of the residual labels over the epochs, as SVG and PNG."""
    check_output(out)
    from adaptive_labels.lab.paper import figure
    from adaptive_labels.lab.paper.recipes import load_reproduction, paper_figure
    from adaptive_labels.lab.paper.runner import StudyOptions

    reproduction, paper = load_reproduction("cifar", scale), paper_figure()
    task = figure.find_task(reproduction, data)
    prose(f"Paper: {paper.source}. Scale: {scale}, {figure.METHOD} on {task}. {reproduction.study.question}")
    open_output(out)
    options = StudyOptions(out, out, data_dir)
    elsewhere = None if data == reproduction.study.config(task).data.name else data
    if results is not None and elsewhere is not None:
        raise UserError(f"--results keeps the labels of {task} on its own data; leave it out for {data}")
    with make_listener(quiet=False) as listener:
        run = figure.train_for_figure(reproduction, task, options, listener, elsewhere)
    maps = figure.read_heat_maps(run, paper)
    if results is not None:
        figure.keep_labels(maps, results, task)
    of = task if elsewhere is None else f"{maps.data}-{scale}"
    written, without = figure.write_picture(maps, figures or out, f"figure-{of}")
    typer.echo("")
    for sentence in figure.describe_maps(maps, paper):
        prose(sentence)
    for path in written:
        typer.echo(str(path))
    if without is not None:
        prose(without)
