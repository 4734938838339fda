"""What is particular to the fast network: its whitening, its norms, its start, and training it from a configuration."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from adaptive_labels.lab.config import RunConfig, with_settings
from adaptive_labels.lab.data import load_dataset
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.resolve import resolve_for
from adaptive_labels.lab.experiments.run import execute
from adaptive_labels.lab.jobs import Job
from adaptive_labels.lab.models import create_model
from adaptive_labels.lab.models.airbench import EPSILON, Whitening

RECIPE = [
    "model.name=airbench-w4",
    "epochs=4",
    "batch_size=64",
    "optimizer=sgd",
    "lr=0.1",
    "momentum=0.85",
    "weight_decay=0.001",
    "schedule=linear",
    "warmup=1",
    "augment=true",
    "flip=alternating",
    "translate=2",
    "cutout=2",
    "bias_lr=8",
    "residual_lr=3",
    "threads=1",
    "method.name=alr",
]


def photographs(examples=200, channels=3, size=12):
    """Images whose neighbouring pixels and channels are alike."""
    noise = torch.randn(examples, channels, size + 2, size + 2, generator=torch.Generator().manual_seed(0))
    smooth = F.avg_pool2d(noise, 3, stride=1)
    return smooth + smooth.mean(1, keepdim=True) + 0.3


def covariance(images, whitening):
    outputs = whitening(images).detach().double()
    flat = outputs.transpose(0, 1).flatten(1)  # (filters, patches)
    return torch.cov(flat, correction=0)


@pytest.mark.parametrize("channels", [1, 3])
def test_whitened_patches_are_uncorrelated_and_of_variance_one(channels):
    images = 100 * photographs(channels=channels)  # so large that ε does not count
    whitening = Whitening(channels)
    half = 4 * channels
    assert not torch.allclose(covariance(images, whitening)[:half, :half], torch.eye(half).double(), atol=0.1)
    whitening.fit(images)
    found = covariance(images, whitening)
    assert torch.allclose(found[:half, :half], torch.eye(half).double(), atol=1e-4)
    assert torch.allclose(found[:half, half:], -torch.eye(half).double(), atol=1e-4)  # each with both signs
    whitening.fit(torch.zeros(5, channels, 6, 6))  # directions without variance are not blown up
    assert whitening.weight.abs().max() <= EPSILON**-0.5 * (1 + 1e-6)


def test_the_filters_are_fitted_and_saved_but_not_trained():
    model, other = create_model("airbench-w4", 5), create_model("airbench-w4", 5)
    before = model.whitening.weight.clone()
    model.fit_inputs(photographs())
    fitted = model.whitening.weight.clone()
    assert not torch.equal(before, fitted)
    assert "whitening.weight" not in dict(model.named_parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    F.cross_entropy(model(photographs(10)), torch.arange(10) % 5).backward()
    optimizer.step()
    assert torch.equal(model.whitening.weight, fitted)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.whitening.weight, fitted)


@pytest.mark.parametrize("width", [4, 32])
def test_it_has_the_parameters_one_counts_by_hand(width):
    # Convolutions 24 → w → w → 2w → 2w → 4w → 4w, six shifts, the stem's bias, and a head without bias.
    convolutions = 9 * (24 * width + (1 + 2 + 4 + 8 + 16) * width**2)
    shifts = 2 * (1 + 2 + 4) * width + 24
    model = create_model(f"airbench-w{width}", 100)
    assert sum(parameter.numel() for parameter in model.parameters()) == convolutions + shifts + 4 * width * 100
    assert model.head.bias is None


def test_convolutions_start_as_their_inputs():
    block = create_model("airbench-w32", 10).blocks[0]
    images = torch.randn(2, 24, 6, 6)
    assert torch.allclose(block.conv1(images)[:, :24], images, atol=1e-6)
    assert not torch.allclose(block.conv1(images)[:, 24:], torch.zeros(1))


def test_norms_shift_and_do_not_scale():
    norm = create_model("airbench-w8", 10).blocks[0].norm1
    assert [name for name, _ in norm.named_parameters()] == ["bias"]
    outputs = norm(7 + 3 * torch.randn(64, 8, 5, 5))
    assert torch.allclose(outputs.mean((0, 2, 3)), torch.zeros(8), atol=1e-4)
    assert torch.allclose(outputs.std((0, 2, 3)), torch.ones(8), atol=1e-2)


def test_mirror_images_count_at_test_time_only_where_asked_for():
    torch.manual_seed(0)
    plain, mirrored = create_model("airbench-w4", 5), create_model("airbench-w4", 5, flip_test=True)
    mirrored.load_state_dict(plain.state_dict())
    images = photographs(4)
    expected = (plain.eval()(images) + plain(images.flip(-1))) / 2
    assert torch.allclose(mirrored.eval()(images), expected, atol=1e-6)
    assert torch.allclose(mirrored(images), mirrored(images.flip(-1)), atol=1e-6)
    assert torch.allclose(mirrored.train()(images), plain.train()(images), atol=1e-6)
    other = create_model("airbench-w4", 5, head_scale=1.0).eval()
    other.load_state_dict(plain.state_dict())
    assert torch.allclose(9 * plain.eval()(images), other(images), atol=1e-5)


@pytest.fixture(scope="module")
def digits() -> tuple[RunConfig, build.Prepared]:
    """The recipe on the first 400 digits, as colour images, so that they are flipped."""
    dataset = load_dataset("digits")
    few = dataset.train.subset(torch.arange(400))
    parts = [
        replace(part, inputs=part.inputs.expand(-1, 3, -1, -1)) for part in (few, dataset.validation, dataset.test)
    ]
    dataset = replace(dataset, train=parts[0], validation=parts[1], test=parts[2])
    config, _ = resolve_for(with_settings(RunConfig(), ["data.name=digits", *RECIPE]), dataset)
    return config, build.prepare_data(config, dataset)


def whitening_of(config, prepared):
    return build.make_objective(config, prepared.dataset, prepared.encoder).model.whitening.weight


def test_the_whitening_is_fitted_on_the_runs_training_images_whatever_the_seed(digits):
    config, prepared = digits
    expected = Whitening(3)
    expected.fit(prepared.train.batch(torch.arange(400)))
    for seed in (0, 1):
        assert torch.equal(whitening_of(replace(config, seed=seed), prepared), expected.weight)


def test_both_networks_of_mutual_learning_are_fitted(digits):
    config, prepared = digits
    config = with_settings(config, ["method.name=dml", "method.options.peers=2"])
    objective = build.make_objective(config, prepared.dataset, prepared.encoder)
    first, second = (learner.whitening.weight for learner in objective.learners)
    assert torch.equal(first, second)


def test_a_finished_run_is_loaded_with_its_filters(digits, tmp_path):
    config, prepared = digits
    run = execute(Job("", config, tmp_path, ()), prepared)
    network, _, _ = build.load_network(run)
    assert torch.equal(network.whitening.weight, whitening_of(config, prepared))
