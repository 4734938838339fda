"""Many classes: a dense S that does not fit is refused, a low-rank one stays small."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.losses import LowRankAdaptiveLabelLoss


def test_a_dense_s_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from adaptive_labels.losses import memory

    monkeypatch.setattr(memory, "free_memory", lambda: 6_000_000)
    monkeypatch.setattr(memory, "NOTHING", 0)
    sizes = r"num_classes=1000: a dense S of 1000 × 999 float32 and its gradient take 8 MB, and 6 MB of memory"
    with pytest.raises(ValueError, match=rf"{sizes} are free. LowRank.* \(0.3 MB\); update='self'"):
        AdaptiveLabelLoss(1000, update="optimizer")
    for update in ("self", "frozen"):
        AdaptiveLabelLoss(1000, update=update)
    with pytest.raises(ValueError, match=r"takes 16 MB, and 6 MB .* matrices \(0.5 MB\)$"):
        AdaptiveLabelLoss(2000, update="self")
    many = LowRankAdaptiveLabelLoss(2000, 2)
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

    criterion = LowRankAdaptiveLabelLoss(50, 3)
    torch.nn.init.normal_(criterion.residual_left)
    whole = criterion.most_confused(40)
    monkeypatch.setattr(confusions, "LABELS_AT_ONCE", 350)
    assert criterion.most_confused(40) == whole
    labels = criterion.residual_labels()
    assert [entry.probability for entry in whole] == labels.flatten().topk(40).values.tolist()
