"""The small network after a pretrained encoder, which is frozen or tuned."""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from adaptive_labels.lab.models.pretrained import efficientnet_lite, minilm
from adaptive_labels.lab.models.registry import check_sizes, register_model

ENCODER_LR = 0.04
"""The rate of an encoder that is trained along, as a multiple of the head's."""
HEAD_EPOCHS = 15
"""Passes over the training features in which the head is trained alone, before an encoder is trained along."""
_HEAD_RATE, _HEAD_DECAY = 0.002, 0.01


class FeatureHead(nn.Module):
    """Classify features, perhaps through one hidden layer.

    The features are brought to mean 0 and standard deviation 1 over the training examples first.

    Args:
        in_features: how many there are, D, as in the encoder.
        hidden: units of the hidden layer; 0 for a linear classifier.
        dropout: share of what the last layer reads that is dropped in training.

    >>> FeatureHead(num_classes=3, in_features=8)(torch.ones(2, 8)).shape
    torch.Size([2, 3])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, num_classes: int, in_features: int, hidden: int = 512, dropout: float = 0.5) -> None:
        super().__init__()
        check_sizes(dropout, in_features=in_features)
        if hidden < 0:
            raise ValueError(f"hidden is {hidden}; it must be at least 0")
        self.register_buffer("mean", torch.zeros(in_features))
        self.register_buffer("std", torch.ones(in_features))
        self.hidden = nn.Linear(in_features, hidden) if hidden else None
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden or in_features, num_classes)
        nn.init.zeros_(self.head.bias)

    def fit_inputs(self, inputs: Tensor) -> None:
        """Take the mean and standard deviation of training features (N, D); one that never varies keeps 1."""
        std = inputs.std(0, correction=0)
        self.mean.copy_(inputs.mean(0))
        self.std.copy_(torch.where(std < 1e-6, 1.0, std))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits (N, K) for features (N, D)."""
        features = (inputs - self.mean) / self.std
        if self.hidden is not None:
            features = self.hidden(features).relu()
        logits: Tensor = self.head(self.dropout(features))
        return logits


class EncoderAndHead(nn.Module):
    """What an encoder reads → logits (N, K), by a head on its features (N, D)."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def features(self, inputs: Tensor | tuple[Tensor, ...]) -> Tensor:
        """Return the features (N, D) of what the encoder reads."""
        features: Tensor = self.encoder(*inputs) if isinstance(inputs, tuple) else self.encoder(inputs)
        return features

    def forward(self, inputs: Tensor | tuple[Tensor, ...]) -> Tensor:
        """Return logits (N, K)."""
        logits: Tensor = self.head(self.features(inputs))
        return logits


class Tuned(EncoderAndHead):
    """A pretrained encoder and a head on its features, trained together, the encoder at a smaller rate.

    Args:
        encoder: what it reads → features (N, D). Its parts that it lists as `fixed` are not trained.
        head: features → logits (N, K).
        encoder_lr: the encoder's rate as a multiple of the head's.
        head_epochs: passes of the head over the training features in `start`; with 0 it starts at random.
    """

    head: FeatureHead

    def __init__(
        self, encoder: nn.Module, head: FeatureHead, encoder_lr: float, head_epochs: int = HEAD_EPOCHS
    ) -> None:
        super().__init__(copy.deepcopy(encoder).requires_grad_(True), head)
        if encoder_lr <= 0:
            raise ValueError(f"encoder_lr is {encoder_lr}; it must be above 0")
        if head_epochs < 0:
            raise ValueError(f"head_epochs is {head_epochs}; it must be at least 0")
        for part in getattr(encoder, "fixed", ()):
            self.encoder.get_submodule(part).requires_grad_(False)
        self.encoder.lr_factor = encoder_lr  # type: ignore[assignment]
        self.head_epochs = head_epochs

    def start(self, features: Tensor, labels: Tensor) -> None:
        """Train the head alone on the features (N, D) of the training inputs, as the encoder makes them at first.

        An encoder that is trained along with a random head first learns to please that head, and forgets: Kumar et al.,
        "Fine-Tuning can Distort Pretrained Features and Underperform Out-of-Distribution", 2022. The loss is plain
        cross entropy, so that every method starts from the same head.
        """
        self.head.fit_inputs(features)
        size = 32 if len(features) < 2_000 else 128
        optimizer = torch.optim.AdamW(self.head.parameters(), _HEAD_RATE, weight_decay=_HEAD_DECAY)
        total = self.head_epochs * -(-len(features) // size)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _HEAD_RATE, total_steps=total + 1)
        self.head.train()
        for _ in range(self.head_epochs):
            for batch in torch.randperm(len(features)).split(size):  # type: ignore[no-untyped-call]
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.head(features[batch]), labels[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()


def on_features(
    load: Callable[[], nn.Module],
    num_classes: int,
    in_features: int,
    hidden: int = 512,
    dropout: float = 0.5,
    tune: bool = False,
    encoder_lr: float = ENCODER_LR,
    head_epochs: int = HEAD_EPOCHS,
) -> nn.Module:
    """A head for the features of an encoder; with `tune` the encoder that is loaded is part of the network."""
    head = FeatureHead(num_classes, in_features, hidden, dropout)
    if not tune:
        return head
    with torch.device("cpu"):  # also where only shapes are wanted: the weights are read once for all
        return Tuned(load(), head, encoder_lr, head_epochs)


register_model("minilm", "text", "features of a pretrained sentence encoder, frozen or tuned; a head", reads="minilm")(
    partial(on_features, minilm.load_minilm, in_features=minilm.FEATURES)
)
register_model(
    "efficientnet-lite0",
    "image",
    "features of a network pretrained on ImageNet, frozen or tuned; a head; 661.0K parameters for 10 classes",
    reads="efficientnet-lite0",
)(partial(on_features, efficientnet_lite.load_efficientnet_lite0, in_features=efficientnet_lite.FEATURES))
