import pytest
import torch
from hypothesis import given, settings, strategies as st

from adaptive_labels.lab.data import DataError, Dataset, Examples, inject_noise


def dataset(size: int = 1000, num_classes: int = 5) -> Dataset:
    def split(count: int) -> Examples:
        return Examples([f"{count} {i}" for i in range(count)], torch.arange(count) % num_classes)

    classes = tuple(f"class {k}" for k in range(num_classes))
    return Dataset("d", "text", classes, split(size), split(100), split(200), ("a note",), "0")


@given(rate=st.floats(0, 1), size=st.integers(1, 60), num_classes=st.integers(2, 5), seed=st.integers(0, 9))
@settings(max_examples=60)
def test_symmetric_noise_changes_exactly_the_share_asked_for(rate, size, num_classes, seed):
    clean = dataset(size, num_classes)
    noisy = inject_noise(clean, rate, seed)
    assert int((noisy.train.labels != clean.train.labels).sum()) == round(rate * size)
    assert torch.equal(noisy.train.true_labels, clean.train.labels)
    assert noisy.train.labels.min() >= 0
    assert noisy.train.labels.max() < num_classes


def test_symmetric_noise_is_uniform_over_the_other_classes():
    clean = dataset(20_000)
    noisy = inject_noise(clean, 1.0, 0)
    counts = torch.zeros(5, 5)
    counts.index_put_((clean.train.labels, noisy.train.labels), torch.ones(20_000), accumulate=True)
    assert counts.diagonal().sum() == 0
    off_diagonal = counts[~torch.eye(5, dtype=torch.bool)]
    assert (off_diagonal - 1000).abs().max() < 150  # five standard deviations of a binomial count


def test_noise_is_seeded_and_leaves_its_argument_alone():
    clean = dataset()
    before = clean.train.labels.clone()
    one, same, other = (inject_noise(clean, 0.3, seed) for seed in (1, 1, 2))
    assert torch.equal(one.train.labels, same.train.labels)
    assert one.fingerprint == same.fingerprint
    assert not torch.equal(one.train.labels, other.train.labels)
    assert torch.equal(clean.train.labels, before)
    assert clean.train.true_labels is None
    assert clean.notes == ("a note",)
    assert len({clean.fingerprint, one.fingerprint, other.fingerprint}) == 3


def test_only_train_is_noisy_and_how_much_is_said():
    clean = dataset()
    noisy = inject_noise(clean, 0.5, 0)
    assert noisy.validation is clean.validation
    assert noisy.test is clean.test
    assert noisy.notes[1:] == (
        "500 of 1,000 training labels were changed on purpose, uniformly among the other classes (noise seed 0).",
    )


def test_noise_twice_keeps_the_first_truth():
    clean = dataset()
    twice = inject_noise(inject_noise(clean, 0.5, 0), 0.5, 1)
    assert torch.equal(twice.train.true_labels, clean.train.labels)


@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan")])
def test_a_rate_outside_0_to_1_is_refused(rate):
    with pytest.raises(DataError, match="rate must be from 0 to 1, not"):
        inject_noise(dataset(), rate, 0)
