"""The worked example in CONTRIBUTING.md: a method in one file and its slow reference, run as they stand there."""

from __future__ import annotations

import csv
import doctest
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import reference as R
from adaptive_labels import plugins
from adaptive_labels.losses import METHODS, create_loss
from adaptive_labels.plugins import load_plugin

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"
METHOD, REFERENCE = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def focal(tmp_path: Path) -> Iterator[ModuleType]:
    """The example as a module; its method is known during the test only."""
    before = dict(METHODS)
    (tmp_path / "focal.py").write_text(METHOD, encoding="utf-8")
    load_plugin(tmp_path / "focal.py")
    yield sys.modules["adaptive_labels_plugin_focal"]
    METHODS.clear()
    METHODS.update(before)
    plugins._loaded.clear()


@pytest.fixture
def reference() -> Callable[..., Any]:
    names = dict(vars(R))
    exec(compile(REFERENCE, "CONTRIBUTING.md", "exec"), names)
    return names["focal"]


def test_its_numeric_example(focal: ModuleType) -> None:
    assert doctest.testmod(focal, extraglobs={"torch": torch}) == (0, 1)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("soft", [False, True])
def test_it_agrees_with_its_reference(
    focal: ModuleType, reference: Callable[..., Any], soft: bool, reduction: str
) -> None:
    logits = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    target = torch.rand(6, 4, dtype=torch.float64).softmax(1) if soft else torch.tensor([0, 1, 2, 3, -100, 1])
    weight = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    criterion = create_loss("focal", 4, focus=1.5, reduction=reduction, weight=weight)
    expected = R.reduce(R.samples(logits, target, weight), reference(1.5), reduction)
    found = criterion(logits, target)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    upstream = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad(found, logits, upstream), torch.autograd.grad(expected, logits, upstream)
    )


def test_commands_know_it_by_name(focal: ModuleType, tmp_path: Path) -> None:
    from adaptive_labels import compare

    with (tmp_path / "texts.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [(f"{['good', 'bad'][i % 2]} text {i}", ["yes", "no"][i % 2]) for i in range(60)]
        csv.writer(file).writerows([("text", "label"), *rows])
    settings = {"training": {"epochs": 2, "batch_size": 16, "threads": 1}, "model": {"options": {"buckets": 256}}}
    (run,) = compare(tmp_path / "texts.csv", ["focal"], 1, out=tmp_path / "runs", settings=settings)
    assert run.result is not None
    assert run.result["status"] == "finished"
    assert run.result["method"] == "focal"


def test_the_decorators_of_the_other_rooms_are_there() -> None:
    """Each row of the table names a folder and a decorator; the folder's files define it."""
    rows = re.findall(
        r"^\| an? .*? \| in `([\w/]+)/`.*? \| `@([\w.]+)\(", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert len(rows) == 7
    for folder, decorator in rows:
        files = (PAGE.parent / "src" / "adaptive_labels" / folder).glob("*.py")
        defined = "app = " if decorator == "app.command" else f"def {decorator}("
        assert any(defined in file.read_text(encoding="utf-8") for file in files), (folder, decorator)
