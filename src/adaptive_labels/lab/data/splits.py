"""Seeded stratified splits that depend on the content alone, not on the order of files or rows.

Every example has a digest, a hash of its content. Mixed with the split's seed it gives the example its place in a
shuffled order, so that the same examples are split the same way wherever and in whatever order they are stored.
Shapes: N examples; digests are uint8 (N, 16), or (N, 32) for texts.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from adaptive_labels.lab.data.dataset import (
    DataError,
    Dataset,
    Examples,
    ImageFiles,
    Kind,
    RawInputs,
    SplitName,
    fingerprint,
)
from adaptive_labels.lab.data.rows import TableRows
from adaptive_labels.lab.files import file_hash
from adaptive_labels.lab.words import listed, plural

TEST_FRACTION = 0.2
VALIDATION_FRACTION = 0.1
_HASHED_AT_A_TIME = 65_536


@dataclass(frozen=True)
class RawDataset:
    """What a reader found: train and perhaps other splits, before the missing ones are made from train."""

    name: str
    kind: Kind
    classes: Sequence[str]
    splits: Mapping[SplitName, Examples]
    notes: Sequence[str] = ()
    digests: Mapping[SplitName, np.ndarray] = field(default_factory=dict)  # unless they are those of texts or pixels
    validation_fraction: float = VALIDATION_FRACTION  # the share of train that becomes validation if there is none
    text_columns: Sequence[str] = ()  # the names of a table's columns that texts were read from


@dataclass(frozen=True, eq=False)
class _Part:
    """A split with a digest of each example."""

    examples: Examples
    digests: np.ndarray
    contents: np.ndarray  # (N, 16), hashes of what is shown: equal pixels, or texts equal but for case and spaces

    def subset(self, indices: np.ndarray) -> "_Part":
        return _Part(self.examples.subset(torch.from_numpy(indices)), self.digests[indices], self.contents[indices])


def _part(examples: Examples, digests: np.ndarray | None) -> _Part:
    # A copy of a file in another format or with other metadata has another digest, but the same pixels.
    contents = digests
    if contents is None or isinstance(examples.inputs, Tensor):
        contents = input_digests(examples.inputs)
    return _Part(examples, contents if digests is None else digests, contents[:, :16])


def input_digests(inputs: RawInputs) -> np.ndarray:
    """(N, at least 16) of each input; equal in the first 16: pixels, files, or texts equal but for case and spaces."""
    if isinstance(inputs, Tensor):
        return content_digests(inputs.flatten(1).numpy())
    if isinstance(inputs, TableRows):
        return content_digests("\x1f".join(row).encode("utf-8", "surrogatepass") for row in inputs.cells)
    if isinstance(inputs, ImageFiles):
        return content_digests(file_hash(inputs.path(i)).encode() for i in range(len(inputs)))
    return digest_array([text_digest(text) for text in inputs])


def assemble(raw: RawDataset, *, split_seed: int = 0, train_fraction: float = 1.0) -> Dataset:
    """Make the missing splits, count duplicates across splits, and take the fingerprint.

    Of what is then left in train, `train_fraction` of each class stays (see `subsample`).
    """
    name, classes, thing = raw.name, raw.classes, raw.kind
    if len(classes) < 2:
        raise DataError(f"{name} has one class only ({classes[0]!r}); a classifier needs at least two.")
    parts = {split: _part(examples, raw.digests.get(split)) for split, examples in raw.splits.items()}
    train, validation, test = parts["train"], parts.get("validation"), parts.get("test")
    if validation is None or test is None:
        _refuse_single_examples(train.examples, classes)
    notes = [*raw.notes, *_similar_names(classes)]

    def set_aside(split: str, fraction: float, whole: str) -> tuple[_Part, _Part]:
        rest, taken = split_off(train.examples.labels, train.digests, fraction=fraction, salt=f"{split} {split_seed}")
        notes.append(
            f"There was no {split} split, so {fraction:.0%} of {whole} ({plural(len(taken), thing)}) is set aside "
            f"for it, stratified by class (split seed {split_seed})."
        )
        return train.subset(rest), train.subset(taken)

    if test is None:
        train, test = set_aside("test", TEST_FRACTION, "all" if validation is None else "train")
    if validation is None:
        train, validation = set_aside("validation", raw.validation_fraction, "train")
        if len(validation.examples) == 0:
            size = len(raw.splits["train"])
            raise DataError(
                f"{name} has too few examples ({size}) for a validation split; at least one class must have 3 examples."
            )
    if train_fraction != 1:
        whole = len(train.examples)
        train = train.subset(subsample(train.examples.labels, train.digests, train_fraction, f"share {split_seed}"))
        notes.append(
            f"{plural(len(train.examples), f'training {thing}')} of {whole:,} are kept: "
            f"{train_fraction:.4g} of each class, rounded, at least 1 (split seed {split_seed})."
        )
    complete = {"train": train, "validation": validation, "test": test}
    for later, earlier in (("validation", "train"), ("test", "train"), ("test", "validation")):
        contents = complete[later].contents
        shared = count_shared(contents, complete[earlier].contents)
        if shared:
            verb = "occurs" if shared == 1 else "occur"
            notes.append(f"{shared:,} of {len(contents):,} {later} {thing}s also {verb} in {earlier}.")
    return Dataset(
        name=name,
        kind=raw.kind,
        classes=tuple(classes),
        train=train.examples,
        validation=validation.examples,
        test=test.examples,
        notes=tuple(notes),
        fingerprint=fingerprint(classes, ((split, part.examples) for split, part in complete.items())),
        text_columns=tuple(raw.text_columns),
    )


def without_rare_classes(raw: RawDataset, least: int) -> RawDataset:
    """The data set without the classes that have fewer than ``least`` training examples."""
    stays = np.bincount(raw.splits["train"].labels.numpy(), minlength=len(raw.classes)) >= least  # (K,)
    if stays.all():
        return raw
    number = torch.from_numpy(np.cumsum(stays) - 1)  # of each class among those that stay
    splits, digests, dropped = {}, {}, 0
    for split, examples in raw.splits.items():
        rows = np.flatnonzero(stays[examples.labels.numpy()])
        dropped += len(examples) - len(rows)
        if len(rows) == 0:
            few_each = f"classes with fewer than {least} training examples (min_per_class)"
            raise DataError(f"Without {few_each}, no {raw.kind} in the {split} split of {raw.name} is left.")
        part = examples.subset(torch.from_numpy(rows))
        splits[split] = replace(part, labels=number[part.labels])
        if split in raw.digests:
            digests[split] = raw.digests[split][rows]
    rare, classes = ([raw.classes[k] for k in np.flatnonzero(chosen).tolist()] for chosen in (~stays, stays))
    note = (
        f"Left out {plural(len(rare), 'class', 'classes')} with fewer than {least} training examples "
        f"({listed(map(repr, rare), 5)}): {plural(dropped, raw.kind)} in all."
    )
    return replace(raw, classes=classes, splits=splits, digests=digests, notes=[*raw.notes, note])


def _similar_names(classes: Sequence[str]) -> list[str]:
    """A note if class names differ in case or spaces only: they are most likely one class, written in two ways."""
    alike: dict[str, list[str]] = {}
    for name in classes:
        alike.setdefault("".join(name.casefold().split()), []).append(name)
    doubtful = [" and ".join(map(repr, names)) for names in alike.values() if len(names) > 1]
    note = f"Classes that differ in case or spaces only: {listed(doubtful, 3)}. Are they the same?"
    return [note] if doubtful else []


def _refuse_single_examples(examples: Examples, classes: Sequence[str]) -> None:
    """Raise a DataError that names the class if a class has one example only: it cannot be split."""
    single = np.flatnonzero(np.bincount(examples.labels.numpy()) == 1).tolist()
    if not single:
        return
    place = examples.labels.tolist().index(single[0])
    where = "" if examples.sources is None else f" ({examples.sources[place]})"
    others = f", like {plural(len(single) - 1, 'other class', 'other classes')}" if len(single) > 1 else ""
    raise DataError(
        f"The class {classes[single[0]]!r} has one example only{where}{others}; "
        "to be split into train, validation and test a class needs at least 2, better 3. "
        "--min-per-class 3 leaves rarer classes out."
    )


def content_digest(content: bytes) -> bytes:
    """A stable 16-byte hash of some content."""
    return hashlib.blake2b(content, digest_size=16).digest()


def content_digests(contents: Iterable[bytes]) -> np.ndarray:
    return digest_array([content_digest(content) for content in contents])


def text_digest(text: str) -> bytes:
    """A hash of the folded text, then one of the text itself: texts that fold alike sort next to each other.

    Folding evens out case and runs of white space; two texts that fold alike count as the same.
    """
    folded = " ".join(text.split()).casefold()
    return b"".join(content_digest(form.encode("utf-8", "surrogatepass")) for form in (folded, text))


def digest_array(digests: Sequence[bytes]) -> np.ndarray:
    """All digests, which are of one length, in one array of bytes (N, length).

    >>> digest_array([b"ab", b"cd"]).tolist()
    [[97, 98], [99, 100]]
    """
    return np.frombuffer(b"".join(digests), np.uint8).reshape(len(digests), -1 if digests else 16)


def largest_remainder(counts: Sequence[int], fraction: float) -> list[int]:
    """How many of each class go into a split that takes `fraction` of all.

    The sizes add up to round(fraction · Σ counts), each as near to its quota as whole numbers allow; but a class with
    at least two examples gives at least one and keeps at least one, even if the total then comes out higher.
    """
    quotas = [fraction * count for count in counts]
    most = [max(count - 1, 0) for count in counts]
    sizes = [min(max(int(quota), 1), limit) for quota, limit in zip(quotas, most, strict=True)]
    missing = round(fraction * sum(counts)) - sum(sizes)
    for k in sorted(range(len(counts)), key=lambda k: (sizes[k] - quotas[k], k)):
        if missing > 0 and sizes[k] < most[k]:
            sizes[k] += 1
            missing -= 1
    return sizes


def split_off(labels: Tensor, digests: np.ndarray, *, fraction: float, salt: str) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the examples that stay and of those split off, each in the order that `salt` shuffles them into.

    Equal contents of one class stay together, unless that would change a split's size by more than about a quarter.
    """
    order = _shuffled(digests, salt)
    ordered = labels.numpy()[order]
    taken = np.zeros(len(order), dtype=bool)
    for k, size in enumerate(largest_remainder(np.bincount(ordered).tolist(), fraction)):
        members = np.flatnonzero(ordered == k)
        taken[members[: _between_contents(digests[order[members], :16], size)]] = True
    return order[~taken], order[taken]


def subsample(labels: Tensor, digests: np.ndarray, fraction: float, salt: str) -> np.ndarray:
    """Indices, in rising order, of `fraction` of the examples of each class, chosen by their content and `salt`.

    Of n examples of a class max(1, ⌊fraction · n + ½⌋) stay, so that a smaller subsample lies within a larger one.
    """
    order = _shuffled(digests, salt)
    ordered = labels.numpy()[order]
    sizes = [max(1, math.floor(fraction * count + 0.5)) for count in np.bincount(ordered)]
    return np.sort(np.concatenate([order[ordered == k][:size] for k, size in enumerate(sizes)]))


def count_shared(these: np.ndarray, those: np.ndarray) -> int:
    """How many of these digests (N, 8 bytes or more) are among those, by their first 8 bytes.

    >>> count_shared(digest_array([b"12345678", b"abcdefgh", b"abcdefgh"]), digest_array([b"abcdefgh"]))
    2
    """
    mine, others = (np.ascontiguousarray(digests[:, :8]).view(np.uint64) for digests in (these, those))
    return int(np.isin(mine, others).sum())


def _shuffled(digests: np.ndarray, salt: str) -> np.ndarray:
    # The first 16 bytes are hashed with the salt; what follows them only orders contents that fold alike.
    key = salt.encode()
    keys = digests.copy()
    for start in range(0, len(digests), _HASHED_AT_A_TIME):
        heads = digests[start : start + _HASHED_AT_A_TIME, :16].tobytes()
        mixed = [hashlib.blake2b(heads[i : i + 16], digest_size=16, key=key).digest() for i in range(0, len(heads), 16)]
        keys[start : start + len(mixed), :16] = digest_array(mixed)
    # As texts of bytes are ordered: the first byte counts most. `lexsort` has the last key first, and keeps ties.
    numbers = keys.view(">u8").astype(np.uint64)
    return np.lexsort(tuple(numbers.T[::-1])).astype(np.int64)


def _between_contents(contents: np.ndarray, cut: int) -> int:
    """The place nearest to `cut` that does not part equal contents (N, 16), of which each lie together.

    It is `cut` itself if that place is far off, would take nothing, or would leave too little for another split.
    """
    if cut == 0:
        return cut
    equal = (contents == contents[cut]).all(1)
    if not equal[cut - 1]:
        return cut
    start = int(equal.argmax())
    end = start + int(equal.sum())
    possible = [place for place in (start, end) if 1 <= place <= len(contents) - 2 and abs(place - cut) <= 1 + cut // 4]
    return min(possible, key=lambda place: abs(place - cut), default=cut)
