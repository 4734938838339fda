"""Every example in the docs runs: docstrings of the whole package, and the Python blocks of the README and docs/."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

import adaptive_labels

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
FOUND = [name for _, name, _ in pkgutil.walk_packages(adaptive_labels.__path__, "adaptive_labels.")]
MODULES = [name for name in FOUND if not name.endswith("._alr")]  # the compiled kernel, which is no Python module


@pytest.mark.parametrize("name", ["adaptive_labels", *MODULES])
def test_docstrings(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if name.startswith("adaptive_labels.adapters.") and "pip install 'adaptive-labels[" in str(error):
            pytest.skip(str(error))  # a trainer that is not installed
        raise
    failed, _ = doctest.testmod(module, extraglobs={"torch": torch}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0


def test_every_function_has_a_runnable_example() -> None:
    from adaptive_labels import functional

    # Rows already gathered: variants of a function that has one.
    variants = {"is_index", "residual_loss_of_rows", "update_loss_of_rows", "update_gradient_of_rows"}
    for name in set(functional.__all__) - variants:
        assert ">>>" in (getattr(functional, name).__doc__ or ""), name


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


RUN_ALONE = [page for page in PAGES if page.name not in ("tutorial.md", "trainers.md")]


@pytest.mark.parametrize("page", RUN_ALONE, ids=[page.name for page in RUN_ALONE])
def test_python_blocks(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run one after the other in one namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "docs"}
    for number, block in enumerate(blocks(page)):
        exec(compile(block, f"{page.name}, block {number + 1}", "exec"), namespace)


def test_the_readme_has_a_python_block() -> None:
    assert blocks(ROOT / "README.md")


LINKING = [*PAGES, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "evidence").rglob("*.md"))]


@pytest.mark.parametrize("page", LINKING, ids=[str(page.relative_to(ROOT)) for page in LINKING])
def test_local_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:", "mailto:")):
            there = page.parent / target if target else page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), f"{target}#{anchor}"
    for picture in re.findall(r'<img src="([^"]+)"', page.read_text(encoding="utf-8")):
        assert (page.parent / picture).is_file(), picture


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def load_words() -> Any:
    spec = importlib.util.spec_from_file_location("words", ROOT / "docs" / "words.py")
    assert spec is not None
    assert spec.loader is not None
    words = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(words)
    return words


def test_the_pages_to_be_read_are_short() -> None:
    words = load_words()
    assert doctest.testmod(words).failed == 0
    listed = {f"{page}.md" for pages in words.PAGES.values() for page in pages}
    assert {str(page.relative_to(ROOT)) for page in PAGES} <= listed  # a new page belongs to a group
    read = [ROOT / f"{page}.md" for group in words.READ for page in words.PAGES[group]]
    assert sum(words.count_words(page.read_text(encoding="utf-8")) for page in read) <= words.MOST


def test_the_verdict_on_a_claim_has_at_most_sixty_words() -> None:
    _, *claims = re.split(r"^## .*$", (ROOT / "docs" / "claims.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    count = load_words().count_words
    assert claims
    assert max(map(count, claims)) <= 60


def test_the_tutorial_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tutorial's Python and shell blocks in their order, in one empty folder."""
    from adaptive_labels.lab.cli import main

    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "docs"}
    commands = 0
    for language, block in re.findall(r"```(python|sh)\n(.*?)```", text, flags=re.DOTALL):
        if language == "python":
            exec(compile(block, "tutorial.md", "exec"), namespace)
            continue
        for line in block.splitlines():
            monkeypatch.setattr("sys.argv", shlex.split(line))
            with pytest.raises(SystemExit) as end:
                main()
            assert end.value.code == 0, line
            commands += 1
    assert commands >= 7
    assert (tmp_path / "runs" / "report.html").exists()


def shell_lines(page: Path) -> list[list[str]]:
    """The commands of a page's indented and fenced blocks, as words; "…" stands for what a page leaves out."""
    lines = re.findall(r"^(?:    )?((?:alr|make) .*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines if " …" not in line]


COMMANDED = [page for page in PAGES if shell_lines(page)]


@pytest.mark.parametrize("page", COMMANDED, ids=[page.name for page in COMMANDED])
def test_every_command_is_one(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands, options and their values are known; a make target exists."""
    import typer

    from adaptive_labels.lab.cli import app

    monkeypatch.chdir(tmp_path)
    Path("own.py").touch()  # a plugin is read with the options
    # What a command does is called with its parsed arguments; here nothing is.
    monkeypatch.setattr("typer.core.TyperCommand.invoke", lambda self, context: None)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    command = typer.main.get_command(app)
    for program, *arguments in shell_lines(page):
        if program == "make":
            assert set(arguments) <= set(targets), arguments
            continue
        with command.make_context("alr", arguments) as context:
            command.invoke(context)


def test_the_commands_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`alr compare`, `alr suspects` and `alr predict` as they stand there, the last with one of the runs."""
    from adaptive_labels.lab.cli import main

    monkeypatch.chdir(tmp_path)
    rows = [f"{name}{ending},{label}" for name in "abcdefghij" for ending, label in (("berg", "DE"), ("ville", "FR"))]
    Path("my_data.csv").write_text("\n".join(["text,label", *rows, *(f"new {row}" for row in rows)]), encoding="utf-8")
    done = []
    for program, *arguments in shell_lines(ROOT / "README.md"):
        if program == "alr":
            words = [str(min(Path("runs").glob("my_data-*"))) if word == "runs/…" else word for word in arguments]
            monkeypatch.setattr("sys.argv", ["alr", *words])
            with pytest.raises(SystemExit) as end:
                main()
            assert end.value.code == 0, words
            done.append(arguments[0])
    assert done == ["compare", "suspects", "predict"]
