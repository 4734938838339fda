"""The encoders by what a network reads. A new one is a file in this folder that registers its class."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, Self, TypeVar

from torch import Tensor


class EncodedExamples(Protocol):
    """One split's inputs, ready to give whole batches."""

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """What the network reads of the examples at `indices` (int64, (n,))."""


class Encoder(Protocol):
    """Turns a split's inputs (texts or images) into what a network reads.

    `fit` and `encode` may keep what they work out on the disk (see `data.cache`), as the text encoders do with texts
    that are too many to hold.
    """

    kind: ClassVar[str]
    """Its name in the files of a run."""

    options: ClassVar[frozenset[str]]
    """The names of the options of `fit`; they stand among a model's options."""

    @property
    def sizes(self) -> dict[str, int]:
        """The options of a network that its encoder decides."""

    @classmethod
    def fit(cls, inputs: Any, **options: Any) -> Self:
        """Return the encoder for inputs like these, the training inputs."""

    def encode(self, inputs: Any) -> EncodedExamples:
        """Return the inputs of a split, ready for batches."""

    def to_dict(self) -> dict[str, Any]:
        """Return all that the encoder is as plain data."""

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Return the encoder that `to_dict` described."""


ENCODERS: dict[str, type[Encoder]] = {}
"""Every encoder, by what a network with it reads."""

Kind = TypeVar("Kind", bound=Encoder)


def register_encoder(reads: str, *, kind: str | None = None) -> Callable[[type[Kind]], type[Kind]]:
    """Enter a class as the encoder of networks that read this; `kind` is its name in the files of a run, if another."""

    def enter(cls: type[Kind]) -> type[Kind]:
        cls.kind = kind or reads
        ENCODERS[reads] = cls
        return cls

    return enter
