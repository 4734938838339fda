"""Methods and models of the user's own: a file for `--plugin`, or a cell of a notebook."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cli_parts import QUICK, Alr, results

from adaptive_labels import compare, plugins
from adaptive_labels.errors import UserError
from adaptive_labels.lab.models import MODELS
from adaptive_labels.losses import METHODS, create_loss, register_method

PLUGIN = """
import torch
from torch.nn import functional as F
from adaptive_labels.lab.models import register_model
from adaptive_labels.losses import register_method

@register_method("brier", "the squared distance to the label", main_option="scale", search=(0.5, 2.0))
def brier(logits, target, scale=1.0):
    return scale * (logits.softmax(1) - F.one_hot(target, logits.shape[1])).square().sum(1)

@register_model("bag", "text", "one layer")
class Bag(torch.nn.Module):
    def __init__(self, num_classes, buckets=64):
        super().__init__()
        self.layer = torch.nn.EmbeddingBag(buckets, num_classes, mode="mean")
    def forward(self, inputs):
        rows, offsets = inputs[0], inputs[1]
        return self.layer(rows, offsets)
"""


@pytest.fixture(autouse=True)
def _only_here() -> Iterator[None]:
    methods, models, loaded = dict(METHODS), dict(MODELS), dict(plugins._loaded)
    yield
    for registry, before in ((METHODS, methods), (MODELS, models), (plugins._loaded, loaded)):
        registry.clear()
        registry.update(before)  # type: ignore[arg-type]


def test_a_plugin_is_compared_tuned_and_a_changed_one_is_a_new_run(alr: Alr, texts: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "own.py"
    plugin.write_text(PLUGIN, encoding="utf-8")
    options = ("--plugin", plugin, "--seeds", "1", "--epochs", "2", *QUICK)
    done = alr("compare", texts, "--methods", "baseline,brier", *options, "--workers", "2")  # in processes
    assert done.status == 0, done.err
    assert "No baseline among these runs" not in done.out  # one table, though the plugin is part of one method only
    first = results(tmp_path / "runs")
    assert {result["method"] for result in first.values()} == {"baseline", "brier"}
    assert alr("compare", texts, "--methods", "baseline,brier", *options).status == 0
    assert results(tmp_path / "runs") == first

    plugin.write_text(PLUGIN.replace("return scale *", "return 0.01 * scale *"), encoding="utf-8")
    assert alr("compare", texts, "--methods", "baseline,brier", *options).status == 0
    both = results(tmp_path / "runs")
    (new,) = [result for name, result in both.items() if name not in first]
    (old,) = [result for result in first.values() if result["method"] == "brier"]
    assert len(both) == 3  # the baseline is what it was
    assert new["metrics"]["test"]["nll"] != old["metrics"]["test"]["nll"]
    tuned = alr("tune", texts, "--method", "brier", "--trials", "2", *options[:2], "--epochs", "1", *QUICK, "--dry-run")
    assert tuned.status == 0, tuned.err


def test_a_model_of_a_plugin_predicts_with_the_file_it_was_trained_with(alr: Alr, texts: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "own.py"
    plugin.write_text(PLUGIN, encoding="utf-8")
    done = alr("train", texts, "--plugin", plugin, "--model", "bag", "--method", "brier", "--epochs", "1")
    assert done.status == 0, done.err
    (run,) = (tmp_path / "runs").iterdir()
    assert alr("predict", run, "bread", "--plugin", plugin).out.startswith("bread: ")
    plugin.write_text(PLUGIN.replace('mode="mean"', 'mode="sum"'), encoding="utf-8")
    other = alr("predict", run, "bread", "--plugin", plugin)
    assert (other.status, other.err.count("\n")) == (2, 1)
    assert "was trained with another version of the plugin" in other.err
    plugin.write_text(PLUGIN, encoding="utf-8")
    refused = alr("export", run, "-o", "out", "--format", "safetensors", "--plugin", plugin)
    assert refused.err == "alr: bag is no network of adaptive-labels: export it as onnx or pt2\n"
    assert alr("export", run, "-o", "out", "--format", "pt2", "--plugin", plugin).status == 0
    del MODELS["bag"]
    assert alr("predict", "out", "bread").status == 0  # the network is inside
    unknown = alr("export", run, "-o", "again", "--format", "pt2")
    assert (unknown.status, (tmp_path / "again").exists()) == (2, False)
    assert "needs the file of its model, with --plugin FILE.py: there is no model 'bag'" in unknown.err
    without = alr("predict", run, "bread")
    assert (without.status, without.err.count("\n")) == (2, 1)
    assert "needs the file of its model, with --plugin FILE.py: there is no model 'bag'" in without.err


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (None, "plugin: own.py cannot be read: No such file"),
        ("x = 1\ny = (\n", "plugin: own.py, line 2: SyntaxError: "),
        ("x = 1\n\ny = x / 0\n", "plugin: own.py, line 3: ZeroDivisionError: division by zero"),
        (PLUGIN.replace('"brier"', '"slr"'), "line 7: method 'slr' is built in: register your own under another name"),
        (PLUGIN.replace('"bag"', '"mlp"'), "line 11: model 'mlp' is built in: register your own under another name"),
        (PLUGIN.replace("scale=1.0", "scale"), "line 7: method 'brier': its option 'scale' needs a default value"),
    ],
)
def test_what_is_wrong_with_a_plugin_is_one_sentence(
    alr: Alr, tmp_path: Path, source: str | None, sentence: str
) -> None:
    if source is not None:
        (tmp_path / "own.py").write_text(source, encoding="utf-8")
    ended = alr("train", "--plugin", "own.py", "--dry-run")
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert sentence in ended.err


def run_cell(source: str) -> None:
    """Run source as a notebook does: in `__main__`, where `inspect` finds the lines."""
    name = f"<cell {hash(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), {"__name__": "__main__"})


CELL = """
from adaptive_labels.losses import register_method
@register_method("short")
def short(logits, target):
    return 1.0 * -logits.log_softmax(1).gather(1, target[:, None])[:, 0]
"""


def test_a_cell_of_a_notebook_runs_twice_and_a_changed_one_is_a_new_run(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(cell: str, seeds: int = 1, workers: int = 1) -> set[str]:
        run_cell(cell)
        recipe = {"training": {"epochs": 1, "threads": 1}, "model": {"options": {"buckets": 64}}}
        compare(texts, ["short"], seeds, out=tmp_path, workers=workers, settings=recipe)
        return set(results(tmp_path))

    once = run(CELL)
    assert run(CELL) == once
    assert len(run(CELL.replace("1.0 *", "0.01 *"))) == 2
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)  # as in a session
    with pytest.raises(UserError, match=r"'short' is registered in this session alone.* use workers=1, or put it into"):
        run(CELL.replace("1.0 *", "2.0 *"), seeds=2, workers=2)


def test_code_whose_source_cannot_be_read_trains_no_run_but_makes_a_loss(texts: Path, tmp_path: Path) -> None:
    exec(CELL, {"__name__": "__main__"})
    assert create_loss("short", 3)(torch.zeros(2, 3), torch.tensor([0, 1])).item() == pytest.approx(1.0986, abs=1e-4)
    with pytest.raises(UserError, match="'short' is registered by code whose source cannot be read"):
        compare(texts, ["short"], 1, out=tmp_path)


def test_a_function_has_all_that_a_criterion_has() -> None:
    register_method("halved")(
        lambda logits, target, part=0.5: part * -logits.log_softmax(1)[range(len(target)), target]
    )
    logits, target = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 2, -100])
    plain = torch.nn.functional.cross_entropy(logits, target, weight=torch.tensor([1.0, 2.0, 3.0]))
    found = create_loss("halved", 3, weight=torch.tensor([1.0, 2.0, 3.0]))(logits, target)
    assert found.item() == pytest.approx(plain.item() / 2)
    assert create_loss("halved", 3, part=1.0, reduction="none")(logits, target)[3] == 0
    with pytest.raises(UserError, match=r"unknown option 'prt' of method 'halved'; did you mean part\?"):
        create_loss("halved", 3, prt=1.0)
    register_method("summed")(lambda logits, target: logits.sum())
    with pytest.raises(UserError, match=r"method 'summed' must return one loss per sample, \(4,\), not \(\)"):
        create_loss("summed", 3)(logits, target)
