"""Seeded stratified splits that depend on the content alone, not on the order of files or rows.

Every example has a digest, a hash of its content. Mixed with the split's seed it gives the example its place in a
shuffled order, so that the same examples are split the same way wherever and in whatever order they are stored.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import torch

from adaptive_labels.data.dataset import DataError, Examples
from adaptive_labels.data.stored_texts import StoredDigests
from adaptive_labels.data.wording import counted

TEST_FRACTION = 0.2
VALIDATION_FRACTION = 0.1
_HASHED_AT_A_TIME = 65_536


def fold_text(text: str) -> str:
    """The text with case and runs of white space evened out: two texts that fold alike count as the same."""
    return " ".join(text.split()).casefold()


def text_digest(text: str) -> bytes:
    """A hash of the folded text, then one of the text itself: texts that fold alike sort next to each other."""
    return content_digest(fold_text(text).encode("utf-8", "surrogatepass")) + content_digest(
        text.encode("utf-8", "surrogatepass")
    )


def content_digest(content: bytes) -> bytes:
    """A stable 16-byte hash of some content."""
    return hashlib.blake2b(content, digest_size=16).digest()


def largest_remainder(counts: Sequence[int], fraction: float) -> list[int]:
    """How many of each class go into a split that takes `fraction` of all.

    The sizes add up to round(fraction · Σ counts), each as near to its share as whole numbers allow; but a class with
    at least two examples gives at least one and keeps at least one, even if the total then comes out higher.
    """
    shares = [fraction * count for count in counts]
    most = [max(count - 1, 0) for count in counts]
    sizes = [min(max(int(share), 1), limit) for share, limit in zip(shares, most, strict=True)]
    missing = round(fraction * sum(counts)) - sum(sizes)
    by_remainder = sorted(range(len(counts)), key=lambda k: (sizes[k] - shares[k], k))
    for k in by_remainder:
        if missing <= 0:
            break
        if sizes[k] < most[k]:
            sizes[k] += 1
            missing -= 1
    return sizes


def split_off(
    examples: Examples, digests: Sequence[bytes], *, fraction: float, salt: str
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the examples that stay and of those split off, each in the order that `salt` shuffles them into.

    Equal contents of one class stay together, unless that would change a split's size by more than about a quarter.
    """
    order = _shuffled(digests, salt)
    content = digest_array(digests)
    labels = examples.labels.numpy()[order]
    counts = np.bincount(labels)
    taken = np.zeros(len(order), dtype=bool)
    for k, size in enumerate(largest_remainder(counts.tolist(), fraction)):
        members = np.flatnonzero(labels == k)
        cut = _between_contents(StoredDigests(content[order[members], :16]), size)
        taken[members[:cut]] = True
    return order[~taken], order[taken]


def share(examples: Examples, digests: Sequence[bytes], fraction: float, salt: str) -> np.ndarray:
    """Indices, in rising order, of `fraction` of the examples of each class, chosen by their content and `salt`.

    Of n examples of a class max(1, ⌊fraction · n + ½⌋) are kept, so that a smaller share lies within a larger one.
    """
    order = _shuffled(digests, salt)
    labels = examples.labels.numpy()[order]
    kept = [
        order[labels == k][: max(1, math.floor(fraction * count + 0.5))] for k, count in enumerate(np.bincount(labels))
    ]
    return np.sort(np.concatenate(kept))


def refuse_single_examples(examples: Examples, classes: Sequence[str]) -> None:
    """Raise a DataError that names the class if a class has one example only: it cannot be split."""
    single = np.flatnonzero(np.bincount(examples.labels.numpy()) == 1)
    if len(single) == 0:
        return
    first = int(single[0])
    where = ""
    if examples.sources is not None:
        where = f" ({examples.sources[int(np.flatnonzero(examples.labels.numpy() == first)[0])]})"
    others = f", like {counted(len(single) - 1, 'other class', 'other classes')}" if len(single) > 1 else ""
    raise DataError(
        f"The class {classes[first]!r} has one example only{where}{others}; "
        "to be split into train, validation and test a class needs at least 2, better 3."
    )


def index_tensor(indices: np.ndarray) -> torch.Tensor:
    """The indices as an int64 tensor."""
    return torch.from_numpy(indices.astype(np.int64))


def digest_array(digests: Sequence[bytes]) -> np.ndarray:
    """All digests, which are of one length, in one array of bytes (N, length).

    >>> digest_array([b"ab", b"cd"]).tolist()
    [[97, 98], [99, 100]]
    """
    if isinstance(digests, StoredDigests):
        return digests.array
    return np.frombuffer(b"".join(digests), np.uint8).reshape(len(digests), -1 if digests else 16)


def count_shared(these: np.ndarray, those: np.ndarray) -> int:
    """How many of these digests (N, 8 bytes or more) are among those.

    >>> count_shared(digest_array([b"12345678", b"abcdefgh", b"abcdefgh"]), digest_array([b"abcdefgh"]))
    2
    """
    # The first 8 bytes as a number leave few that may be the same; those are compared in full.
    mine, others = (np.ascontiguousarray(digests[:, :8]).view(np.uint64).ravel() for digests in (these, those))
    seen = {those[i].tobytes() for i in np.flatnonzero(np.isin(others, mine))}
    return sum(these[i].tobytes() in seen for i in np.flatnonzero(np.isin(mine, others)))


def _shuffled(digests: Sequence[bytes], salt: str) -> np.ndarray:
    # The first 16 bytes are hashed with the salt; what follows them only orders contents that fold alike.
    key = salt.encode()
    content = digest_array(digests)
    keys = np.empty((len(content), -(-content.shape[1] // 8) * 8), np.uint8)
    keys[:, content.shape[1] :] = 0
    keys[:, 16 : content.shape[1]] = content[:, 16:]
    for start in range(0, len(content), _HASHED_AT_A_TIME):
        heads = content[start : start + _HASHED_AT_A_TIME, :16].tobytes()
        mixed = [hashlib.blake2b(heads[i : i + 16], digest_size=16, key=key).digest() for i in range(0, len(heads), 16)]
        keys[start : start + len(mixed), :16] = digest_array(mixed)
    # As texts of bytes are ordered: the first byte counts most. `lexsort` has the last key first, and keeps ties.
    numbers = keys.view(">u8").astype(np.uint64)
    return np.lexsort(tuple(numbers.T[::-1])).astype(np.int64)


def _between_contents(contents: Sequence[bytes], cut: int) -> int:
    """The place nearest to `cut` that does not part equal contents, of which each lie together.

    It is `cut` itself if that place is far off, would take nothing, or would leave too little for another split.
    """
    if cut == 0 or contents[cut] != contents[cut - 1]:
        return cut
    start, end = cut, cut
    while start > 0 and contents[start - 1] == contents[cut]:
        start -= 1
    while end < len(contents) and contents[end] == contents[cut]:
        end += 1
    possible = [place for place in (start, end) if 1 <= place <= len(contents) - 2 and abs(place - cut) <= 1 + cut // 4]
    return min(possible, key=lambda place: abs(place - cut), default=cut)
