"""The options that training commands share, and the configuration they make."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from adaptive_labels.config import RunConfig


def whole(text: str | int) -> int:
    """A whole number given on the command line."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def at_least_one(text: str | int) -> int:
    """A whole number from 1 on."""
    if (number := whole(text)) < 1:
        raise typer.BadParameter(f"{number} is below 1")
    return number


def _number(text: str | float) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


Data = Annotated[str, typer.Argument(metavar="DATA", help="A data set's name, or a path to your own data.")]
Out = Annotated[Path, typer.Option(help="Where run folders go.", metavar="DIR")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Json = Annotated[bool, typer.Option("--json", help="For machines.")]
_OWN_SETTINGS = {"method": "method.name", "seed": "seed"}


def _reading(
    data_dir: Annotated[Path | None, typer.Option(help="Where data is looked for.", metavar="DIR")] = None,
    text_column: Annotated[
        str | None, typer.Option(help="The column of the text: a name, or a number from 1.", metavar="C")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="The column of the label: a name, or a number from 1.", metavar="C")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Width and height that images are brought to.", metavar="PIXELS", parser=whole)
    ] = None,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out images that cannot be read.")
    ] = False,
) -> dict[str, Any]:
    return {
        "data.data_dir": None if data_dir is None else str(data_dir),
        "data.text_column": text_column,
        "data.label_column": label_column,
        "data.image_size": image_size,
        "data.skip_unreadable": skip_unreadable,
    }


def _training(
    model: Annotated[
        str | None, typer.Option(help="The network; chosen by the data unless given.", metavar="NAME")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Weights to start from, in a safetensors file.", metavar="FILE")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training data.", metavar="N", parser=whole)
    ] = None,
    class_weights: Annotated[
        str, typer.Option(help="none, or balanced: rare classes count more.", metavar="none|balanced")
    ] = "none",
    device: Annotated[str, typer.Option(help="auto, cpu, mps, cuda or cuda:N.", metavar="NAME")] = "auto",
    precision: Annotated[str, typer.Option(help="32, bf16-mixed or 16-mixed.", metavar="NAME")] = "32",
    label_noise: Annotated[
        float, typer.Option(help="A share of training labels to make wrong, 0 to 1.", metavar="P", parser=_number)
    ] = 0.0,
) -> dict[str, Any]:
    return {
        "model.name": model,
        "model.weights": weights,
        "training.epochs": epochs,
        "training.class_weights": class_weights,
        "training.device": device,
        "training.precision": precision,
        "data.label_noise": label_noise,
    }


def _settings(
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Any setting: lr=0.1, method.options.attraction=-2, … Repeatable.", metavar="KEY=VALUE"
        ),
    ] = None,
) -> list[str]:
    return settings or []


def with_config(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command with the arguments ``data`` and ``config`` the options for reading data and for training.

    The command is called with the configuration that they make.
    """
    return _with_options(command, (_reading, _training, _settings))


def with_reading(command: Callable[..., None]) -> Callable[..., None]:
    """The same with the options for reading data only."""
    return _with_options(command, (_reading,))


def _with_options(command: Callable[..., None], groups: tuple[Callable[..., Any], ...]) -> Callable[..., None]:
    own = {name: p for name, p in _parameters(command).items() if name != "config"}
    shared = [_parameters(group) for group in groups]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        values = [
            group(**{name: given.pop(name) for name in parameters})
            for group, parameters in zip(groups, shared, strict=True)
        ]
        tables = {key: value for part in values if isinstance(part, dict) for key, value in part.items()}
        # Options of a command's own that are settings too, so that --set can overrule them like any other.
        tables |= {key: given[name] for name, key in _OWN_SETTINGS.items() if name in given}
        settings = next((part for part in values if isinstance(part, list)), [])
        command(**given, config=make_config(given["data"], tables, settings))

    parameters = [*own.values(), *(parameter for group in shared for parameter in group.values())]
    parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
    # typer reads both of these.
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_options


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    given = inspect.signature(function).parameters
    names = {name: annotation for name, annotation in function.__annotations__.items() if name in given}
    names.pop("config", None)  # its type would import more than a --help needs
    hints = get_type_hints(_Annotated(names, function.__globals__), include_extras=True)
    return {
        name: parameter.replace(annotation=hints.get(name, Any), kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in given.items()
    }


class _Annotated:
    """Just the annotations of a function, for get_type_hints."""

    def __init__(self, annotations: dict[str, Any], names: dict[str, Any]) -> None:
        self.__annotations__ = annotations
        self.__globals__ = names


def make_config(data: str, tables: dict[str, Any], settings: list[str]) -> RunConfig:
    """The configuration of a command line: ``tables`` are settings by dotted key, None where they were not given."""
    from adaptive_labels.config import from_dict, with_settings

    values: dict[str, Any] = {"data": {"name": data}}
    for key, value in tables.items():
        if value is not None:
            section, _, name = key.rpartition(".")
            (values.setdefault(section, {}) if section else values)[name] = value
    return with_settings(from_dict(values), settings)
