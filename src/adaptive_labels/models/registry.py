"""The models by name: our own, each registered by a file in this folder, and those of other libraries."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from adaptive_labels.errors import UserError, did_you_mean

Builder = TypeVar("Builder", bound=Callable[..., nn.Module])

_USUAL = {"text": "features", "image": "pixels"}  # what is read unless a model says something else
_WIDTH_SUFFIX = re.compile(r"(?P<base>.+)-w(?P<width>\d+)")

LIBRARIES = {
    "timm": "any image network of timm, if that is installed: timm:resnet18, …",
    "torchvision": "any classifier of torchvision, if that is installed: torchvision:resnet18, …",
}
"""Other libraries by their prefix, each with a line for a list of models; imported only if a network is asked for."""


@dataclass(frozen=True)
class ModelEntry:
    """A model that can be had by name."""

    name: str  # without a width suffix
    kind: str  # what it reads: "text" or "image"
    description: str  # a line for a list of models
    build: Callable[..., nn.Module]  # called with the number of classes and the model's options
    reads: str  # the name of its encoder: "features" (in no order), "words" or "characters" of a text, "pixels"

    @property
    def options(self) -> dict[str, Any]:
        """Return the names of the options and their defaults."""
        parameters = list(inspect.signature(self.build).parameters.values())[1:]
        return {parameter.name: parameter.default for parameter in parameters}


MODELS: dict[str, ModelEntry] = {}
"""Every model of our own, by name."""


def register_model(name: str, kind: str, description: str, *, reads: str | None = None) -> Callable[[Builder], Builder]:
    """Enter a class or function, called with the number of classes and options, as a model of this name.

    One with an option `width` can also be had with the width as a suffix to its name: `name-w16`. See `ModelEntry` for
    the arguments; `reads` is `"features"` or `"pixels"` unless given.
    """
    if kind not in _USUAL:
        raise UserError(f"kind is {kind!r}; it must be 'text' or 'image'")

    def enter(build: Builder) -> Builder:
        if name in MODELS:
            raise UserError(f"name is {name!r}; there is a model of that name already")
        MODELS[name] = ModelEntry(name, kind, description, build, reads or _USUAL[kind])
        return build

    return enter


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
    return entry.build(num_classes, **options)


def find_model(name: str) -> tuple[ModelEntry, int | None]:
    """Return the model of this name, and the width if the name ends with one."""
    if name in MODELS:
        return MODELS[name], None
    if name.partition(":")[0] in LIBRARIES and ":" in name:
        return _find_external(name), None
    match = _WIDTH_SUFFIX.fullmatch(name)
    if match and match["base"] in MODELS and "width" in MODELS[match["base"]].options:
        return MODELS[match["base"]], int(match["width"])
    raise UserError(f"there is no model {name!r}; there are {', '.join(sorted(MODELS))}{did_you_mean(name, MODELS)}")


def check_sizes(dropout: float = 0.0, **sizes: int) -> None:
    """Refuse sizes below 1 and a dropout outside [0, 1), by their names."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}; it must be at least 1")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is {dropout}; it must be at least 0 and below 1")


def _find_external(name: str) -> ModelEntry:
    """A network of another library. Nothing is downloaded: it starts at random or from `--weights`."""
    library, _, own = name.partition(":")
    try:
        module = importlib.import_module("timm" if library == "timm" else "torchvision.models")
    except ModuleNotFoundError as error:
        missing = (error.name or library).partition(".")[0]
        wanted = library if missing == library else f"{missing}, which {library} uses"
        raise UserError(f"{name!r} needs {wanted}, and it is not installed: pip install {missing}") from error
    except Exception as error:  # torchvision beside another build of torch: RuntimeError, ImportError, OSError, …
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{name!r} needs {library}, which is installed but cannot be imported ({reason}); torchvision must be of "
            "the same release and build as torch"
        ) from error
    known = module.list_models()
    # timm also takes the name of trained weights behind a dot, which choose a variant's settings.
    if own.partition(".")[0] not in known:
        raise UserError(f"{library} has no model {own!r}{did_you_mean(own, known, f'{library}:')}")
    build = partial(_from_timm if library == "timm" else _from_torchvision, module, own)
    return ModelEntry(name, "image", LIBRARIES[library], build, "pixels")


def _from_timm(
    module: Any,
    own: str,
    num_classes: int,
    in_channels: int = 3,
    drop_rate: float | None = None,
    drop_path_rate: float | None = None,
    img_size: int | None = None,
) -> nn.Module:
    """Build a network of timm; what is None is not passed on, since not every network has every option."""
    given = {"drop_rate": drop_rate, "drop_path_rate": drop_path_rate, "img_size": img_size}
    options = {name: value for name, value in given.items() if value is not None}
    model: nn.Module = module.create_model(own, num_classes=num_classes, in_chans=in_channels, **options)
    return model


def _from_torchvision(module: Any, own: str, num_classes: int, in_channels: int = 3) -> nn.Module:
    if in_channels != 3:
        raise ValueError(f"in_channels is {in_channels}; torchvision's networks read 3 channels only")
    model: nn.Module = module.get_model(own, num_classes=num_classes)
    return model


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
