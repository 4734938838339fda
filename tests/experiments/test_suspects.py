"""Judging labels by models that did not see them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from adaptive_labels.errors import UserError
from adaptive_labels.lab.data import Examples
from adaptive_labels.lab.data.dataset import ImageFiles
from adaptive_labels.lab.experiments import out_of_fold
from adaptive_labels.lab.experiments.out_of_fold import fold_numbers, head_probs, text_features, text_probs
from adaptive_labels.lab.experiments.suspects import _conflicts, _equal_inputs, judge
from adaptive_labels.label_issues import neighbour_probs


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_fold, "EPOCHS_OF_FEW", 4)
    monkeypatch.setattr(out_of_fold, "EPOCHS_OF_ALL", 4)


def clusters(count: int = 240, rate: float = 0.15, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features in three clusters, labels of which a share is wrong, and the true ones."""
    random = np.random.default_rng(seed)
    true = np.arange(count) % 3
    features = random.normal(size=(3, 6))[true] * 2 + random.normal(size=(count, 6))
    labels = np.where(random.random(count) < rate, (true + random.integers(1, 3, count)) % 3, true)
    return features.astype(np.float32), labels, true


def test_folds_keep_groups_together_and_classes_even() -> None:
    random = np.random.default_rng(0)
    labels, groups = random.integers(0, 4, 400), random.integers(0, 300, 400)
    fold = fold_numbers(labels, groups, 5)
    for group in np.unique(groups):
        assert len(np.unique(fold[groups == group])) == 1
    alone = fold_numbers(labels, np.arange(400), 5)
    counts = np.array([np.bincount(labels[alone == k], minlength=4) for k in range(5)])
    assert np.ptp(counts, axis=0).max() <= 1


def test_wrong_labels_are_found_counted_and_corrected() -> None:
    features, labels, true = clusters()
    wrong = labels != true
    judged = judge(features, labels, 3, np.arange(len(labels)), "found")
    worst = np.argsort(judged.quality)[: wrong.sum()]
    assert wrong[worst].mean() > 0.8
    assert (judged.suggested[wrong] == true[wrong]).mean() > 0.9
    assert judged.probability.sum() == pytest.approx(wrong.sum(), rel=0.35)
    assert judged.probability[wrong].mean() > 3 * judged.probability[~wrong].mean()
    assert judged.rare == ()
    assert not judged.conflict.any()


def test_nobody_judges_what_it_was_trained_on() -> None:
    """Random labels: who has not seen them cannot know better than chance; who has, can."""
    random = np.random.default_rng(0)
    features, labels = random.normal(size=(200, 64)).astype(np.float32), random.integers(0, 2, 200)
    fold = fold_numbers(labels, np.arange(200), 5)
    told: list[tuple[int, int]] = []
    unseen, seen = head_probs(features, labels, 2, fold, key="random", progress=lambda *done: told.append(done))
    assert (unseen.argmax(1) == labels).mean() < 0.65
    assert (seen.argmax(1) == labels).mean() > 0.75
    assert told == [(done, 6) for done in range(1, 7)]
    words = [f"word{i} w{i % 7}" for i in range(200)]
    assert (text_probs(words, labels, 2, fold, key="random").argmax(1) == labels).mean() < 0.65


def test_labels_of_the_test_split_teach_nobody() -> None:
    features, labels, _ = clusters(90)
    held = np.arange(90) >= 60
    others = np.where(held, (labels + 1) % 3, labels)
    words = [f"word w{i % 7} v{i % 3}" for i in range(90)]
    fold = np.where(held, -1, np.arange(90) % 5)
    for labelled in (labels, others):
        judged = [*head_probs(features, labelled, 3, fold, key=labelled.tolist(), progress=lambda *_: None)]
        judged.append(text_probs(words, labelled, 3, fold, key=labelled.tolist()))
        judged.append(neighbour_probs(labelled, features, 3, np.flatnonzero(~held)))
        if labelled is labels:
            first = judged
    assert all(np.allclose(one, other) for one, other in zip(first, judged, strict=True))
    everyone = [judge(features, some, 3, np.arange(90), some.tolist(), held=held).quality for some in (labels, others)]
    assert np.allclose(everyone[0][~held], everyone[1][~held])
    assert not np.allclose(everyone[0][held], everyone[1][held])


def test_what_was_computed_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels, _ = clusters(90)
    first = judge(features, labels, 3, np.arange(90), "kept")
    monkeypatch.setattr(out_of_fold, "FeatureHead", None)
    again = judge(features, labels, 3, np.arange(90), "kept")
    assert (again.quality == first.quality).all()
    with pytest.raises(TypeError):
        judge(features, labels, 3, np.arange(90), "another")


def test_rare_classes_are_not_judged() -> None:
    features, labels, _ = clusters(90)
    labels[:3], labels[3:12] = 3, 4
    judged = judge(features, labels, 6, np.arange(90), "rare")
    assert judged.rare == (3,)
    assert np.isnan(judged.quality[:3]).all()
    assert not np.isnan(judged.quality[3:]).any()
    assert 3 not in judged.suggested[3:]
    with pytest.raises(UserError, match="fewer than two classes have 5 examples"):
        judge(features, np.arange(90) // 4 * 0 + np.r_[np.zeros(87), 1, 1, 1].astype(int), 2, np.arange(90), "one")


def test_equal_inputs_with_other_labels_are_conflicts() -> None:
    groups = np.array([0, 0, 0, 1, 1, 2, 3, 3])
    labels = np.array([1, 1, 0, 2, 1, 0, 2, 2])
    assert _conflicts(groups, labels).tolist() == [False, False, True, True, True, False, False, False]


def test_equal_inputs_are_found_across_splits(tmp_path: Path) -> None:
    for name, content in (("a.png", b"one"), ("b.png", b"two"), ("c.png", b"one")):
        (tmp_path / name).write_bytes(content)
    names, sizes = np.array([b"a.png", b"b.png", b"c.png"]), np.array([3, 3, 3])
    photographs = Examples(ImageFiles(tmp_path, names, sizes, 32), torch.zeros(3, dtype=torch.int64))
    first, second, third = _equal_inputs([photographs])
    assert first == third != second
    pictures = Examples(torch.arange(2, dtype=torch.uint8).view(2, 1, 1, 1), torch.zeros(2, dtype=torch.int64))
    numbers = _equal_inputs([pictures, pictures])
    assert (numbers[:2] == numbers[2:]).all()
    assert numbers[0] != numbers[1]
    texts = Examples(["a  word", "another"], torch.zeros(2, dtype=torch.int64))
    first, second, third = _equal_inputs([texts, Examples([" A word"], torch.zeros(1, dtype=torch.int64))])
    assert first == third != second


def test_texts_without_words_are_no_obstacle() -> None:
    fold, labels = np.arange(20) % 5, np.arange(20) % 2
    assert (text_probs([""] * 20, labels, 2, fold, key="empty") == 0.5).all()
    assert text_features([""] * 20, key="empty").shape[0] == 20
    assert text_features([f"some words {i}" for i in range(20)], key="few").shape[0] == 20
