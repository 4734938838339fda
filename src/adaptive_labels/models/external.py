"""Image networks of other libraries, `timm:NAME` and `torchvision:NAME`; imported only when one is asked for."""

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import nn

from adaptive_labels.errors import UserError, did_you_mean

LIBRARIES = {
    "timm": "any image network of timm, if that is installed: timm:resnet18, …",
    "torchvision": "any classifier of torchvision, if that is installed: torchvision:resnet18, …",
}
"""The libraries by their prefix, each with a line for a list of models."""


def find_external(name: str) -> Callable[..., nn.Module] | None:
    """Return what builds the network of a name with a library's prefix, called with the number of classes and options.

    None if the name has no such prefix. A library that is not installed, or cannot be imported beside this torch, is a
    UserError, as is a name that it does not know. Nothing is downloaded: networks start at random or from `--weights`.
    """
    library, colon, own = name.partition(":")
    if not colon or library not in LIBRARIES:
        return None
    module = _import("timm" if library == "timm" else "torchvision.models", name)
    _check_name(name, own, module.list_models())
    return partial(_from_timm if library == "timm" else _from_torchvision, module, own)


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


def _import(module: str, name: str) -> Any:
    library = module.partition(".")[0]
    try:
        return importlib.import_module(module)
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


def _check_name(name: str, own: str, known: Sequence[str]) -> None:
    # timm also takes the name of trained weights behind a dot, which choose a variant's settings.
    if own.partition(".")[0] in known:
        return
    library = name.partition(":")[0]
    raise UserError(f"{library} has no model {own!r}{did_you_mean(own, known, f'{library}:')}")
