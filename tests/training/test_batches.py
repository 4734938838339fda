"""How examples are brought into batches: all of them once, and padded ones beside others of their length."""

from __future__ import annotations

import torch

from adaptive_labels.lab.data.encoders.text import PaddedIds
from adaptive_labels.lab.training.batches import arranged, batches
from adaptive_labels.lab.training.evaluation import predict_logits


def padded(lengths: torch.Tensor) -> PaddedIds:
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return PaddedIds(torch.arange(1, int(lengths.sum()) + 1), offsets)


def shuffled(count: int, seed: int) -> tuple[torch.Tensor, torch.Generator]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(count, generator=generator), generator


LENGTHS = torch.randint(0, 100, (1001,), generator=torch.Generator().manual_seed(1))


def test_every_example_is_in_one_batch_and_none_is_alone() -> None:
    order, generator = shuffled(1001, 0)
    cut = arranged(padded(LENGTHS), order, 8, generator)
    assert sorted(torch.cat(cut).tolist()) == list(range(1001))
    assert len(cut) == sum(1 for _ in batches(torch.arange(1001), 8))
    assert min(map(len, cut)) >= 2


def test_batches_of_like_lengths_hold_little_padding() -> None:
    examples = padded(LENGTHS)

    def places(cut: list[torch.Tensor]) -> int:
        return sum(examples.batch(group)[0].numel() for group in cut)

    order, generator = shuffled(1001, 0)
    words = int(LENGTHS.sum())
    assert places(list(batches(order, 8))) > 1.6 * words  # what it would be
    assert places(arranged(examples, order, 8, generator)) < 1.1 * words


def test_batches_differ_between_epochs_and_not_between_calls() -> None:
    first, again, other = (
        [tuple(group.tolist()) for group in arranged(padded(LENGTHS), *_with(seed))] for seed in (0, 0, 1)
    )
    assert first == again
    assert not set(first) & set(other)
    lengths = [int(LENGTHS[list(group)].max()) for group in first]
    assert lengths != sorted(lengths)


def _with(seed: int) -> tuple[torch.Tensor, int, torch.Generator]:
    order, generator = shuffled(1001, seed)
    return order, 8, generator


def test_examples_of_one_length_keep_the_order_they_were_given() -> None:
    class Images:
        def __len__(self) -> int:
            return 10

        def batch(self, indices: torch.Tensor) -> torch.Tensor:
            return indices

    order, generator = shuffled(10, 3)
    assert torch.equal(torch.cat(arranged(Images(), order, 4, generator)), order)


def test_predictions_come_back_in_the_order_of_the_examples() -> None:
    class Sums(torch.nn.Module):
        def forward(self, inputs: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            return inputs[0].sum(1, keepdim=True).float()

    examples = padded(LENGTHS)
    expected = [examples.values[start:end].sum() for start, end in zip(examples.offsets, examples.offsets[1:])]  # noqa: B905
    assert torch.equal(predict_logits(Sums(), examples, batch_size=7)[:, 0], torch.stack(expected).float())
