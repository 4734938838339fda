from __future__ import annotations

import pytest
import torch

from adaptive_labels import functional as AF


def test_restore_undoes_erase_everywhere_but_in_the_own_column() -> None:
    x, index = torch.randn(7, 5), torch.tensor([0, 4, 2, 1, 3, 0, 4])
    back = AF.restore(AF.erase(x, index), index, fill=-1.0)
    own = torch.nn.functional.one_hot(index, 5).bool()
    assert torch.equal(back[~own], x[~own])
    assert bool((back[own] == -1).all())


@pytest.mark.parametrize("over", ["all", "others"])
@pytest.mark.parametrize("eps", [0.0, 0.25, 1.0])
def test_smoothed_labels_are_distributions(over: str, eps: float) -> None:
    smoothed = AF.smooth_labels(torch.tensor([0, 2]), 3, eps, over)
    torch.testing.assert_close(smoothed.sum(1), torch.ones(2))
    expected = 1 - eps if over == "others" else 1 - eps + eps / 3
    assert smoothed[1, 2].item() == pytest.approx(expected)


def test_smoothing_over_all_is_torchs_own() -> None:
    z, y = torch.randn(6, 5), torch.randint(5, (6,))
    expected = torch.nn.functional.cross_entropy(z, y, label_smoothing=0.2, reduction="none")
    torch.testing.assert_close(AF.hard_loss(z, y, 0.2), expected)


def test_disturbed_labels_follow_the_stated_distribution() -> None:
    generator = torch.Generator().manual_seed(1)
    y = torch.full((200_000,), 3)
    share = AF.disturb_labels(y, 5, 0.4, generator).bincount(minlength=5) / len(y)
    expected = torch.full((5,), 0.4 / 5)
    expected[3] = 1 - 0.4 * 4 / 5
    torch.testing.assert_close(share, expected, rtol=0, atol=0.005)


def test_disturbed_probabilities_become_one_hot_and_the_rest_stay() -> None:
    t = torch.rand(1000, 4).softmax(1)
    before = t.clone()
    disturbed = AF.disturb_labels(t, 4, 0.5)
    changed = (disturbed != t).any(1)
    assert 0.4 < changed.float().mean() < 0.6
    assert bool((disturbed[changed].amax(1) == 1).all())
    assert torch.equal(t, before)


def test_residual_logits_from_confusion_counts() -> None:
    counts = torch.tensor([[50.0, 6.0, 2.0], [0.0, 9.0, 0.0], [1.0, 1.0, 7.0]])
    labels = AF.residual_labels(AF.residual_logits_from_labels(counts, floor=0.0))
    torch.testing.assert_close(labels, torch.tensor([[0.0, 0.75, 0.25], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]]))


def test_a_floor_spreads_its_share_of_each_row_evenly_and_logits_are_centred() -> None:
    counts = torch.tensor([[50.0, 6.0, 2.0], [0.0, 9.0, 0.0], [1.0, 0.0, 7.0]], dtype=torch.float64)
    S = AF.residual_logits_from_labels(counts, floor=0.1)
    expected = torch.tensor([[0.75, 0.25], [0.5, 0.5], [1.0, 0.0]], dtype=torch.float64) * 0.9 + 0.1 / 2
    torch.testing.assert_close(S.softmax(1), expected)
    torch.testing.assert_close(S.mean(1), torch.zeros(3, dtype=torch.float64))
