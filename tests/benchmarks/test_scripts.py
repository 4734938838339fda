"""The scripts of `benchmarks/` import nothing from the package that is no longer there."""

import ast
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


def test_there_are_scripts() -> None:
    assert SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_what_a_script_imports_is_there(script: Path) -> None:
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        ours = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("adaptive_labels")
        if ours and ".adapters" not in ast.unparse(node):  # which need the package that they adapt to
            exec(ast.unparse(node), {})
