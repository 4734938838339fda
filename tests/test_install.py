"""Two installs: the base, torch and numpy alone, trains with the losses; the extra `lab` brings the command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from adaptive_labels.__main__ import NEEDED

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-") for requirement in requirements}


def base() -> set[str]:
    """The distributions of the base install: torch, numpy, and what these need."""
    found, new = set(), {"torch", "numpy"}
    while new:
        found |= new
        listed = [metadata.requires(name) or [] for name in new if has(name)]
        new = names([line for lines in listed for line in lines if "extra ==" not in line]) - found
    return found


def has(distribution: str) -> bool:
    try:
        return bool(metadata.distribution(distribution))
    except metadata.PackageNotFoundError:  # of another system
        return False


NOT_IN_THE_BASE = sorted(
    module
    for module, distributions in metadata.packages_distributions().items()
    if not base() & names(distributions) and "adaptive-labels" not in distributions
)
WITHOUT = f"""
import sys
blocked = {NOT_IN_THE_BASE!r}
sys.modules.update(dict.fromkeys(blocked))  # so that importing them fails
"""
TRAIN = f"""{WITHOUT}
sys.modules["adaptive_labels.lab"] = None
import torch
import numpy
from adaptive_labels import AdaptiveLabelLoss, adapters, functional, label_issues, losses, metrics

torch.manual_seed(0)
inputs, target = torch.randn(64, 8), torch.arange(64) % 4
model, criterion = torch.nn.Linear(8, 4), AdaptiveLabelLoss(4, label_smoothing=0.1)
optimizer = torch.optim.SGD([{{"params": model.parameters()}}, *criterion.parameter_groups()], lr=0.5)
values = []
for _ in range(20):
    optimizer.zero_grad()
    loss = criterion(model(inputs), target)
    loss.backward()
    optimizer.step()
    values.append(loss.item())
criterion.epoch_end()
assert values[-1] < values[0], values
assert criterion.residual_logits.abs().sum() > 0
for name in losses.METHODS:
    assert losses.create_loss(name, 4)
logits = model(inputs).detach()
assert metrics.evaluate(logits, target)["top1"] > 0.25
assert label_issues.get_label_quality_scores(target.numpy(), logits.softmax(1).numpy()).shape == (64,)
assert functional.__all__
assert not [name for name in [*blocked, "adaptive_labels.lab"] if sys.modules.get(name)]
"""


def run(code: str, *arguments: str, path: Path = ROOT / "src") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    environment = os.environ | {"PYTHONPATH": str(path)}
    return subprocess.run(command, env=environment, cwd=path, capture_output=True, text=True, check=False)


def test_the_base_needs_torch_and_numpy_only() -> None:
    assert names(PROJECT["dependencies"]) == {"torch", "numpy"}


def test_the_command_knows_what_the_extra_brings() -> None:
    modules = {"pillow": "PIL", "scikit-learn": "sklearn"}
    lab = names(PROJECT["optional-dependencies"]["lab"])
    imported = {modules.get(name, name).replace("-", "_") for name in lab}
    assert imported == set(NEEDED)


def test_the_losses_train_without_the_extra() -> None:
    ended = run(TRAIN)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_command_names_the_extra_that_it_lacks() -> None:
    start = "from adaptive_labels.__main__ import main; main()"
    ended = run(f"import sys; sys.modules.update(dict.fromkeys({NEEDED!r})); {start}", "list", "methods")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"alr: the command needs {', '.join(NEEDED)}: pip install 'adaptive-labels[lab]'\n"


def test_comparing_in_python_names_the_extra_as_well() -> None:
    call = "try: adaptive_labels.compare('towns')\nexcept ImportError as error: print(error)"
    ended = run(f"{WITHOUT}\nimport adaptive_labels\n{call}")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert re.fullmatch(r"compare needs \w+: pip install 'adaptive-labels\[lab\]'\n", ended.stdout)


def test_the_package_is_the_command() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "adaptive_labels", "--version"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.startswith("adaptive-labels ")
    assert PROJECT["scripts"] == {"alr": "adaptive_labels.__main__:main"}


@pytest.mark.slow
def test_the_wheel_holds_what_it_needs(tmp_path: Path) -> None:
    source = tmp_path / "source"  # a copy, so that nothing of an earlier build gets in
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "wheel")
    about = next((tmp_path / "wheel").glob("*.dist-info/METADATA")).read_text(encoding="utf-8")
    required = re.findall(r"^Requires-Dist: (.*)$", about, flags=re.MULTILINE)
    assert names([line for line in required if "extra ==" not in line]) == {"torch", "numpy"}
    kernel = "from adaptive_labels.losses.fused import kernel; assert kernel.find()[0], kernel.find()[1]"
    ended = run(f"{TRAIN}\n{kernel}", path=tmp_path / "wheel")
    assert (ended.returncode, ended.stderr) == (0, "")
    installed = tmp_path / "wheel" / "adaptive_labels"
    for pattern in ("*.toml", "*.css", "*.js"):
        expected = {path.relative_to(ROOT / "src" / "adaptive_labels") for path in (ROOT / "src").rglob(pattern)}
        assert expected
        assert {path.relative_to(installed) for path in installed.rglob(pattern)} == expected
