"""A network's shapes without its numbers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["shapes_only"]


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
    ...     layer = torch.nn.Linear(100_000, 1_000_000)
    >>> layer.weight.shape, layer.weight.is_meta
    (torch.Size([1000000, 100000]), True)
    """
    with torch.device("meta"), _NothingDrawn():
        yield
