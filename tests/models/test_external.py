"""Networks of timm: the real library where it can be imported, and the sentences where not."""

import importlib
import importlib.util
import re
import sys

import pytest
import torch
from safetensors.torch import save_file

from adaptive_labels.errors import UserError
from adaptive_labels.lab.models import create_model, find_model, load_weights


def importable(library):
    try:
        importlib.import_module(library)
    except Exception:  # not there, or made for another build of torch
        return False
    return True


needs_timm = pytest.mark.skipif(not importable("timm"), reason="timm cannot be imported here")


@needs_timm
def test_timm_networks_by_name():
    entry, width = find_model("timm:resnet18")
    assert (entry.kind, width) == ("image", None)
    model = create_model("timm:resnet18", 7, in_channels=1).eval()
    assert model(torch.randn(2, 1, 64, 64)).shape == (2, 7)
    with pytest.raises(ValueError, match=r"timm has no model 'resnett18'; did you mean timm:resnet18\?"):
        create_model("timm:resnett18", 7)
    with pytest.raises(ValueError, match="model 'timm:resnet18' has no option 'width'"):
        create_model("timm:resnet18", 7, width=3)


@needs_timm
def test_weights_of_timm_fit_our_own_network(tmp_path):
    theirs, ours = create_model("timm:resnet50", 1000), create_model("resnet50", 10)
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    assert load_weights(ours, tmp_path / "theirs.safetensors").new == ("fc.weight", "fc.bias")


@pytest.mark.skipif(importlib.util.find_spec("timm") is not None, reason="timm is installed here")
def test_a_library_that_is_not_installed_is_named():
    with pytest.raises(ValueError, match="'timm:resnet18' needs timm, and it is not installed: pip install timm"):
        create_model("timm:resnet18", 5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "raise RuntimeError('operator torchvision::nms does not exist')",
            "'timm:resnet18' needs timm, which is installed but cannot be imported (operator torchvision::nms does not "
            "exist); torchvision must be of the same release and build as torch",
        ),
        (
            "import none_such",
            "'timm:resnet18' needs none_such, which timm uses, and it is not installed: pip install none_such",
        ),
    ],
)
def test_a_library_that_cannot_be_imported_is_a_sentence(tmp_path, monkeypatch, content, message):
    (tmp_path / "timm.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        create_model("timm:resnet18", 5)


def test_other_prefixes_are_no_libraries():
    with pytest.raises(ValueError, match="there is no model 'keras:resnet18'"):
        create_model("keras:resnet18", 5)
