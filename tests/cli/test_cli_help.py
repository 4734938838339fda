"""`--help` everywhere: it answers, and imports nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from cli_parts import SOURCE

# Walks through the whole tree of commands, so that a new command is tested the moment it exists.
WALK = """
import contextlib, io, json, sys
import typer
from adaptive_labels.lab import cli

def paths(command, path=()):
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from paths(child, (*path, name))

answers = {}
for path in paths(typer.main.get_command(cli.app)):
    sys.argv = ["alr", *path, "--help"]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        try:
            cli.main()
        except SystemExit as end:
            status = end.code or 0
    heavy = sorted({"torch", "numpy", "scipy", "PIL", "pydantic", "rich"} & set(sys.modules))
    answers[" ".join(path)] = [status, shown.getvalue(), heavy]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def helps() -> dict[str, tuple[int, str, list[str]]]:
    done = subprocess.run(
        [sys.executable, "-c", WALK], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
    )
    return {name: tuple(answer) for name, answer in json.loads(done.stdout).items()}


def test_every_command_has_help(helps):
    commands = {"list", "train", "compare", "tune", "table", "report", "confusions", "predict", "runs", "data"}
    inside = {"runs list", "runs check", "runs rm", "data list", "data verify", "data prepare"}
    assert set(helps) >= commands | inside | {""}
    for name, (status, shown, _) in helps.items():
        assert status == 0, name
        assert shown.startswith(f"Usage: alr {name}".rstrip()), name


def test_help_imports_nothing_heavy(helps):
    assert {name: heavy for name, (_, _, heavy) in helps.items() if heavy} == {}


def test_the_list_of_commands_is_not_cut_short(helps):
    assert "..." not in helps[""][1].partition("Commands:")[2]


def test_no_arguments_show_the_help(alr, helps):
    ended = alr()
    assert (ended.status, ended.out) == (0, helps[""][1])


def test_version(alr):
    from adaptive_labels import __version__

    assert alr("--version").out == f"adaptive-labels {__version__}\n"
