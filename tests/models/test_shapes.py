"""Networks without numbers: the shapes of the real ones, and nothing heavy imported for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from adaptive_labels.lab.models import create_model, shapes_only

NAMES = ("fasttext", "preact-resnet18-w4", "resnet32-w4", "textrnn", "charcnn", "transformer")


@pytest.mark.parametrize("name", NAMES)
def test_shapes_are_those_of_the_real_network(name: str) -> None:
    with shapes_only():
        shapes = create_model(name, 5)
    real = create_model(name, 5)
    assert {key: tensor.shape for key, tensor in shapes.state_dict().items()} == {
        key: tensor.shape for key, tensor in real.state_dict().items()
    }
    assert all(parameter.is_meta for parameter in shapes.parameters())


def test_no_compiler_is_imported() -> None:
    code = f"""
import sys
from adaptive_labels.lab.models import create_model
from adaptive_labels.lab.models import shapes_only
with shapes_only():
    for name in {NAMES}:
        create_model(name, 5)
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
