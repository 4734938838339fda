"""What the encoders share that ask a pretrained network: features made once, kept on the disk, and memory-mapped.

Shapes: N inputs, D features, n inputs of a batch.

Embeddings are kept by the content of each input. Another split of the same data or a part of it costs nothing new;
where data has grown, only the new inputs are encoded.
"""

import os
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptive_labels.errors import UserError
from adaptive_labels.lab.data.cache import cache_folder, hash_of, kept, mapped
from adaptive_labels.lab.data.downloads import Progress
from adaptive_labels.lab.data.encoders import Encoder
from adaptive_labels.lab.models.pretrained.backbones import Backbone

_FORMAT = 1  # of the entries in the cache: another number makes all of them anew
_DIGEST, _NUMBER = "S16", "<f2"  # half precision: half the space, and no prediction that would notice
KEPT_FROM = 64
"""Fewer new inputs than this, as in a prediction, are encoded in memory and leave nothing behind."""

Digests = NDArray[np.bytes_]
Batches = Callable[[NDArray[np.int64]], Iterator[tuple[Sequence[int], Any]]]
"""Of the inputs at some indices: batches for the network, each after its places among the indices."""

B = TypeVar("B", bound=Backbone)
T = TypeVar("T")
_PROGRESS: ContextVar[Progress | None] = ContextVar("progress", default=None)


class OverdueError(Exception):
    """Encoding would take so many seconds, which is too long; what was encoded until then is kept."""

    def __init__(self, words: str, seconds: float) -> None:
        super().__init__(words)
        self.seconds = seconds


@dataclass
class _Limit:
    """The moment when encoding must be over, the number of inputs until then, and how many are done."""

    moment: float
    total: int
    began: float
    done: int = 0

    def check(self, more: int) -> None:
        """Count what was encoded; an `OverdueError` as soon as it is clear that the rest would come too late."""
        self.done += more
        each, left = (time.time() - self.began) / self.done, max(self.total - self.done, 0)
        late = time.time() + each * left > self.moment and self.done >= min(KEPT_FROM, self.total // 2)
        if left and (late or time.time() > self.moment):
            raise OverdueError(f"{self.done:,} of {self.total:,} inputs are encoded in time", each * self.total)


_LIMIT: ContextVar[_Limit | None] = ContextVar("limit", default=None)


@contextmanager
def within(variable: ContextVar[T], value: T) -> Iterator[None]:
    """A context in which a variable has a value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def encoding_until(moment: float, total: int) -> AbstractContextManager[None]:
    """A context in which ``total`` inputs are to be encoded until a moment, in seconds since the epoch.

    Raises:
        OverdueError: as soon as it is clear that it takes longer.
    """
    return within(_LIMIT, _Limit(moment, total, time.time()))


def encoding_progress(tell: Progress) -> AbstractContextManager[None]:
    """A context in which `tell` hears how many inputs a pretrained network has encoded, and of how many."""
    return within(_PROGRESS, tell)


@dataclass(frozen=True, eq=False)
class Vectors:
    """One vector for each of N inputs; a batch of them is float32."""

    values: Tensor  # (M, D) float16, perhaps memory-mapped
    rows: Tensor  # (N,) int64, where each input's are

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, indices: Tensor) -> Tensor:
        """Return the features of these inputs, (n, D).

        >>> vectors = Vectors(torch.eye(3, dtype=torch.float16), torch.tensor([2, 0]))
        >>> vectors.batch(torch.tensor([0])).tolist()
        [[0.0, 0.0, 1.0]]
        """
        return self.values[self.rows[indices]].float()


class Pretrained(Encoder, Generic[B]):
    """An encoder with a network that others have trained; it stays as it is, or with `tune` is trained further."""

    find: ClassVar[Any]  # the network of a name; refuses in a sentence if it is not installed
    weights: str  # a hash of the network's weights
    name: str  # which of a library's networks it is
    tune: bool

    @abstractmethod
    def cache_key(self) -> dict[str, Any]:
        """All that features depend on beside the inputs, as plain data."""

    @abstractmethod
    def digests(self, inputs: Any) -> Sequence[bytes]:
        """Return 16 bytes for each input, equal only for equal inputs."""

    @property
    def backbone(self) -> B:
        """The pretrained network, which must be the one that the encoder was made with."""
        found: B = self.find(self.name)
        if found.weights != self.weights:
            which, here = self.name or self.kind, found.weights[:12]
            raise UserError(f"{which} with the weights {self.weights[:12]}… is not known here, only {here}…")
        return found

    @property
    def sizes(self) -> dict[str, int]:
        """The options of a network that its encoder decides."""
        return {"in_features": self.backbone.width, "tune": self.tune}

    def lacking(self, inputs: Any) -> int:
        """How many different inputs have yet to be encoded, which takes time."""
        if self.tune:
            return 0
        wanted = np.array(self.digests(inputs), _DIGEST)
        part, _ = _find(wanted, _parts(self.cache_key(), self.backbone.width)[1])
        return len(np.unique(wanted[part < 0]))


def pretraining_notes(encoder: object, dataset: str) -> list[str]:
    """What a pretrained encoder was trained on, and a warning where that flatters its results on a data set."""
    if not isinstance(encoder, Pretrained):
        return []
    backbone: Backbone = encoder.backbone
    training = "is trained further with the head" if encoder.tune else "stays as it is; only the head is trained"
    return [f"{backbone.note} It {training}.", *([backbone.seen[dataset]] if dataset in backbone.seen else [])]


def encoded_once(encoder: object, digests: Sequence[bytes], backbone: Backbone, batches: Batches) -> Vectors:
    """Return the features of inputs, encoding only those that no earlier call with this encoder has encoded.

    Args:
        encoder: all that the features depend on beside the inputs, as plain data.
        digests: 16 bytes for each input, equal only for equal inputs, (N,).
        backbone: makes the features of a batch; several threads call it at once.
        batches: cuts those inputs that are not kept yet into batches.
    """
    wanted, width = np.array(digests, _DIGEST), backbone.width
    kind, parts = _parts(encoder, width)
    part, row = _find(wanted, parts)
    lacking = np.flatnonzero(part < 0)
    if len(lacking):
        _, first = np.unique(wanted[lacking], return_index=True)
        lacking = lacking[np.sort(first)]  # each content once
        parts.append(_make(kind, wanted[lacking], width, batches(lacking), backbone.load()))
        part, row = _find(wanted, parts)
    used = np.unique(part)
    if len(used) == 1:
        return Vectors(torch.from_numpy(parts[int(used[0])][1]), torch.from_numpy(row))
    values = np.empty((len(wanted), width), _NUMBER)
    for number in used.tolist():
        here = part == number
        values[here] = parts[number][1][row[here]]
    return Vectors(torch.from_numpy(values), torch.arange(len(wanted)))


def _parts(encoder: object, width: int) -> tuple[str, list[tuple[Digests, NDArray[np.float16]]]]:
    """The kind of entry in the cache, and what of it is there."""
    kind = f"embeddings/{hash_of([_FORMAT, encoder])}"
    return kind, [_read(folder, width) for folder in sorted((cache_folder() / kind).glob("[!.]*"))]


def _read(folder: Path, width: int) -> tuple[Digests, NDArray[np.float16]]:
    return mapped(folder / "digests.bin", _DIGEST), mapped(folder / "values.bin", _NUMBER).reshape(-1, width)


def _find(
    wanted: Digests, parts: Sequence[tuple[Digests, NDArray[np.float16]]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each input the part that has its features, −1 if none has, and the row in it; both (N,)."""
    part, row = np.full(len(wanted), -1, np.int64), np.zeros(len(wanted), np.int64)
    for number, (known, _) in enumerate(parts):
        order = np.argsort(known, kind="stable")
        open_ = np.flatnonzero(part < 0)
        at = order[np.minimum(np.searchsorted(known, wanted[open_], sorter=order), len(known) - 1)]
        found = known[at] == wanted[open_]
        part[open_[found]], row[open_[found]] = number, at[found]
    return part, row


def _make(
    kind: str, digests: Digests, width: int, batches: Iterator[tuple[Sequence[int], Any]], network: Any
) -> tuple[Digests, NDArray[np.float16]]:
    """New features with the digests of what they are of: on the disk, unless they are few.

    If there is no time for all of them, those that are done are kept.
    """
    shape = (len(digests), width)
    filled: list[int] = []
    if len(digests) < KEPT_FROM:
        values = np.empty(shape, _NUMBER)
        _fill(values, filled, batches, network)
        return digests, values

    def make(folder: Path) -> None:
        (folder / "digests.bin").write_bytes(digests.tobytes())
        values = np.memmap(folder / "values.bin", _NUMBER, "w+", shape=shape)
        if hasattr(os, "posix_fallocate"):  # a disk that is full says so here; later the process would be killed
            with (folder / "values.bin").open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, values.nbytes)
        try:
            _fill(values.view(np.ndarray), filled, batches, network)
        except OverdueError:
            some, their = digests[sorted(filled)], values[sorted(filled)]
            if len(some) >= KEPT_FROM:
                kept(kind, hash_of(some.tobytes().hex()), lambda part: _write(part, some, their))
            raise
        values.flush()

    return _read(kept(kind, hash_of(digests.tobytes().hex()), make), width)


def _write(folder: Path, digests: Digests, values: NDArray[np.float16]) -> None:
    (folder / "digests.bin").write_bytes(digests.tobytes())
    (folder / "values.bin").write_bytes(values.tobytes())


def _fill(
    values: NDArray[np.float16], filled: list[int], batches: Iterator[tuple[Sequence[int], Any]], network: Any
) -> None:
    """Fill the rows of `values`, enter them in `filled`, and tell whoever listens how far that is.

    One thread per core, each with batches of its own: where a machine is busy, threads that share each operation would
    wait for one another, which was found to be several times slower.
    """
    tell, limit = _PROGRESS.get() or (lambda done, total: None), _LIMIT.get()
    before = torch.get_num_threads()
    waiting: deque[tuple[Sequence[int], Future[NDArray[np.float16]]]] = deque()

    def run(batch: Any) -> NDArray[np.float16]:
        with torch.inference_mode():
            output = network(*batch) if isinstance(batch, tuple) else network(batch)
            result: NDArray[np.float16] = output.to(torch.float16).numpy()
            return result

    def take() -> None:
        places, result = waiting.popleft()
        values[places] = result.result()
        filled.extend(places)
        tell(len(filled), len(values))
        if limit is not None:
            limit.check(len(places))

    pool = ThreadPoolExecutor(before, initializer=torch.set_num_threads, initargs=(1,))
    try:
        for places, batch in batches:
            waiting.append((places, pool.submit(run, batch)))
            if len(waiting) > 2 * before:
                take()
        while waiting:
            take()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)  # what new threads start with is one number for the whole process
