"""Encoders: what a model reads, made from texts or images, as whole batches of tensors.

Shapes: N examples, M features in all of them, C channels, H × W pixels.

How a text becomes hashed features: a feature is a word, a run of neighbouring words, or a run of characters inside a
word whose ends are marked. `word_hashes` says what a word is, and how all of them are hashed at once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adaptive_labels.data.dataset import ImageFiles
from adaptive_labels.data.encoders.hashes import (
    BASE,
    Codes,
    Int64s,
    PolynomialHash,
    UInt64s,
    Words,
    chunks,
    code_points,
    mix,
    word_hashes,
)
from adaptive_labels.data.encoders.image_files import EncodedFiles, resize_for

# These are part of every trained text model: changing one changes what its features mean.
_RUN_SALT = 0x57A4_0000  # plus the number of words
_PIECE_SALT = 0x57A5_0000
_WORD_BEGINS, _WORD_ENDS = 0x110000, 0x110001  # the first two numbers beyond Unicode

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # as the field has them


@dataclass(frozen=True, eq=False)
class RaggedIds:
    """Lists of feature numbers, one list an example, laid end to end.

    Args:
        values: (M,) int32 or int64, all lists one after the other.
        offsets: (N+1,) int64; example i owns `values[offsets[i]:offsets[i + 1]]`.
    """

    values: Tensor
    offsets: Tensor

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the lists of these examples laid end to end, and where each begins: what `nn.EmbeddingBag` takes.

        >>> ragged = RaggedIds(torch.tensor([5, 6, 7], dtype=torch.int32), torch.tensor([0, 2, 2, 3]))
        >>> [part.tolist() for part in ragged.batch(torch.tensor([2, 1, 0]))]
        [[7, 5, 6], [0, 1, 1]]
        """
        values, begins, _ = end_to_end(self.values, self.offsets, indices)
        return values, begins


def laid_out(encoded: Iterable[tuple[NDArray[np.int32], Int64s]]) -> tuple[Tensor, Tensor]:
    """Return chunks of lists, each with the lists' lengths, as all values end to end and the N+1 offsets.

    >>> chunk = np.array([7, 8, 9], np.int32), np.array([1, 2])
    >>> [part.tolist() for part in laid_out([chunk, chunk])]
    [[7, 8, 9, 7, 8, 9], [0, 1, 3, 4, 6]]
    """
    values, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
    for chunk_values, chunk_lengths in encoded:
        values.append(chunk_values)
        lengths.append(chunk_lengths)
    return torch.from_numpy(np.concatenate(values)), torch.from_numpy(np.cumsum(np.concatenate(lengths)))


def end_to_end(values: Tensor, offsets: Tensor, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return some of the lists in `values`, end to end, with where each begins and how long it is."""
    starts = offsets[indices]
    lengths = offsets[indices + 1] - starts
    begins = lengths.cumsum(0) - lengths
    total = int(lengths.sum())
    # Position j of the result, in the list that begins at `begins`, comes from `starts` + (j − `begins`).
    source = torch.arange(total) + (starts - begins).repeat_interleave(lengths, output_size=total)
    return values[source].long(), begins, lengths


@dataclass(frozen=True)
class HashedNgrams:
    """Texts to numbers of hashed features: words, runs of neighbouring words, and pieces of words.

    Every feature's hash, modulo `buckets`, is its number; no vocabulary is fitted or stored. The hashes are part of a
    trained model and stay the same between versions. The defaults suit short texts (names, questions); for texts of
    more than about 100 characters words and pairs of words alone (`char_ngrams=None`) with 2^19 buckets did better.

    Args:
        words: single words, and runs of up to `word_ngrams` of them, are features.
        word_ngrams: the longest run of neighbouring words that is a feature.
        char_ngrams: shortest and longest run of characters inside a word (its ends marked) that is a feature, or
            `None` or an empty list, which TOML has, for none.
        buckets: how many different numbers there are.
        lowercase: read capital letters as small ones.
        normalise: apply Unicode's NFKC first, so that "ﬁ" reads as "fi" and a full-width letter as its common form.
        max_length: how many characters of a text are read.

    >>> encoder = HashedNgrams(char_ngrams=None, buckets=1000)
    >>> encoded = encoder.encode(["A town", "", "a town a"])
    >>> len(encoded), encoded.offsets.tolist()
    (3, [0, 3, 3, 8])
    >>> HashedNgrams.from_dict(encoder.to_dict()) == encoder
    True
    """

    words: bool = True
    word_ngrams: int = 2
    char_ngrams: tuple[int, int] | None = (1, 5)
    buckets: int = 2**16
    lowercase: bool = True
    normalise: bool = False
    max_length: int = 4096

    def __post_init__(self) -> None:
        if not 1 <= self.word_ngrams <= 10:
            raise ValueError(f"word_ngrams is {self.word_ngrams}; it must be between 1 and 10")
        if self.char_ngrams is not None and len(self.char_ngrams) == 0:
            object.__setattr__(self, "char_ngrams", None)
        if self.char_ngrams is not None:
            # JSON and TOML have lists only.
            bounds: tuple[int, ...] = tuple(self.char_ngrams)
            object.__setattr__(self, "char_ngrams", bounds)
            if len(bounds) != 2 or not 1 <= bounds[0] <= bounds[1] <= 32:
                raise ValueError(
                    f"char_ngrams is {bounds}; it must be a shortest and a longest length "
                    "with 1 <= shortest <= longest <= 32, or None"
                )
        if not self.words and self.char_ngrams is None:
            raise ValueError("words is False and char_ngrams is None; at least one of them must give features")
        if not 1 <= self.buckets < 2**31:
            raise ValueError(f"buckets is {self.buckets}; it must be between 1 and 2147483647")
        if self.max_length < 1:
            raise ValueError(f"max_length is {self.max_length}; it must be at least 1")

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of a network that its encoder decides."""
        return {"buckets": self.buckets}

    @property
    def numbers(self) -> int:
        """How many different numbers a text may be given."""
        return self.buckets

    def encode(self, texts: Sequence[str]) -> RaggedIds:
        """Return the numbers of every text's features; a text without a visible character has none."""
        return RaggedIds(*laid_out(self.encode_chunks(texts)))

    def encode_chunks(self, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int32], Int64s]]:
        """Yield the numbers of some texts after the other, end to end, and how many each text has."""
        for chunk in chunks(texts, max_length=self.max_length, normalise=self.normalise, lowercase=self.lowercase):
            yield self._encode_chunk(chunk)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "HashedNgrams":
        """Return the encoder with these settings, as `to_dict` gave them."""
        return cls(**settings)

    def _encode_chunk(self, texts: list[str]) -> tuple[NDArray[np.int32], Int64s]:
        """Return the feature numbers of these texts end to end, and how many each text has."""
        codes, text_ends = code_points(texts)
        words = Words.find(codes, text_ends)
        # Each kind of feature: the hashes, and the text of each, in the order of the texts.
        kinds: list[tuple[UInt64s, Int64s]] = []
        if self.words:
            kinds += _word_runs(codes, words, self.word_ngrams)
        if self.char_ngrams is not None:
            kinds += _pieces(codes, words, *self.char_ngrams)
        numbers = [((hashes % np.uint64(self.buckets)).astype(np.int32), text_of) for hashes, text_of in kinds]
        return _join_by_text(numbers, len(texts))


def _word_runs(codes: Codes, words: Words, longest: int) -> Iterator[tuple[UInt64s, Int64s]]:
    """Yield single words, then runs of two, and so on: (hashes, texts)."""
    hashes = word_hashes(codes, words)
    yield hashes, words.texts
    runs = hashes
    for length in range(2, longest + 1):
        last = length - 1
        runs = runs[:-1] * np.uint64(BASE) + hashes[last:]
        inside = words.texts[: len(runs)] == words.texts[last:]
        yield mix(runs[inside], _RUN_SALT + length), words.texts[last:][inside]


def _pieces(codes: Codes, words: Words, shortest: int, longest: int) -> Iterator[tuple[UInt64s, Int64s]]:
    """Yield the runs of characters inside each marked word, by length: (hashes, texts)."""
    lengths = words.ends - words.starts + 2  # with the two marks
    begins = np.cumsum(lengths) - lengths
    total = int(lengths.sum())
    # Each position's source; at the two marks it points beside the word, or outside the array, and is replaced.
    source = np.arange(total) + np.repeat(words.starts - 1 - begins, lengths)
    marked = codes.take(source, mode="clip")
    marked[begins] = _WORD_BEGINS
    marked[begins + lengths - 1] = _WORD_ENDS
    remaining = np.repeat(begins + lengths, lengths) - np.arange(total)
    texts = np.repeat(words.texts, lengths)
    prefix = PolynomialHash(marked)
    for length in range(shortest, longest + 1):
        fits = remaining >= length
        if length == 1:
            fits &= marked < _WORD_BEGINS  # a mark alone says nothing
        starts = np.flatnonzero(fits)
        yield mix(prefix.of(starts, starts + length), _PIECE_SALT), texts[starts]


def _join_by_text(kinds: list[tuple[NDArray[np.int32], Int64s]], texts: int) -> tuple[NDArray[np.int32], Int64s]:
    """Bring the features of all kinds together text by text; return the numbers, and how many each text has."""
    counts = np.stack([np.bincount(text_of, minlength=texts) for _, text_of in kinds])  # (kinds, texts)
    lengths = counts.sum(0)
    joined = np.empty(int(lengths.sum()), np.int32)
    begins = np.cumsum(lengths) - lengths + np.cumsum(counts, 0) - counts  # where each kind begins in each text
    for (numbers, _), count, begin in zip(kinds, counts, begins, strict=True):
        shift = begin - (np.cumsum(count) - count)
        joined[np.arange(len(numbers)) + np.repeat(shift, count)] = numbers
    return joined, lengths


@dataclass(frozen=True, eq=False)
class ImageTensors:
    """Images that stay bytes until a batch of them is asked for.

    Args:
        images: (N, C, H, W) uint8.
        mean: a number for each channel, of pixels between 0 and 1.
        std: a number for each channel.
    """

    images: Tensor
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, indices: Tensor) -> Tensor:
        """Return these images as float32 (n, C, H, W), (pixel / 255 − mean) / std.

        >>> ImageTensors(torch.full((2, 1, 1, 1), 255, dtype=torch.uint8), (0.5,), (0.25,)).batch(torch.tensor([1]))
        tensor([[[[2.]]]])
        """
        mean = torch.tensor(self.mean).view(-1, 1, 1)
        std = torch.tensor(self.std).view(-1, 1, 1)
        return self.images.index_select(0, indices).div(255).sub_(mean).div_(std)


@dataclass(frozen=True)
class ImageEncoder:
    """Images of one size to normalised tensors, with the mean and standard deviation of the training images.

    Args:
        mean: a number for each channel, of pixels between 0 and 1.
        std: a number for each channel.
        size: height and width.
        channels: 1 for grey, 3 for colour.
        resize: for images that stay files, the length that their shorter side is brought to before the middle is cut
            out; None for images that come in their size.

    >>> images = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    >>> encoder = ImageEncoder.fit(images)
    >>> encoder.mean, encoder.std, encoder.encode(images).batch(torch.tensor([0])).tolist()
    ((0.5,), (0.5,), [[[[-1.0, 1.0]]]])
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: tuple[int, int]
    channels: int
    resize: int | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "std", "size"):  # JSON and TOML have lists only
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @classmethod
    def fit(cls, images: Tensor) -> "ImageEncoder":
        """Return the encoder for images (N, C, H, W) uint8 like these; a channel without contrast keeps std 1."""
        if images.ndim != 4 or images.dtype != torch.uint8 or images.numel() == 0:
            raise ValueError(
                f"images has shape {tuple(images.shape)} and type {images.dtype}; it must be (N, C, H, W), not empty, "
                "of type torch.uint8"
            )
        examples, channels, height, width = images.shape
        # Exact sums from a count of the 256 values, without a float copy of all images.
        counts = torch.stack([torch.bincount(images[:, c].reshape(-1), minlength=256) for c in range(channels)])
        values = torch.arange(256, dtype=torch.float64) / 255
        share = counts.double() / (examples * height * width)  # (C, 256)
        mean = share @ values
        std = (share * (values - mean[:, None]).square()).sum(1).sqrt()
        std = torch.where(std < 1e-6, 1.0, std)
        return cls(tuple(mean.tolist()), tuple(std.tolist()), (height, width), channels)

    @classmethod
    def for_files(cls, files: ImageFiles) -> "ImageEncoder":
        """Return the encoder for images that stay files, with the mean and standard deviation of ImageNet's."""
        size = files.size
        return cls(IMAGENET_MEAN, IMAGENET_STD, (size, size), 3, resize_for(size))

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of a network that its encoder decides."""
        return {"in_channels": self.channels}

    def encode(self, images: Tensor | ImageFiles) -> ImageTensors | EncodedFiles:
        """Return the images, ready for batches; their shape must be that of the training images."""
        if isinstance(images, ImageFiles):
            assert self.resize is not None
            return EncodedFiles(images, self.size[0], self.resize, self.mean, self.std)
        expected = (self.channels, *self.size)
        if images.ndim != 4 or tuple(images.shape[1:]) != expected or images.dtype != torch.uint8:
            raise ValueError(
                f"images has shape {tuple(images.shape)} and type {images.dtype}; it must be (N, "
                f"{', '.join(map(str, expected))}) of type torch.uint8, as in training"
            )
        return ImageTensors(images, self.mean, self.std)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        settings = asdict(self)
        if self.resize is None:
            del settings["resize"]  # as earlier versions wrote it
        return settings

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "ImageEncoder":
        """Return the encoder with these settings, as `to_dict` gave them."""
        return cls(**settings)
