"""The models by name: our own, each registered by a file in this folder, and those of other libraries."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from adaptive_labels.errors import UserError, check_positive, check_switches, did_you_mean
from adaptive_labels.plugins import source_hash

Builder = TypeVar("Builder", bound=Callable[..., nn.Module])

_USUAL = {"text": "ngrams", "image": "pixels", "row": "columns"}  # what is read unless a model says something else
_WIDTH_SUFFIX = re.compile(r"(?P<base>.+)-w(?P<width>\d+)")

Finder = Callable[[str], "ModelEntry"]
LIBRARIES: dict[str, tuple[str, Finder]] = {}
"""Other libraries by their prefix: a line for a list of models, and what finds one of theirs by its whole name."""


@dataclass(frozen=True)
class ModelEntry:
    """A model that can be had by name."""

    name: str  # without a width suffix
    kind: str  # what it reads: "text", "image" or "row"
    description: str  # a line for a list of models
    build: Callable[..., nn.Module]  # called with the number of classes and the model's options
    reads: str  # the name of its encoder: "ngrams", "words" or "characters" of a text, "pixels", "columns"
    pretrained_reads: str | None = None  # the one that it has with the option `pretrained`, if it has that option
    source_hash: str | None = None  # tells versions of the user's own apart; None for the package's

    @property
    def options(self) -> dict[str, Any]:
        parameters = list(inspect.signature(self.build).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters}

    def reads_with(self, options: Mapping[str, Any]) -> str:
        """Return the name of the encoder that it has with these options."""
        return self.pretrained_reads if self.pretrained_reads and options.get("pretrained") else self.reads


MODELS: dict[str, ModelEntry] = {}
"""Every model of our own, by name."""


def register_model(name: str, kind: str, description: str, *, reads: str | None = None) -> Callable[[Builder], Builder]:
    """Register a class or function, called with the number of classes and options, as a model of this name.

    One with an option `width` can also be had with the width as a suffix to its name: `name-w16`. See `ModelEntry` for
    the arguments; `reads` is the usual encoder of the kind unless given.
    """
    if kind not in _USUAL:
        raise UserError(f"kind is {kind!r}; it must be 'text', 'image' or 'row'")

    def register(build: Builder) -> Builder:
        hash_of_source = source_hash(build)
        if name in MODELS and MODELS[name].source_hash is None:
            raise UserError(f"model {name!r} is built in: register your own under another name")
        MODELS[name] = ModelEntry(name, kind, description, build, reads or _USUAL[kind], source_hash=hash_of_source)
        return build

    return register


def create_model(name: str, num_classes: int, **options: Any) -> nn.Module:
    """Build a model by name.

    Args:
        name: one of `MODELS`, with a width suffix (`preact-resnet18-w16`) where the model has an option `width`; or one
            of another library, with its prefix (`timm:resnet18`).
        num_classes: the number of logits K.
        options: the model's own, see `MODELS[name].options`.

    >>> model = create_model("preact-resnet18-w16", num_classes=10, in_channels=1)
    >>> sum(parameter.numel() for parameter in model.parameters())
    700730
    """
    if num_classes < 2:
        raise UserError(f"num_classes is {num_classes}; it must be at least 2")
    entry, width = find_model(name)
    if width is not None:
        options = {"width": width} | options
    allowed = entry.options
    for option in options:
        if option not in allowed:
            has = f"it has {', '.join(allowed)}{did_you_mean(option, allowed)}"
            raise UserError(f"model {entry.name!r} has no option {option!r}; {has}")
    check_switches(options, allowed)
    return entry.build(num_classes, **options)


def find_model(name: str) -> tuple[ModelEntry, int | None]:
    """Return the model of this name, and the width if the name ends with one."""
    if name in MODELS:
        return MODELS[name], None
    if name.partition(":")[0] in LIBRARIES and ":" in name:
        return LIBRARIES[name.partition(":")[0]][1](name), None
    match = _WIDTH_SUFFIX.fullmatch(name)
    if match and match["base"] in MODELS and "width" in MODELS[match["base"]].options:
        return MODELS[match["base"]], int(match["width"])
    raise UserError(f"there is no model {name!r}; there are {', '.join(sorted(MODELS))}{did_you_mean(name, MODELS)}")


def check_sizes(dropout: float = 0.0, **sizes: int) -> None:
    """Refuse sizes that are no whole numbers above 0, and a dropout outside [0, 1), by their names."""
    check_positive(**sizes)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is {dropout}; it must be at least 0 and below 1")


class _NothingDrawn(TorchFunctionMode):
    """Leaves random starts out: for a tensor without numbers torch would import its compiler to draw them, in 2 s."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", None) in ("normal_", "uniform_"):
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


@contextmanager
def shapes_only() -> Iterator[None]:
    """A context in which a network is built in no time and without memory: its shapes are right, it has no numbers.

    >>> with shapes_only():
    ...     layer = nn.Linear(100_000, 1_000_000)
    >>> layer.weight.shape, layer.weight.is_meta
    (torch.Size([1000000, 100000]), True)
    """
    with torch.device("meta"), _NothingDrawn():
        yield
