"""`training.compile`: the same training, plain names, a sentence where there is no compiler."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from training_parts import Memory, blobs, config_with, objective_of

from adaptive_labels.lab.config import ConfigError, RunConfig, with_settings
from adaptive_labels.lab.objectives import Supervised
from adaptive_labels.lab.runs import run_id
from adaptive_labels.lab.training import precision, session as sessions
from adaptive_labels.lab.training.checkpoints import read_checkpoint
from adaptive_labels.lab.training.loop import fit
from adaptive_labels.lab.training.progress import SilentReporter


def train(objective: Supervised, folder: Path | None = None, **settings: Any) -> Any:
    rows, labels, validation = blobs()
    return fit(
        objective,
        rows,
        labels,
        validation,
        config_with(**settings),
        0,
        recorder=Memory(),
        reporter=SilentReporter(),
        checkpoint_dir=folder,
        checkpoint_seconds=0,
    )


def test_a_compiled_run_has_a_name_of_its_own() -> None:
    off, on = (with_settings(RunConfig(), [f"compile={value}"]) for value in ("false", "true"))
    assert off == RunConfig()
    assert run_id(off) != run_id(on)


def test_only_training_steps_run_compiled_and_names_stay_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for torch's compiler that counts: graph capture by the real one, code generation left out."""
    modes: list[bool] = []
    graphs: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graphs.append(len(inputs))
        return graph.forward

    real = torch.compile

    def noting(forward: Any) -> Any:
        run = real(forward, backend=backend)

        def call(*inputs: Any) -> Any:
            modes.append(torch.is_grad_enabled())
            return run(*inputs)

        return call

    monkeypatch.setattr(torch, "compile", noting)
    monkeypatch.setattr(sessions, "check_compiler", lambda device: None)
    plain, compiled = objective_of(), objective_of()
    names = list(compiled.state_dict())
    expected = train(plain, epochs=2)
    found = train(compiled, tmp_path, epochs=2, compile=True)
    assert graphs
    assert modes
    assert all(modes)  # no evaluation
    assert list(compiled.state_dict()) == names
    assert "forward" not in vars(compiled.model)
    checkpoint = read_checkpoint(tmp_path)
    assert checkpoint is not None
    assert {name for name in checkpoint.tensors if name.startswith("objective/")} == {f"objective/{n}" for n in names}
    assert [record["train_loss"] for record in found.history] == pytest.approx(
        [record["train_loss"] for record in expected.history], rel=1e-5
    )


def test_without_a_compiler_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"training\.compile is true, but no C\+\+ compiler is here \(looked for g\+\+"
    ):
        train(objective_of(), compile=True)
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(ConfigError, match=r"looked for /nowhere/c\+\+"):
        precision.check_compiler(torch.device("cpu"))
    precision.check_compiler(torch.device("cuda", 0))  # GPUs need none


def test_a_compiler_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no space on the device")

    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda forward: real(forward, backend=fails))
    forward = precision.compiled_forward(torch.nn.Linear(2, 2))
    with pytest.raises(ConfigError, match=r"training\.compile is true, but torch cannot compile Linear here"):
        forward(torch.ones(1, 2))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler, of its own parts
def test_the_real_compiler_trains_to_the_same_weights() -> None:
    if not any(shutil.which(name) for name in (os.environ.get("CXX") or "g++", "clang++")):
        pytest.skip("needs a C++ compiler")
    plain, compiled = objective_of(), objective_of()
    train(plain)
    train(compiled, compile=True)
    torch.testing.assert_close(compiled.state_dict(), plain.state_dict(), rtol=1e-3, atol=1e-4)
