"""Seeded stratified splits that depend on the content alone, not on the order of files or rows.

Every example has a digest, a hash of its content. Mixed with the split's seed it gives the example its place in a
shuffled order, so that the same examples are split the same way wherever and in whatever order they are stored.
"""

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import torch

from adaptive_labels.data.contract import DataError, Examples
from adaptive_labels.data.wording import counted

TEST_FRACTION = 0.2
VALIDATION_FRACTION = 0.1


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
    labels = examples.labels.numpy()[order]
    counts = np.bincount(labels)
    taken = np.zeros(len(order), dtype=bool)
    for k, size in enumerate(largest_remainder(counts.tolist(), fraction)):
        members = np.flatnonzero(labels == k)
        cut = _between_contents([digests[i][:16] for i in order[members]], size)
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


def _shuffled(digests: Sequence[bytes], salt: str) -> np.ndarray:
    # The first 16 bytes are hashed with the salt; what follows them only orders contents that fold alike.
    key = salt.encode()
    keys = [hashlib.blake2b(digest[:16], digest_size=16, key=key).digest() + digest[16:] for digest in digests]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def _between_contents(contents: list[bytes], cut: int) -> int:
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
