"""The script for Transformers in examples/ does what its page says; the other pages' scripts are beside their tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.parts import SCRIPTS, run_script


@pytest.mark.slow
def test_transformers_trainer(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    printed = run_script(SCRIPTS / "transformers_trainer.py", tmp_path)
    assert "accuracy 9" in printed
    assert "topic 0 is taken for topic 1" in printed
    assert (tmp_path / "checkpoint-64" / "criterion.safetensors").is_file()
