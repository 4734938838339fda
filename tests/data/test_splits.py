import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from adaptive_labels.lab.data.dataset import DataError, Examples
from adaptive_labels.lab.data.splits import (
    RawDataset,
    _shuffled,
    assemble,
    content_digest,
    digest_array,
    largest_remainder,
    text_digest,
)


def part(texts: list[str], labels: list[int]) -> Examples:
    return Examples(texts, torch.tensor(labels))


def whole(texts: list[str], labels: list[int], seed: int = 0, **splits):
    classes = [f"class {k}" for k in range(max(labels) + 1)]
    train_fraction = splits.pop("train_fraction", 1.0)
    raw = RawDataset("d", "text", classes, {"train": part(texts, labels), **splits})
    return assemble(raw, split_seed=seed, train_fraction=train_fraction)


@given(st.lists(st.integers(2, 200), min_size=1, max_size=30), st.sampled_from([0.1, 0.2, 0.5]))
def test_largest_remainder_is_fair_and_leaves_no_class_out(counts, fraction):
    sizes = largest_remainder(counts, fraction)
    assert all(1 <= size < count for size, count in zip(sizes, counts, strict=True))
    assert all(abs(size - fraction * count) <= 1 for size, count in zip(sizes, counts, strict=True))
    total = round(fraction * sum(counts))
    raised_to_one = sum(fraction * count < 1 for count in counts)
    assert total <= sum(sizes) <= total + raised_to_one


def test_largest_remainder_by_hand():
    # Shares 2.4, 2.6, 1.0 of a total of 6: the place left over goes to the largest remainder.
    assert largest_remainder([12, 13, 5], 0.2) == [2, 3, 1]
    assert largest_remainder([3], 0.2) == [1]
    assert largest_remainder([1, 10], 0.2) == [0, 2]


@given(st.lists(st.integers(3, 12), min_size=2, max_size=6), st.integers(0, 5))
@settings(max_examples=40)
def test_each_class_of_three_is_in_each_split_and_nothing_is_lost(counts, seed):
    labels = [k for k, count in enumerate(counts) for _ in range(count)]
    texts = [f"text {i}" for i in range(len(labels))]
    dataset = whole(texts, labels, seed)
    for _, split in dataset.splits():
        assert set(split.labels.tolist()) == set(range(len(counts)))
    seen = {
        text: label
        for _, split in dataset.splits()
        for text, label in zip(split.inputs, split.labels.tolist(), strict=True)
    }
    assert seen == dict(zip(texts, labels, strict=True))
    assert sum(len(split) for _, split in dataset.splits()) == len(texts)


def test_the_split_depends_on_content_and_seed_but_not_on_order():
    texts = [f"text {i}" for i in range(100)]
    labels = [i % 3 for i in range(100)]
    order = np.random.default_rng(0).permutation(100)
    one = whole(texts, labels)
    other = whole([texts[i] for i in order], [labels[i] for i in order])
    assert one.fingerprint == other.fingerprint
    assert one.train.inputs == other.train.inputs
    assert whole(texts, labels, seed=1).test.inputs != one.test.inputs
    assert {len(one.test), len(whole(texts, labels, seed=1).test)} == {20}


def test_the_next_seeds_test_split_is_not_this_seeds_validation_split():
    texts = [f"text {i}" for i in range(400)]
    labels = [0, 1] * 200
    validation = set(whole(texts, labels, seed=0).validation.inputs)
    test = set(whole(texts, labels, seed=1).test.inputs)
    assert len(validation & test) < len(validation) / 2


def test_sizes_and_sentences_for_each_missing_split():
    texts = [f"text {i}" for i in range(100)]
    labels = [0, 1] * 50
    held = part(["held 1", "held 2"], [0, 1])
    both = whole(texts, labels)
    assert (len(both.train), len(both.validation), len(both.test)) == (72, 8, 20)
    assert both.notes == (
        "There was no test split, so 20% of all (20 texts) is set aside for it, stratified by class (split seed 0).",
        "There was no validation split, so 10% of train (8 texts) is set aside for it, stratified by class "
        "(split seed 0).",
    )
    no_validation = whole(texts, labels, test=held)
    assert (len(no_validation.train), len(no_validation.validation), len(no_validation.test)) == (90, 10, 2)
    no_test = whole(texts, labels, validation=held)
    assert (len(no_test.train), len(no_test.validation), len(no_test.test)) == (80, 2, 20)
    assert "20% of train (20 texts)" in no_test.notes[0]
    complete = whole(texts, labels, validation=held, test=part(["other"], [0]))
    assert complete.train.inputs == texts
    assert complete.notes == ()


def test_too_few_examples_for_a_validation_split():
    with pytest.raises(DataError, match=r"d has too few examples \(4\) for a validation split; .* 3 examples"):
        whole(["a", "b", "c", "d"], [0, 0, 1, 1])
    texts = [f"t{i}" for i in range(6)]
    with pytest.raises(DataError, match=r"The class 'class 1' has one example only, like 1 other class; .* at least 2"):
        whole(texts, [0, 0, 0, 0, 1, 2])
    given = part(["held"], [0])
    assert len(whole(texts, [0, 0, 0, 0, 1, 2], validation=given, test=given).train) == 6


def test_equal_texts_stay_in_one_split():
    texts = [f"text {i // 2}" for i in range(400)]
    dataset = whole(texts, [(i // 2) % 2 for i in range(400)])
    assert not any("also occur" in note for note in dataset.notes)
    assert abs(len(dataset.test) - 80) <= 2


def test_a_text_that_fills_half_its_class_does_not_fill_the_test_split():
    texts = ["the same"] * 100 + [f"text {i}" for i in range(100)]
    for seed in range(6):
        assert 35 <= len(whole([*texts, *map(str, range(20))], [0] * 200 + [1] * 20, seed).test) <= 55


def test_duplicates_across_splits_are_counted_by_folded_text():
    dataset = whole(
        ["One  text", "two", "three", "four"],
        [0, 1, 0, 1],
        validation=part(["TWO", "five"], [1, 0]),
        test=part(["one text ", "two", "six"], [0, 1, 0]),
    )
    assert dataset.notes == (
        "1 of 2 validation texts also occurs in train.",
        "2 of 3 test texts also occur in train.",
        "1 of 3 test texts also occurs in validation.",
    )


def test_a_share_of_train_leaves_the_other_splits_as_they_are():
    texts = [f"text {i}" for i in range(300)]
    labels = [0] * 252 + [1] * 45 + [2] * 3
    whole_data, half, tenth = (whole(texts, labels, train_fraction=fraction) for fraction in (1.0, 0.5, 0.1))
    assert whole_data.train.labels.bincount().tolist() == [182, 33, 1]
    assert half.train.labels.bincount().tolist() == [91, 17, 1]  # 16.5 is rounded up
    assert tenth.train.labels.bincount().tolist() == [18, 3, 1]  # 3.3 is rounded down, 0.1 is raised to 1
    for data in (half, tenth):
        assert data.validation.inputs == whole_data.validation.inputs
        assert data.test.inputs == whole_data.test.inputs
    # The smaller share lies within the larger, in the same order.
    assert tenth.train.inputs == [text for text in half.train.inputs if text in set(tenth.train.inputs)]
    assert half.train.inputs == [text for text in whole_data.train.inputs if text in set(half.train.inputs)]
    assert tenth.notes[-1] == (
        "22 training texts of 216 are kept: 0.1 of each class, rounded, at least 1 (split seed 0)."
    )
    assert len({whole_data.fingerprint, half.fingerprint, tenth.fingerprint}) == 3
    assert whole_data.notes == whole(texts, labels).notes
    assert whole_data.fingerprint == whole(texts, labels).fingerprint


def test_a_share_depends_on_content_and_seed_but_not_on_order():
    texts = [f"text {i}" for i in range(200)]
    given_test, given_validation = part(["held"], [0]), part(["out"], [1])
    splits = {"test": given_test, "validation": given_validation, "train_fraction": 0.25}
    one = whole(texts, [0, 1] * 100, **splits)
    turned = whole(texts[::-1], [1, 0] * 100, **splits)
    assert one.train.inputs == turned.train.inputs[::-1]
    assert len(one.train) == 50
    other = whole(texts, [0, 1] * 100, seed=1, **splits)
    assert set(other.train.inputs) != set(one.train.inputs)


@pytest.mark.parametrize("digest", [text_digest, lambda text: content_digest(text.encode())], ids=["texts", "images"])
def test_the_shuffled_order_is_that_of_the_salted_hashes(digest):
    """As it was worked out with Python's own sort: a run made before must find the same splits."""
    texts = [f"{'A' if n % 3 else 'a'} text {n % 50}" for n in range(400)]
    digests = [digest(text) for text in texts]
    keys = [hashlib.blake2b(d[:16], digest_size=16, key=b"test 7").digest() + d[16:] for d in digests]
    expected = sorted(range(len(keys)), key=keys.__getitem__)
    assert _shuffled(digest_array(digests), "test 7").tolist() == expected
