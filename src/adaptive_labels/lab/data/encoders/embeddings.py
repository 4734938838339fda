"""What the encoders share that ask a pretrained network: embeddings made once, cached on disk, and memory-mapped.

Shapes: N inputs, M different ones, D features, n inputs of a batch.
"""

import hashlib
import os
import shutil
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptive_labels.errors import UserError
from adaptive_labels.lab.data.cache import cache_folder, cached, hash_of, memmap
from adaptive_labels.lab.data.dataset import Examples
from adaptive_labels.lab.data.downloads import OnProgress
from adaptive_labels.lab.data.encoders import EncodedExamples, Encoder
from adaptive_labels.lab.models.pretrained.backbones import Backbone

_FORMAT = 3  # of the entries in the cache: another number makes all of them anew
_KIND, _NUMBER = "embeddings", "<f2"  # half precision: half the space, and no prediction that would notice
PIECE = 4_096  # so many inputs are encoded before they are kept
CACHED_FROM = 64
"""Fewer inputs than this, as in a prediction, are encoded in memory and leave nothing behind."""

Batches = Callable[[NDArray[np.int64]], Iterator[tuple[Sequence[int], Any]]]
"""Cuts the inputs at some indices into batches for the network; each comes with its places among the indices."""

B = TypeVar("B", bound=Backbone)


@dataclass(frozen=True, eq=False)
class Vectors:
    """One vector for each of N inputs; a batch of them is float32."""

    values: Tensor  # (M, D) float16 or float32, perhaps memory-mapped
    rows: Tensor  # (N,) int64, where each input's vector is

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, indices: Tensor) -> Tensor:
        """Return the vectors of these inputs, (n, D).

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
    def encode(self, inputs: Any, progress: OnProgress | None = None) -> EncodedExamples:
        """Return the inputs of a split, ready for batches; ``progress`` hears how many are encoded, and of how many."""

    @abstractmethod
    def cache_key(self) -> dict[str, Any]:
        """All that embeddings depend on beside the inputs, as plain data."""

    @abstractmethod
    def digests(self, inputs: Any) -> Sequence[bytes]:
        """Return 16 bytes for each input, equal only for equal inputs."""

    @property
    def backbone(self) -> B:
        """The pretrained network, which must be the one that the encoder was made with."""
        network: B = self.find(self.name)
        if network.weights != self.weights:
            which, here = self.name or self.kind, network.weights[:12]
            raise UserError(f"{which} with the weights {self.weights[:12]}… is not known here, only {here}…")
        return network

    @property
    def sizes(self) -> dict[str, int]:
        return {"in_features": self.backbone.width, "tune": self.tune}

    def lacking(self, inputs: Any) -> int:
        """How many different inputs have yet to be encoded, which takes time."""
        different = np.unique(np.array(self.digests(inputs), "S16"))
        return 0 if self.tune else int(_known(self.cache_key(), different)[0].sum())


def encode_split(encoder: Encoder, examples: Examples, progress: OnProgress | None = None) -> EncodedExamples:
    """One split's inputs, ready to give whole batches; ``progress`` hears how far a pretrained encoder is."""
    if isinstance(encoder, Pretrained):
        return encoder.encode(examples.inputs, progress)
    return encoder.encode(examples.inputs)


def pretraining_notes(encoder: object, dataset: str) -> list[str]:
    """What a pretrained encoder was trained on, and a warning where that flatters its results on a data set."""
    if not isinstance(encoder, Pretrained):
        return []
    backbone: Backbone = encoder.backbone
    training = "is trained further with the head" if encoder.tune else "stays as it is; only the head is trained"
    return [f"{backbone.note} It {training}.", *([backbone.seen[dataset]] if dataset in backbone.seen else [])]


def embed_once(
    key: object, digests: Sequence[bytes], backbone: Backbone, batches: Batches, progress: OnProgress | None = None
) -> Vectors:
    """Return the embeddings of inputs; of those that were encoded before, in whatever set, from the cache.

    What is new is encoded in pieces that are kept, so that little is lost if this is interrupted.

    Args:
        key: all that the embeddings depend on beside the inputs, as plain data.
        digests: 16 bytes for each input, equal only for equal inputs, (N,).
        backbone: makes the embeddings of a batch; several threads call it at once.
        batches: cuts inputs into batches.
        progress: hears how many inputs are encoded, and of how many.
    """
    different, first, rows = np.unique(np.array(digests, "S16"), return_index=True, return_inverse=True)
    shape = len(different), backbone.width

    if len(different) < CACHED_FROM:
        values = np.empty(shape, _NUMBER)
        if len(different):
            _fill(values, batches(first), backbone.load(), progress)
        return Vectors(torch.from_numpy(values), torch.from_numpy(rows))

    def fill(values: NDArray[np.float16]) -> None:
        new, known = _known(key, different)
        for ours, theirs, vectors in known:
            values[ours] = vectors[theirs]
        places, folders = np.flatnonzero(new), []
        for start in range(0, len(places), PIECE):
            piece = places[start : start + PIECE]
            tell = partial(_tell, progress, start, len(places))
            encode = partial(_fill, batches=batches(first[piece]), network=backbone.load(), progress=tell)
            if len(places) <= PIECE:
                vectors = np.empty((len(piece), backbone.width), _NUMBER)
                encode(vectors)
            else:
                folders.append(_cached(key, different[piece], backbone.width, encode))
                vectors = _values(folders[-1], backbone.width)
            values[piece] = vectors
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    values = _values(_cached(key, different, backbone.width, fill), backbone.width)
    return Vectors(torch.from_numpy(values), torch.from_numpy(rows))


def _tell(progress: OnProgress | None, before: int, total: int, done: int, _: int | None) -> None:
    if progress is not None:
        progress(before + done, total)


def _values(folder: Path, width: int) -> NDArray[np.float16]:
    return memmap(folder / "values.bin", _NUMBER).reshape(-1, width)


def _cached(
    key: object, different: NDArray[np.bytes_], width: int, fill: Callable[[NDArray[np.float16]], None]
) -> Path:
    """The entry in the cache with the embeddings of these inputs, whose digests are sorted."""

    def make(folder: Path) -> None:
        values = np.memmap(folder / "values.bin", _NUMBER, "w+", shape=(len(different), width))
        if hasattr(os, "posix_fallocate"):  # a disk that is full says so here; later the process would be killed
            with (folder / "values.bin").open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, values.nbytes)
        fill(values.view(np.ndarray))
        values.flush()
        different.tofile(folder / "digests.bin")

    name = f"{_encoder(key)}-{hashlib.sha256(different.tobytes()).hexdigest()[:32]}"
    return cached(_KIND, name, make)


def _encoder(key: object) -> str:
    return hash_of([_FORMAT, key])[:16]


def _known(key: object, different: NDArray[np.bytes_]) -> tuple[NDArray[np.bool_], list[Any]]:
    """Which of the inputs no entry has, (M,); and of each entry the places here, the places there, and its vectors."""
    new, known = np.ones(len(different), bool), []
    for folder in sorted((cache_folder() / _KIND).glob(f"{_encoder(key)}-*")):
        with suppress(FileNotFoundError):  # a piece of another process, which has just gathered its pieces
            digests = np.fromfile(folder / "digests.bin", "S16")
            _, ours, theirs = np.intersect1d(different[new], digests, assume_unique=True, return_indices=True)
            if len(ours):
                ours = np.flatnonzero(new)[ours]
                known.append((ours, theirs, memmap(folder / "values.bin", _NUMBER).reshape(len(digests), -1)))
                new[ours] = False
    return new, known


def _fill(
    values: NDArray[np.float16],
    batches: Iterator[tuple[Sequence[int], Any]],
    network: Any,
    progress: OnProgress | None,
) -> None:
    """Fill the rows of ``values``.

    One thread per core, each with batches of its own: where a machine is busy, threads that share each operation would
    wait for one another, which was found to be several times slower.
    """
    before = torch.get_num_threads()
    waiting: deque[tuple[Sequence[int], Future[NDArray[np.float16]]]] = deque()
    done = 0

    def run(batch: Any) -> NDArray[np.float16]:
        with torch.inference_mode():
            output = network(*batch) if isinstance(batch, tuple) else network(batch)
            result: NDArray[np.float16] = output.to(torch.float16).numpy()
            return result

    def take() -> None:
        nonlocal done
        places, result = waiting.popleft()
        values[places] = result.result()
        done += len(places)
        if progress is not None:
            progress(done, len(values))

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
