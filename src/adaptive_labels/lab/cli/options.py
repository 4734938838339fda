"""Options shared by several commands, and how the options of a training command become a configuration."""

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adaptive_labels.errors import UserError
from adaptive_labels.lab.machine import TimeBudget

if TYPE_CHECKING:
    from adaptive_labels.lab.runs import RunFolder


def _parser(kind: type, words: str) -> Callable[[Any], Any]:
    def parse(text: Any) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not {words}") from None

    return parse


whole, _number = _parser(int, "a whole number"), _parser(float, "a number")


def _at_least_one(text: Any) -> int:
    number: int = whole(text)
    if number < 1:
        raise typer.BadParameter(f"{number} is below 1")
    return number


def split_names(text: str | None) -> tuple[str, ...]:
    """Names with commas between, each once."""
    return tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))


def argument(metavar: str, help: str) -> Any:
    """An argument: what stands for it in the help, and what it is."""
    return typer.Argument(metavar=metavar, help=help)


def option(metavar: str | None, help: str, *names: str, parser: Callable[[Any], Any] | None = None) -> Any:
    """An option: what stands for its value in the help, and what it is; without a value, it is on if it is given."""
    return typer.Option(*names, metavar=metavar, help=help, parser=parser)


def count(help: str) -> Any:
    """An option N: a whole number from 1 on."""
    return option("N", help, parser=_at_least_one)


def _load(file: Path | None) -> Path | None:
    if file is not None:
        from adaptive_labels.plugins import load_plugin

        load_plugin(file)
    return file


_PLUGIN = "Python code that registers methods or models of your own; it is run."
Data = Annotated[str, argument("DATA", "The name of a data set, or a path to your own data.")]
Run = Annotated[Path, argument("RUN", "The folder of a finished run.")]
Runs = Annotated[list[Path], argument("RUNS", "Run folders, or folders that hold them.")]
Out = Annotated[Path, option("DIR", "Where run folders go.")]
DryRun = Annotated[bool, option(None, "Say what would be done, and do nothing.", "--dry-run")]
Json = Annotated[bool, option(None, "Print JSON, for programs.", "--json")]
DataDir = Annotated[str | None, option("DIR", "Where to look for data.")]
Workers = Annotated[int | None, count("Runs at a time; by default one per GPU or core.")]
Budget = Annotated[
    TimeBudget | None, option("TIME", "90s, 30m or 2h: as much as fits into it.", parser=TimeBudget.parse)
]
Plugin = Annotated[Path | None, typer.Option(metavar="FILE.py", help=_PLUGIN, callback=_load)]
Results = Annotated[Path, option("DIR", "Where records are.")]


def find_runs(paths: list[Path]) -> list["RunFolder"]:
    """The runs in these folders; it is the user's mistake if there are none."""
    from adaptive_labels.lab.runs import list_runs

    runs = list_runs(paths)
    if not runs:
        raise UserError(f"there is no run in {', '.join(map(str, paths))}")
    return runs


Setting = tuple[str, inspect.Parameter]  # a key of the configuration, and the option that gives it


def _setting(
    flag: str, key: str, kind: Any, default: Any, help: str, metavar: str | None = None, parser: Any = None
) -> Setting:
    annotation = Annotated[kind, option(metavar, help, flag, parser=parser)]
    name = flag.removeprefix("--").replace("-", "_")
    return key, inspect.Parameter(name, _BY_NAME, default=default, annotation=annotation)


_BY_NAME = inspect.Parameter.KEYWORD_ONLY
_WEIGHTS = "none|balanced"
_LOG = "Where runs are logged: tensorboard, mlflow, wandb."
_COLUMN = "The column of the {}: a name, or a number from 1."
Log = Annotated[str | None, option("A,B,…", _LOG)]
READING = (
    _setting("--data-dir", "data.data_dir", str | None, None, "Where to look for data.", "DIR"),
    _setting("--text-column", "data.text_column", str | None, None, _COLUMN.format("text"), "C"),
    _setting("--label-column", "data.label_column", str | None, None, _COLUMN.format("label"), "C"),
    _setting("--image-size", "data.image_size", int | None, None, "Width and height of all images.", "PIXELS", whole),
    _setting("--skip-unreadable", "data.skip_unreadable", bool, False, "Leave out images that cannot be read."),
    _setting("--drop-unlabelled", "data.drop_unlabelled", bool, False, "Leave out rows without a label."),
    _setting("--min-per-class", "data.min_per_class", int | None, None, "Leave out rarer classes.", "N", whole),
)
TRAINING = (
    _setting("--model", "model.name", str | None, None, "The network; by default chosen by the data.", "NAME"),
    _setting("--weights", "model.weights", str | None, None, "Weights to start from, a safetensors file.", "FILE"),
    _setting("--epochs", "training.epochs", int | None, None, "Passes over the training data.", "N", whole),
    _setting("--class-weights", "training.class_weights", str, "none", "Whether rare classes count more.", _WEIGHTS),
    _setting("--device", "training.device", str, "auto", "auto, cpu, mps, cuda or cuda:N.", "NAME"),
    _setting("--precision", "training.precision", str, "32", "32, bf16-mixed or 16-mixed.", "NAME"),
    _setting("--log", "training.log", str | None, None, _LOG, "A,B,…", split_names),
    _setting("--label-noise", "data.label_noise", float, 0.0, "Share of labels to make wrong, 0 to 1.", "P", _number),
    _setting("--set", "", list[str] | None, None, "Any setting, such as lr=0.1; can be repeated.", "KEY=VALUE"),
)
# Options of one command that are settings, too, so that --set can overrule them like any other.
_OF_ONE_COMMAND = {"method": "method.name", "seed": "seed"}


def with_config(command: Callable[..., None], shared: Sequence[Setting] = READING + TRAINING) -> Callable[..., None]:
    """Give a command with the parameters ``data`` and ``config`` the ``shared`` options.

    The command is called with the configuration that they make.
    """
    keys = {parameter.name: key for key, parameter in shared}

    def with_options(**given: Any) -> None:
        from adaptive_labels.lab.config import from_dict, with_settings

        settings = given.pop("set", None) or []
        values: dict[str, Any] = {"data": {"name": given["data"]}}
        for name, key in (_OF_ONE_COMMAND | keys).items():
            value = given.pop(name, None) if name in keys else given.get(name)
            if value is not None:
                section, _, field = key.rpartition(".")
                (values.setdefault(section, {}) if section else values)[field] = value
        command(**given, config=with_settings(from_dict(values), settings))

    return _with_parameters(command, with_options, "config", shared)


def _with_parameters(
    command: Callable[..., None], wrapper: Callable[..., None], made: str, shared: Sequence[Setting]
) -> Callable[..., None]:
    """The wrapper of a command, to typer with the ``shared`` options in the place of the parameter that it ``made``."""
    of_command = [p.replace(kind=_BY_NAME) for p in inspect.signature(command).parameters.values() if p.name != made]
    parameters = [*of_command, *(parameter for _, parameter in shared)]
    functools.update_wrapper(wrapper, command)
    # typer reads both of these.
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


_OPTION = "For the executor, such as partition=gpu; can be repeated."
EXECUTOR = (
    _setting("--executor", "", str, "local", "Where runs are done; local is this machine.", "local|dask|submitit"),
    _setting("--scheduler", "", str | None, None, "Dask's scheduler, such as tcp://host:8786.", "ADDRESS"),
    _setting("--executor-option", "", list[str] | None, None, _OPTION, "KEY=VALUE"),
)


def with_executor(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command with the parameters ``workers`` and ``executor`` the options that say where runs are done.

    The command is called with the executor that they make; None is this machine without options, and needs no other.
    """

    def with_options(**given: Any) -> None:
        name, scheduler, options = (given.pop(parameter.name) for _, parameter in EXECUTOR)
        options = [*(options or []), *([] if scheduler is None else [f"scheduler={scheduler}"])]
        if name == "local" and not options:
            command(**given, executor=None)
            return
        from adaptive_labels.lab.jobs import make_executor

        with make_executor(name, given["workers"], options) as executor:
            command(**given, executor=executor)

    return _with_parameters(command, with_options, "executor", EXECUTOR)
