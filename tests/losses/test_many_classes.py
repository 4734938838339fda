"""Many classes: a dense S that does not fit is refused, a low-rank one stays small."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from adaptive_labels import AdaptiveLabelLoss


def test_a_dense_s_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from adaptive_labels.losses import memory

    monkeypatch.setattr(memory, "free_memory", lambda: 6_000_000)
    monkeypatch.setattr(memory, "NOTHING", 0)
    sizes = r"num_classes=1000: a dense S of 1000 × 999 float32 and its gradient take 8 MB, and 6 MB of memory"
    with pytest.raises(ValueError, match=rf"{sizes} are free. rank=32 .* \(0.3 MB\); update='self' or sparse=True"):
        AdaptiveLabelLoss(1000, update="optimizer")
    for options in ({"update": "self"}, {"sparse": True}, {"update": "frozen"}):
        AdaptiveLabelLoss(1000, **{"update": "optimizer", **options})
    with pytest.raises(ValueError, match=r"takes 16 MB, and 6 MB .* matrices \(0.5 MB\)$"):
        AdaptiveLabelLoss(2000, update="self")
    many = AdaptiveLabelLoss(2000, update="optimizer", rank=2)
    with pytest.raises(ValueError, match=r"residual labels of 2000 × 2000 classes .* ask for some rows="):
        many.residual_labels()
    assert many.residual_labels([3, 1999]).shape == (2, 2000)


def test_free_memory_is_that_of_the_container(tmp_path: Path) -> None:
    from adaptive_labels.losses import memory

    assert (memory.free_memory() or 0) > 10**7
    assert memory._of_container(tmp_path) is None
    (tmp_path / "memory.current").write_text("100\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._of_container(tmp_path) is None
    (tmp_path / "memory.max").write_text("5000\n")
    assert memory._of_container(tmp_path) == 4900
    (tmp_path / "memory.stat").write_text("anon 70\ninactive_file 30\nactive_file 0\n")  # files that were read
    assert memory._of_container(tmp_path) == 4930


def test_the_most_confused_of_many_classes_are_found_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from adaptive_labels.losses import confusions

    criterion = AdaptiveLabelLoss(50, update="optimizer", rank=3)
    torch.nn.init.normal_(criterion.residual_left)
    whole = criterion.most_confused(40)
    monkeypatch.setattr(confusions, "LABELS_AT_ONCE", 350)
    assert criterion.most_confused(40) == whole
    labels = criterion.residual_labels()
    assert [entry.probability for entry in whole] == labels.flatten().topk(40).values.tolist()


def test_low_rank_keeps_the_memory_of_its_factors_only() -> None:
    criterion = AdaptiveLabelLoss(5000, rank=4, update="self")
    assert sum(tensor.numel() for tensor in criterion.state_dict().values()) < 2 * 4 * 5000 + 10
    z, y = torch.randn(3, 5000, requires_grad=True), torch.tensor([0, 4999, 7])
    before = [parameter.clone() for parameter in criterion.parameters()]
    criterion(z, y).backward()
    left, right = criterion.parameters()
    assert torch.equal(left.ne(before[0]).any(1).nonzero().flatten(), torch.tensor([0, 7, 4999]))
    assert torch.equal(right, before[1])  # U was 0, so V has no gradient yet
