"""Weights from real safetensors files: what is taken, what stays new, what is refused and how."""

import re

import pytest
import torch
from safetensors.torch import save_file

from adaptive_labels.lab.models import WeightsError, create_model, load_weights, match_weights


def stored(tmp_path, name="resnet50-w2", classes=7, change=None):
    torch.manual_seed(7)
    state = create_model(name, classes).state_dict()
    for tensor in state.values():
        if tensor.is_floating_point():
            tensor.add_(torch.rand_like(tensor))
    if change:
        change(state)
    path = tmp_path / "weights.safetensors"
    save_file(state, path)
    return path, state


@pytest.mark.parametrize("name", ["resnet50-w2", "preact-resnet18-w2", "fasttext"])
def test_a_network_for_the_same_classes_is_taken_whole(tmp_path, name):
    path, state = stored(tmp_path, name)
    model = create_model(name, 7)
    match = load_weights(model, path)
    assert match.new == ()
    assert match.note == f"The weights start from {path}, the head's included."
    assert all(torch.equal(tensor, state[key]) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize(("name", "head"), [("resnet50-w2", "fc"), ("resnet32-w2", "head")])
def test_the_head_stays_new_where_the_classes_differ(tmp_path, name, head):
    path, state = stored(tmp_path, name)
    model = create_model(name, 5)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    match = load_weights(model, path)
    assert match.new == (f"{head}.weight", f"{head}.bias")
    assert "its head is for 7 classes, so a new one for 5 classes starts at random" in match.note
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[key] if key in match.new else state[key]), key


def test_a_file_without_a_head_will_do(tmp_path):
    path, _ = stored(tmp_path, change=lambda state: [state.pop("fc.weight"), state.pop("fc.bias")])
    match = load_weights(create_model("resnet50-w2", 7), path)
    assert "its head is not in the file, so a new one for 7 classes" in match.note
    # Half of a head is none: its weight would be read with another's bias.
    path, _ = stored(tmp_path, change=lambda state: state.pop("fc.bias"))
    assert match_weights(create_model("resnet50-w2", 7), path).new == ("fc.weight", "fc.bias")


def test_counters_of_batches_may_be_missing_and_numbers_in_half_precision(tmp_path):
    def drop_and_halve(state):
        for name in [name for name in state if name.endswith("num_batches_tracked")]:
            del state[name]
        state["fc.weight"] = state["fc.weight"].half()

    path, state = stored(tmp_path, change=drop_and_halve)
    model = create_model("resnet50-w2", 7)
    assert load_weights(model, path).new == ()
    assert torch.equal(model.fc.weight, state["fc.weight"].float())


def rename(state):
    state["stem.weight"] = state.pop("conv1.weight")


def widen(state):
    state["layer1.0.conv1.weight"] = torch.zeros(3, 2, 1, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rename, "it has no conv1.weight; the network has no stem.weight$"),
        (widen, "in another shape it has layer1.0.conv1.weight 3×2×1×1 instead of 2×2×1×1$"),
        (
            lambda state: [state.pop(name) for name in list(state) if "layer4" in name],
            r"it has no layer4.0.conv1.weight, ",
        ),
        (lambda state: [state.pop(name) for name in list(state) if "layer4" in name], r", \S+ and \d+ more$"),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(tmp_path, change, message):
    path, _ = stored(tmp_path, change=change)
    model = create_model("resnet50-w2", 7)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    with pytest.raises(WeightsError, match=f"{path} does not hold the weights of this network: .*") as error:
        load_weights(model, path)
    assert re.search(message, str(error.value))
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())


def test_other_files_are_refused(tmp_path):
    model = create_model("resnet32-w2", 5)
    with pytest.raises(WeightsError, match=r"there is no file .*missing.safetensors"):
        match_weights(model, tmp_path / "missing.safetensors")
    pickled = tmp_path / "weights.pt"
    torch.save(model.state_dict(), pickled)
    with pytest.raises(WeightsError, match=r"weights.pt is no safetensors file \(.*\); no other kind is opened"):
        match_weights(model, pickled)
    path, _ = stored(tmp_path, "resnet50-w4")
    with pytest.raises(WeightsError, match=r"in another shape it has conv1.weight 4×3×7×7 instead of 2×3×7×7, "):
        match_weights(create_model("resnet50-w2", 5), path)
