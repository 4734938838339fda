"""How many texts are longer than what an encoder reads of them, in sentences."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from adaptive_labels.data.dataset import Examples, SplitName
from adaptive_labels.data.encoders.ngrams import HashedNgrams, ImageEncoder
from adaptive_labels.data.encoders.words import CharacterIds, WordIds
from adaptive_labels.data.stored_texts import StoredTexts, text_lengths

__all__ = ["cut_notes"]

COUNTED = 20_000
"""Of more texts than this in a split, only so many are searched for words, and the number is an estimate."""

_NAMES = {"train": "training", "validation": "validation", "test": "test"}


def cut_notes(
    encoder: HashedNgrams | WordIds | CharacterIds | ImageEncoder, splits: Iterable[tuple[SplitName, Examples]]
) -> list[str]:
    """A sentence for each limit of the encoder that cuts texts off: how many of which split, at what, by which option.

    >>> train = Examples(["one", "one two three"], torch.tensor([0, 1]))
    >>> cut_notes(WordIds(("one",), max_words=2), [("train", train)])[0][:58]
    '1 of 2 training texts is longer than 2 words; only the beg'
    """
    if isinstance(encoder, ImageEncoder):
        return []
    texts = {name: examples.inputs for name, examples in splits}
    texts_only = {name: inputs for name, inputs in texts.items() if isinstance(inputs, list | StoredTexts)}
    option = "length" if isinstance(encoder, CharacterIds) else "max_length"
    limit = encoder.length if isinstance(encoder, CharacterIds) else encoder.max_length
    long = {name: (int((text_lengths(split) > limit).sum()), True) for name, split in texts_only.items()}
    sizes = {name: len(split) for name, split in texts_only.items()}
    notes = [_sentence(long, sizes, f"{limit:,} characters", option)]
    if isinstance(encoder, WordIds):
        wordy = {name: _wordy(encoder, split) for name, split in texts_only.items()}
        notes.append(_sentence(wordy, sizes, f"{encoder.max_words:,} words", "max_words"))
    return [note for note in notes if note]


def _wordy(encoder: WordIds, texts: Sequence[str]) -> tuple[int, bool]:
    """How many texts have more words than are read, and whether all were counted."""
    # A word has a character at least, so that shorter texts need not be looked at.
    possible = np.flatnonzero(text_lengths(texts) > encoder.max_words)
    every = max(1, -(-len(possible) // COUNTED))
    looked_at = possible[::every]
    if isinstance(texts, StoredTexts):
        picked: Sequence[str] = texts.subset(torch.from_numpy(looked_at))
    else:
        picked = [texts[i] for i in looked_at.tolist()]
    found = sum(int((counts > encoder.max_words).sum()) for counts in encoder.count_words(picked))
    return (found, True) if every == 1 else (round(found * len(possible) / len(looked_at)), False)


def _sentence(found: dict[SplitName, tuple[int, bool]], sizes: dict[SplitName, int], limit: str, option: str) -> str:
    parts = [
        f"{_number(count, exact)} of {sizes[name]:,} {_NAMES[name]}" for name, (count, exact) in found.items() if count
    ]
    if not parts:
        return ""
    one = [count for count, _ in found.values() if count] == [1]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return (
        f"{listed} texts {'is' if one else 'are'} longer than {limit}; only the beginning is read "
        f"(model.options.{option})."
    )


def _number(count: int, exact: bool) -> str:
    return f"{count:,}" if exact else f"about {int(float(f'{count:.2g}')):,}"
