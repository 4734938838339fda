"""Small real parts for the loop: ragged texts, a learning criterion, a recorder in memory."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adaptive_labels.lab.config import TrainingConfig
from adaptive_labels.lab.objectives import Supervised

CLASSES = 3


class Rows:
    """Examples that are rows of a matrix."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, indices: Tensor) -> Tensor:
        return self.rows[indices]


class Ragged:
    """Bags of token numbers of different lengths, gathered without a loop over examples."""

    def __init__(self, tokens: Tensor, lengths: Tensor) -> None:
        self.tokens, self.lengths = tokens, lengths
        self.starts = torch.cumsum(lengths, 0) - lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        lengths = self.lengths[indices]
        offsets = torch.cumsum(lengths, 0) - lengths
        where = torch.repeat_interleave(self.starts[indices] - offsets, lengths) + torch.arange(int(lengths.sum()))
        return self.tokens[where], offsets


class Bag(nn.Module):
    """An embedding bag and a linear layer."""

    def __init__(self, rows: int = 50, width: int = 8, sparse: bool = False) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(rows, width, sparse=sparse)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        return self.head(self.embedding(*inputs))


class Similarities(nn.Module):
    """A criterion with a parameter, a buffer that counts optimizer steps, parts, and an epoch count."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(classes, classes))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))
        self.parts: dict[str, Tensor] = {}
        self._accumulating = False

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        hard = F.cross_entropy(logits, target)
        if not (self.training and torch.is_grad_enabled()):
            return hard
        if not self._accumulating:
            self.steps += 1
        update = F.kl_div(self.scores[target].log_softmax(1), logits.detach().softmax(1), reduction="batchmean")
        self.parts = {"hard": hard.detach(), "update": update.detach(), "samples": torch.zeros(len(target))}
        return hard + update

    @contextmanager
    def accumulation(self) -> Iterator[None]:
        self._accumulating = True
        try:
            yield
        finally:
            self._accumulating = False
            self.steps += 1

    def parameter_groups(self, lr: float | None = None) -> list[dict[str, Any]]:
        return [{"params": [self.scores], "weight_decay": 0.0} | ({} if lr is None else {"lr": lr})]

    def epoch_end(self) -> None:
        self.epochs += 1

    def residual_labels(self) -> Tensor:
        return self.scores.softmax(1)


class Memory:
    """A recorder that keeps everything in lists."""

    def __init__(self) -> None:
        self.records: list[Mapping[str, Any]] = []
        self.matrices: dict[int, np.ndarray[Any, np.dtype[np.float32]]] = {}

    def epoch(self, record: Mapping[str, Any]) -> None:
        self.records.append(record)

    def residual_labels(self, epoch: int, matrix: np.ndarray[Any, np.dtype[np.float32]]) -> None:
        self.matrices[epoch] = matrix

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        return {str(epoch): matrix for epoch, matrix in self.matrices.items()}

    def rewind(self, history: Sequence[Mapping[str, Any]], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.records = list(history)
        self.matrices = {int(epoch): matrix for epoch, matrix in arrays.items()}


CONFIG = TrainingConfig(
    epochs=3,
    batch_size=16,
    optimizer="sgd",
    lr=0.1,
    weight_decay=1e-4,
    schedule="cosine",
    augment=False,
    device="cpu",
)


def config_with(**changes: Any) -> TrainingConfig:
    return replace(CONFIG, **changes)


def network(dropout: float = 0.0) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, CLASSES))


def objective_of(seed: int = 0, dropout: float = 0.0, criterion: nn.Module | None = None) -> Supervised:
    torch.manual_seed(seed)
    return Supervised(network(dropout), Similarities() if criterion is None else criterion)


def blobs() -> tuple[Rows, Tensor, tuple[Rows, Tensor]]:
    """Three clouds of points: train, its labels, validation."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (200,), generator=generator)
    centres = 2.0 * torch.randn(CLASSES, 6, generator=generator)
    rows = centres[labels] + torch.randn(200, 6, generator=generator)
    return Rows(rows[:130]), labels[:130], (Rows(rows[130:]), labels[130:])
