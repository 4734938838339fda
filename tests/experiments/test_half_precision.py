"""Run folders small enough to keep: half the space, and the same predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load, load_file
from torch import Tensor, nn

import adaptive_labels
from adaptive_labels.lab.data.encoders.embeddings import Vectors
from adaptive_labels.lab.experiments.half_precision import compact_logits, weights_file
from adaptive_labels.lab.experiments.prediction import Predictor
from adaptive_labels.lab.runs import RunFolder, list_runs
from adaptive_labels.lab.runs.catalogue import check
from adaptive_labels.lab.training.evaluation import predict_logits


def examples_of(count: int = 200, width: int = 6) -> Vectors:
    values = torch.randn(count, width, generator=torch.Generator().manual_seed(0))
    return Vectors(values, torch.arange(count))


class Scaled(nn.Module):
    """A linear layer whose largest tensor hardly matters, and whose scale decides how much rounding shows."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.randn(1000))
        self.head = nn.Linear(6, 4)
        with torch.no_grad():
            self.head.weight.mul_(scale)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(inputs) + 0.0 * self.unused.sum()


@pytest.mark.parametrize(("scale", "marked", "halves"), [(1.0, "all", 3), (300.0, "unused", 1), (1e6, "unused", 1)])
def test_weights_are_halved_as_far_as_no_prediction_changes(scale: float, marked: str, halves: int) -> None:
    torch.manual_seed(0)
    model, examples = Scaled(scale), examples_of()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    logits = predict_logits(model, examples)
    stored = load(weights_file(model, [(examples, logits)]))
    assert sum(tensor.dtype == torch.float16 for tensor in stored.values()) == halves
    assert (stored["unused"].dtype == torch.float16) is (marked in ("all", "unused"))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())  # as it was
    model.load_state_dict(stored)
    found = predict_logits(model, examples)
    assert torch.equal(found.argmax(1), logits.argmax(1))
    assert float((found.softmax(1) - logits.softmax(1)).abs().max()) <= 1e-3


def test_weights_that_nothing_may_be_changed_in_stay_whole() -> None:
    torch.manual_seed(0)
    model, examples = nn.Linear(6, 4), examples_of()
    with torch.no_grad():
        model.weight.mul_(1e6)  # beyond what half precision holds
        model.bias.mul_(1e6)
    stored = load(weights_file(model, [(examples, predict_logits(model, examples))]))
    assert {tensor.dtype for tensor in stored.values()} == {torch.float32}
    assert {tensor.dtype for tensor in load(weights_file(nn.Linear(6, 4), ())).values()} == {torch.float32}


def test_logits_are_halved_with_the_same_winners_and_probabilities() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(20_000, 5, generator=draw) * 6
    logits[:5_000, 3] = logits[:5_000, 1] + 1e-5  # nearly equal, so that they round to the same
    halves = compact_logits(logits)
    assert halves.dtype == np.float16
    assert (halves.argmax(1) == logits.argmax(1).numpy()).all()
    found = torch.from_numpy(halves.astype(np.float64)).softmax(1)
    assert float((found - logits.double().softmax(1)).abs().max()) < 1e-3
    assert np.isfinite(compact_logits(torch.tensor([[1e6, 0.0]]))).all()
    assert compact_logits(logits, temperature=0.1).dtype == np.float16
    tied = torch.tensor([[1.0, 1.0 + 2**-23, 0.0]]) - 1  # nearer than half precision can tell
    assert compact_logits(tied * 2**-3).dtype == np.float32


def test_a_run_predicts_from_its_smaller_file_what_it_has_stored(tmp_path: Path) -> None:
    words = {"food": "bread soup rice", "music": "drum flute song", "sport": "ball goal race"}
    pairs = [(word, label) for label, some in words.items() for word in some.split()]
    rows = [f"{word} {number},{label}" for number in range(10) for word, label in pairs]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    settings = {"training": {"epochs": 3, "threads": 1}, "model": {"options": {"buckets": 512, "dim": 16}}}
    runs = adaptive_labels.compare(
        tmp_path / "texts.csv", ["baseline", "kd"], 1, out=tmp_path / "runs", reference=False, settings=settings
    )
    for run in list_runs(tmp_path / "runs"):
        assert check(run) == []
        weights = run.path / "model.safetensors"
        with safe_open(weights, framework="pt") as file:
            assert list(file.metadata() or {}) == ["float16"]  # several would be written in no fixed order
        assert weights.stat().st_size < 0.6 * 4 * (run.result or {})["parameters"]["network"]
        stored = run.load_predictions()
        assert stored is not None
    predictor = Predictor.load(runs[0].path)
    assert next(predictor.model.parameters()).dtype == torch.float32
    assert torch.float16 in {tensor.dtype for tensor in load_file(runs[0].path / "model.safetensors").values()}
    (student,) = (run for run in runs if RunFolder(run.path).names.method == "kd")
    assert (student.result or {})["teacher"]["parameters"] > 0  # its teacher was read from such a file
