"""The snippets of docs/trainers.md run, section by section, each after the lines that all sections start from."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "trainers.md"
INTRODUCTION, *SECTIONS = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
PACKAGES = {"Transformers": "transformers", "Lightning": "lightning", "skorch": "skorch", "scikit-learn": "sklearn"}
PACKAGES |= {"Accelerate, and your own loop": "accelerate", "timm": None}


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.filterwarnings("ignore")  # the trainers' own
@pytest.mark.parametrize(
    "section",
    [
        pytest.param(text, id=title, marks=[] if title == "scikit-learn" else [pytest.mark.slow])
        for title, text in ((section.partition("\n")[0], section) for section in SECTIONS)
    ],
)
def test_the_snippets_run(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = PACKAGES[section.partition("\n")[0]]
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    monkeypatch.chdir(tmp_path)
    found = blocks(section)
    assert bool(found) == (package is not None)
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in (*blocks(INTRODUCTION), *found):
        exec(compile(block, "trainers.md", "exec"), namespace)
