"""A head on the features of a pretrained encoder, and an encoder that is trained along with it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from adaptive_labels.lab.data import Dataset, Examples
from adaptive_labels.lab.data.encoders.embeddings import Vectors
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.models.features import FeatureHead, Tuned


class Encoder(nn.Module):
    fixed = ("words",)

    def __init__(self) -> None:
        super().__init__()
        self.words, self.rest = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.rest(self.words(inputs))
        return features


def separable() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(600) % 3
    return torch.randn(600, 8, generator=generator) + 4 * torch.eye(3, 8)[labels], labels


def tuned(**options: Any) -> Tuned:
    torch.manual_seed(0)
    return Tuned(Encoder(), FeatureHead(3, 8, hidden=16), encoder_lr=0.1, **options)


def accuracy(model: Tuned, inputs: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    with torch.inference_mode():
        return float((model(inputs).argmax(1) == labels).float().mean())


def test_tuning_starts_from_a_trained_head() -> None:
    inputs, labels = separable()
    model, random = tuned(), tuned(head_epochs=0)
    before = {name: tensor.clone() for name, tensor in model.encoder.state_dict().items()}
    features = model.features(inputs).detach()
    model.start(features, labels)
    random.start(features, labels)
    assert accuracy(model, inputs, labels) > 0.9
    assert accuracy(random, inputs, labels) < 0.7
    assert torch.equal(random.head.mean, features.mean(0))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.encoder.state_dict().items())
    assert all(parameter.grad is None for parameter in model.encoder.parameters())


def test_what_an_encoder_calls_fixed_is_not_trained() -> None:
    encoder = tuned().encoder
    assert {name for name, part in encoder.named_parameters() if part.requires_grad} == {"rest.weight", "rest.bias"}


def test_a_network_starts_with_the_features_of_the_encoder_as_it_is() -> None:
    inputs, labels = separable()
    examples = Examples(torch.zeros(600, 3, 2, 2, dtype=torch.uint8), labels)
    dataset = Dataset("d", "image", ("a", "b", "c"), examples, examples, examples, (), "f")
    seen: list[Any] = []

    @dataclasses.dataclass(frozen=True)
    class Reader:
        tune: bool = True

        def encode(self, given: Any) -> Vectors:
            assert not self.tune
            return Vectors(inputs.half(), torch.arange(len(given)))

    class Model(nn.Module):
        def start(self, *given: Any) -> None:
            seen.append(given)

    build._fit_inputs(Model(), dataset, Reader())  # type: ignore[arg-type]
    ((features, given),) = seen
    assert features.shape == (600, 8)
    assert torch.equal(given, labels)


@pytest.mark.parametrize(("options", "words"), [({"head_epochs": -1}, "head_epochs is -1; it must be at least 0")])
def test_options_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tuned(**options)
