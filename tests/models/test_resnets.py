"""What is particular to the residual networks: shortcuts, strides, sizes and starts."""

import pytest
import torch
from torch import nn

from adaptive_labels.lab.models import MODELS, create_model
from adaptive_labels.lab.models.resnet import BasicBlock, Bottleneck, PreActBlock

IMAGE_MODELS = [name for name, entry in MODELS.items() if entry.kind == "image" and "width" in entry.options]
RESIDUAL = [name for name in IMAGE_MODELS if "resnet" in name]


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def trained_layers(model):
    """Convolutions and linear layers on the main way: the shortcuts' are not counted in a network's name."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear) and "shortcut" not in name and "downsample" not in name
    ]


@pytest.mark.parametrize(
    ("name", "layers"),
    [("preact-resnet18", 18), ("resnet32", 32), ("resnet50", 50), ("resnet101", 101), ("resnet152", 152)],
)
def test_a_network_has_the_layers_of_its_name(name, layers):
    assert len(trained_layers(create_model(f"{name}-w4", 10))) == layers


def test_the_wide_network_has_28_convolutions_with_its_shortcuts():
    convolutions = [m for m in create_model("wide-resnet-28-10-w4", 10).modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == 28


@pytest.mark.parametrize("width", [4, 16])
def test_resnet32_has_the_parameters_one_counts_by_hand(width):
    # Ten 3×3 convolutions a stage of w, 2w, 4w; the first of the later two stages reads half the channels.
    convolutions = 9 * (10 * (1 + 4 + 16) - (2 + 8)) * width**2
    norms = 2 * 10 * (1 + 2 + 4) * width + 2 * width
    expected = convolutions + norms + 9 * width + 4 * width * 10 + 10
    assert count(create_model(f"resnet32-w{width}", 10, in_channels=1)) == expected


@pytest.mark.parametrize(("size", "channels"), [(8, 1), (9, 3), (33, 3)])
@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_images_of_any_size_are_read(name, size, channels):
    model = create_model(f"{name}-w2", num_classes=7, in_channels=channels).eval()
    assert model(torch.randn(2, channels, size, size)).shape == (2, 7)


@pytest.mark.parametrize(("name", "size"), [("resnet32", 8), ("wide-resnet-28-10", 8), ("preact-resnet18", 4)])
def test_small_networks_halve_the_image_two_or_three_times(name, size):
    model = create_model(f"{name}-w4", 7)
    assert model.blocks(model.stem(torch.randn(1, 3, 32, 32))).shape == (1, 128 // size, size, size)
    assert model.blocks[0].conv1.out_channels == 4  # the width is that of the first stage


def test_resnet50_ends_at_a_32nd_of_the_image():
    model = create_model("resnet50-w4", 7)
    seen = []
    model.layer4.register_forward_hook(lambda module, args, output: seen.append(tuple(output.shape)))
    model(torch.randn(1, 3, 64, 64))
    assert seen == [(1, 128, 2, 2)]


@pytest.mark.parametrize("name", ["resnet50", "resnet101", "resnet152"])
def test_strides_are_on_the_3x3_convolutions(name):
    blocks = [m for m in create_model(f"{name}-w2", 10).modules() if isinstance(m, Bottleneck)]
    strided = [block for block in blocks if block.conv2.stride == (2, 2)]
    assert len(strided) == 3
    assert all(block.conv1.stride == block.conv3.stride == (1, 1) for block in blocks)
    assert all(block.downsample[0].stride == (2, 2) for block in strided)


def test_a_shortcut_without_parameters_takes_every_second_pixel_and_adds_channels_of_zeros():
    block = BasicBlock(2, 4, stride=2)
    nn.init.zeros_(block.norm2.weight)
    image = torch.rand(1, 2, 5, 6)
    expected = torch.zeros(1, 4, 3, 3)
    expected[:, :2] = image[:, :, ::2, ::2]
    assert torch.equal(block(image), expected)
    assert {name.split(".")[0] for name, _ in block.named_parameters()} == {"conv1", "norm1", "conv2", "norm2"}


def test_the_wide_network_drops_between_its_convolutions_in_training_only():
    model = create_model("wide-resnet-28-10-w4", 5, dropout=0.5)
    images = torch.randn(4, 3, 8, 8)
    assert not torch.equal(model(images), model(images))
    model.eval()
    assert torch.equal(model(images), model(images))
    block = PreActBlock(3, 3, stride=1)
    block.dropout.p = 1.0  # nothing is left for the second convolution
    assert torch.equal(block(images), images)


@pytest.mark.parametrize("name", RESIDUAL)
def test_convolutions_start_as_he_et_al_propose(name):
    torch.manual_seed(0)
    for module in create_model(f"{name}-w32", 10).modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 5000:
            outputs = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
            assert module.weight.std().item() == pytest.approx((2 / outputs) ** 0.5, rel=0.06)
            assert module.bias is None
        elif isinstance(module, nn.BatchNorm2d):
            assert module.weight.eq(1).all()
            assert module.bias.eq(0).all()
        elif isinstance(module, nn.Linear):
            assert module.bias.eq(0).all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet32-w0", {}, "width is 0; it must be at least 1"),
        ("resnet50", {"in_channels": 0}, "in_channels is 0; it must be at least 1"),
        ("wide-resnet-28-10", {"width": 2, "dropout": 1.0}, "dropout is 1.0; it must be at least 0 and below 1"),
        ("resnet34", {}, r"there is no model 'resnet34'; there are .*; did you mean resnet32\?"),
        ("resnet32", {"dropout": 0.1}, "model 'resnet32' has no option 'dropout'"),
    ],
)
def test_bad_names_and_options_are_named(name, options, message):
    with pytest.raises(ValueError, match=message):
        create_model(name, 4, **options)
