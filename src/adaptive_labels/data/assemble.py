"""From what a reader found to a whole data set: the missing splits, the duplicates, the notes, the fingerprint."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from adaptive_labels.data.dataset import DataError, Dataset, Examples, Kind, picked
from adaptive_labels.data.fingerprint import fingerprint
from adaptive_labels.data.splits import (
    TEST_FRACTION,
    VALIDATION_FRACTION,
    content_digest,
    count_shared,
    digest_array,
    index_tensor,
    refuse_single_examples,
    share,
    split_off,
)
from adaptive_labels.data.wording import counted


@dataclass(frozen=True)
class Part:
    """A split as it was found: its examples, and a digest of each one's content (see `splits`).

    `of_pixels` says that the digests are those of an image's pixels, not of its file.
    """

    examples: Examples
    digests: Sequence[bytes]
    of_pixels: bool = False

    def subset(self, indices: Tensor) -> "Part":
        """The examples at `indices`, in that order."""
        return Part(self.examples.subset(indices), picked(self.digests, indices), self.of_pixels)


def assemble(
    name: str,
    kind: Kind,
    classes: Sequence[str],
    train: Part,
    validation: Part | None,
    test: Part | None,
    *,
    notes: Sequence[str],
    split_seed: int,
    train_fraction: float = 1.0,
    validation_fraction: float = VALIDATION_FRACTION,
) -> Dataset:
    """A whole data set: splits that are None are made from train, duplicates across splits are counted and noted.

    Of what is then left in train, `train_fraction` of each class is kept (see `splits.share`).
    """
    if len(classes) < 2:
        raise DataError(f"{name} has one class only ({classes[0]!r}); a classifier needs at least two.")
    if validation is None or test is None:
        refuse_single_examples(train.examples, classes)
    all_notes = list(notes)
    thing = "text" if kind == "text" else "image"
    size = len(train.examples)
    if test is None:
        whole = "all" if validation is None else "train"
        train, test = _set_aside(train, TEST_FRACTION, f"test {split_seed}")
        all_notes.append(_made("test", TEST_FRACTION, whole, test, thing, split_seed))
    if validation is None:
        train, validation = _set_aside(train, validation_fraction, f"validation {split_seed}")
        if len(validation.examples) == 0:
            raise DataError(
                f"{name} has too few examples ({size}) for a validation split; at least one class must have 3 examples."
            )
        all_notes.append(_made("validation", validation_fraction, "train", validation, thing, split_seed))
    if train_fraction != 1:
        whole_train = train
        train = train.subset(index_tensor(share(train.examples, train.digests, train_fraction, f"share {split_seed}")))
        all_notes.append(_kept(train_fraction, train, whole_train, thing, split_seed))
    splits = {"train": train.examples, "validation": validation.examples, "test": test.examples}
    all_notes += _duplicate_notes({"train": train, "validation": validation, "test": test}, thing + "s")
    return Dataset(
        name=name,
        kind=kind,
        classes=tuple(classes),
        train=train.examples,
        validation=validation.examples,
        test=test.examples,
        notes=tuple(all_notes),
        fingerprint=fingerprint(classes, splits.items()),
    )


def _duplicate_notes(parts: dict[str, Part], things: str) -> list[str]:
    """A sentence for each pair of splits that share contents: equal pixels, or texts equal but for case and spaces."""
    contents = {name: _contents(part) for name, part in parts.items()}
    notes = []
    for later, earlier in (("validation", "train"), ("test", "train"), ("test", "validation")):
        shared = count_shared(contents[later], contents[earlier])
        if shared:
            verb = "occurs" if shared == 1 else "occur"
            notes.append(f"{shared:,} of {len(contents[later]):,} {later} {things} also {verb} in {earlier}.")
    return notes


def _made(split: str, fraction: float, whole: str, part: Part, thing: str, split_seed: int) -> str:
    return (
        f"There was no {split} split, so {fraction:.0%} of {whole} ({counted(len(part.examples), thing)}) is set aside "
        f"for it, stratified by class (split seed {split_seed})."
    )


def _kept(fraction: float, part: Part, whole: Part, thing: str, split_seed: int) -> str:
    return (
        f"{counted(len(part.examples), f'training {thing}')} of {len(whole.examples):,} are kept: "
        f"{fraction:.4g} of each class, rounded, at least 1 (split seed {split_seed})."
    )


def _set_aside(part: Part, fraction: float, salt: str) -> tuple[Part, Part]:
    kept, taken = split_off(part.examples, part.digests, fraction=fraction, salt=salt)
    return part.subset(index_tensor(kept)), part.subset(index_tensor(taken))


def _contents(part: Part) -> np.ndarray:
    """A hash of what each example shows, (N, 16)."""
    inputs = part.examples.inputs
    if isinstance(inputs, Tensor) and not part.of_pixels:
        # Not the files' digests: a copy in another format or with other metadata has the same pixels.
        return digest_array([content_digest(image.tobytes()) for image in inputs.numpy()])
    return digest_array(part.digests)[:, :16]  # for a text, that of the folded text
