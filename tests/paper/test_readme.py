"""The README's table of results is that of the records."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent.parent
TASKS = {
    "`towns`": "towns",
    "Banking77": "banking77",
    "AG News": "ag_news-fasttext-short",
    "CIFAR-100": "cifar100-airbench-cpu",
    "a tenth of CIFAR-100's images": "cifar100-overfit",
    "the same images, as features": "cifar100-features",
}
METHODS = ("baseline", "slr", "alr", "alr-s")


def rows() -> dict[str, list[str]]:
    """The first words of a row → its other cells."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (.+) \|$", text.partition("| task | seeds |")[2], flags=re.MULTILINE)
    found = [line.replace("**", "").split(" | ") for line in table if "±" in line]
    return {name: cells for name in TASKS for first, *cells in found if first.startswith(name)}


def accuracies(task: str, method: str) -> list[float]:
    """By seed, of the method as it is by default; of earlier records, with S moved by the optimizer."""
    lines = (ROOT / "evidence" / "records" / f"{task}.jsonl").read_text(encoding="utf-8").splitlines()
    by_options: dict[str, list[float]] = {}
    for record in map(json.loads, lines):
        variant = json.loads(record["variant"])
        if variant["method"] == method and not variant["training"] and "fixed_to_confusions" not in variant:
            key = json.dumps(variant["options"])
            by_options.setdefault(key, []).append(record["metrics"]["test"]["top1"])
    return by_options.get("{}") or by_options['{"update": "optimizer"}']


def test_every_row_of_the_readme_is_known() -> None:
    assert list(rows()) == list(TASKS)


@pytest.mark.parametrize(("name", "task"), TASKS.items(), ids=TASKS.values())
def test_the_readme_has_the_figures_of_the_records(name: str, task: str) -> None:
    seeds, *cells = rows()[name]
    found = [accuracies(task, method) for method in METHODS]
    assert {len(values) for values in found} == {int(seeds)}
    assert cells == [f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}" for values in found]
