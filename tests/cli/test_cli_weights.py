"""`--weights`: a run that starts from another one's network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from cli_parts import write_images
from safetensors.torch import load_file, save_file

RECIPE = ["--model", "resnet32-w2", "--method", "baseline", "--set", "batch_size=8", "--set", "threads=1"]


@pytest.fixture
def trained(alr, images, tmp_path) -> Path:
    """The weights of a finished run on three classes of images."""
    assert alr("train", images, *RECIPE, "--epochs", 1, "--out", "first").status == 0
    (run,) = (tmp_path / "first").iterdir()
    return run / "model.safetensors"


def test_a_run_starts_from_the_weights_of_another(alr, images, trained, tmp_path):
    # A rate so low that nothing moves: what comes out is what went in.
    still = [*RECIPE, "--epochs", 1, "--set", "lr=1e-30", "--set", "weight_decay=0", "--set", "momentum=0"]
    ended = alr("train", images, *still, "--weights", trained)
    assert (ended.status, ended.err) == (0, "")
    assert f"The weights start from {trained}, the head's included." in ended.out
    (run,) = (tmp_path / "runs").iterdir()
    before, after = load_file(trained), load_file(run / "model.safetensors")
    moved = [name for name in before if "running" not in name and "tracked" not in name]
    assert all(torch.equal(before[name], after[name]) for name in moved)
    assert "This run is finished already" in alr("train", images, *still, "--weights", trained).out
    assert alr("predict", run, next(Path(images).rglob("*.png"))).status == 0


def test_other_weights_are_another_run(alr, images, trained, tmp_path):
    def planned(*options):
        return alr("train", images, *RECIPE, *options, "--dry-run", "--json").json

    with_weights, without = planned("--weights", trained), planned()
    assert without["config"]["model"]["weights"] is None
    changed = {name: tensor + 1 for name, tensor in load_file(trained).items()}
    save_file(changed, trained)
    again = planned("--weights", trained)
    assert len({plan["folder"] for plan in (with_weights, without, again)}) == 3
    stale = f"model.weights_hash={with_weights['config']['model']['weights_hash']}"
    ended = alr("train", images, *RECIPE, "--weights", trained, "--set", stale)
    assert ended.status == 2
    assert ended.err.startswith(f"alr: model.weights: {trained} has changed")


def test_a_comparison_takes_them_and_makes_a_new_head(alr, trained, tmp_path):
    other = write_images(tmp_path / "other")
    source = sorted(path for path in other.iterdir() if path.is_dir())
    for number, image in enumerate(sorted(source[0].iterdir())[:6]):
        (other / "another").mkdir(exist_ok=True)
        (other / "another" / f"{number}.png").write_bytes(image.read_bytes())
    one = ["--methods", "baseline", "--seeds", 1, "--workers", 1, "--epochs", 1]
    recipe = [word for word in RECIPE if word not in ("--method", "baseline")]
    ended = alr("compare", other, *one, *recipe, "--weights", trained)
    assert (ended.status, ended.err) == (0, "")
    classes = len(source)
    assert f"its head is for {classes} classes, so a new one for {classes + 1} classes starts at random." in ended.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weights", "none-such.safetensors"], "model.weights: there is no file none-such.safetensors"),
        (
            ["--weights", "FILE", "--model", "resnet32-w4"],
            "in another shape it has stem.weight 2×3×3×3 instead of 4×3×3×3",
        ),
        (
            ["--weights", "FILE", "--model", "preact-resnet18-w2"],
            "does not hold the weights of this network: it has no ",
        ),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(alr, images, trained, options, message):
    ended = alr("train", images, *RECIPE, *(str(trained) if word == "FILE" else word for word in options))
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert message in ended.err
