"""`training.compile`: the same training, plain names, a sentence where torch cannot compile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from training_parts import Memory, blobs, config_with, objective_of

from adaptive_labels.lab.config import ConfigError
from adaptive_labels.lab.objectives import Supervised
from adaptive_labels.lab.training.checkpoints import read_checkpoint
from adaptive_labels.lab.training.loop import fit
from adaptive_labels.lab.training.precision import compiled
from adaptive_labels.lab.training.progress import Reporter


def train(objective: Supervised, folder: Path | None = None, **settings: Any) -> Any:
    config, common = (
        config_with(checkpoint_seconds=0.0, **settings),
        {"recorder": Memory(), "reporter": Reporter()},
    )
    return fit(objective, *blobs(), config, 0, **common, checkpoint_dir=folder)


def test_only_training_steps_run_compiled_and_names_stay_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for torch's compiler that counts; the real one is slow."""
    modes: list[bool] = []

    def noting(forward: Any) -> Any:
        def call(inputs: Any) -> Any:
            modes.append(torch.is_grad_enabled())
            return forward(inputs)

        return call

    monkeypatch.setattr(torch, "compile", noting)
    plain, objective = objective_of(), objective_of()
    names = list(objective.state_dict())
    expected, found = train(plain, epochs=2), train(objective, tmp_path, epochs=2, compile=True)
    assert modes == [True] * 18  # no evaluation
    assert list(objective.state_dict()) == names
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint is not None
    assert {name for name in checkpoint.tensors if name.startswith("objective/")} == {f"objective/{n}" for n in names}
    losses = [[record["train_loss"] for record in result.history] for result in (expected, found)]
    assert losses[0] == losses[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler, of its own parts
def test_the_real_compiler_trains_to_the_same_weights_or_says_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no space on the device")

    real = torch.compile
    with monkeypatch.context() as patched:
        patched.setattr(torch, "compile", lambda forward: real(forward, backend=fails))
        forward = compiled(torch.nn.Linear(2, 2))
    with pytest.raises(ConfigError, match=r"training\.compile is true, but torch cannot compile Linear here"):
        forward(torch.ones(1, 2))
    if not any(shutil.which(name) for name in (os.environ.get("CXX") or "g++", "clang++")):
        pytest.skip("needs a C++ compiler")
    plain, objective = objective_of(), objective_of()
    train(plain)
    train(objective, compile=True)
    torch.testing.assert_close(objective.state_dict(), plain.state_dict(), rtol=1e-3, atol=1e-4)
