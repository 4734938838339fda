"""An adapter whose trainer is not installed says which extra to install; the room itself can always be imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
for name in {hidden!r}:
    sys.modules[name] = None
import adaptive_labels.adapters
try:
    import adaptive_labels.adapters.{adapter}
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(("adapter", "hidden"), [("lightning", ["lightning", "pytorch_lightning"]), ("timm", ["timm"])])
def test_the_extra_is_named(adapter: str, hidden: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(adapter=adapter, hidden=hidden)], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith(f"; pip install 'adaptive-labels[{adapter}]'\n")
