"""Train a small classifier with skorch and ALR, save it, and go on where it was.

python examples/skorch_classifier.py [FOLDER]

The data is made up, so that nothing has to be downloaded: four clouds of points, of which 0 and 1 overlap. So the
residual labels of cloud 0 should point to cloud 1.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback
from torch import Tensor, nn

from adaptive_labels import AdaptiveLabelLoss

CLOUDS = np.array([[0.0, 0.0], [2.0, 0.0], [9.0, 0.0], [0.0, 9.0]], dtype=np.float32)


class Network(nn.Module):
    """Points to logits."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, len(CLOUDS)))

    def forward(self, points: Tensor) -> Tensor:
        """Logits (N, K)."""
        return self.layers(points)


class EpochEnd(Callback):
    """Tells the criterion that an epoch is over. Put it before callbacks that save checkpoints."""

    def on_epoch_end(self, net: NeuralNetClassifier, **kwargs: Any) -> None:
        """Called by skorch."""
        net.criterion_.epoch_end()


class AccumulatingClassifier(NeuralNetClassifier):
    """A classifier that computes each batch in micro-batches, for batches that do not fit into memory.

    Only for that: without it, use ``NeuralNetClassifier``.
    """

    def __init__(self, *args: Any, micro_batches: int = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.micro_batches = micro_batches

    def train_step_single(self, batch: tuple[Tensor, Tensor], **fit_params: Any) -> dict[str, Tensor]:
        """Loss and gradients of a batch; the loss is the mean over the whole batch."""
        inputs, labels = (part.tensor_split(self.micro_batches) for part in batch)
        compute = super().train_step_single
        with self.criterion_.accumulation(labels):
            steps = [compute(part, **fit_params) for part in zip(inputs, labels, strict=True)]
        loss = torch.stack([step["loss"].detach() for step in steps]).sum()
        return {"loss": loss, "y_pred": torch.cat([step["y_pred"] for step in steps])}


def make_points(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points around the centres of the clouds."""
    random = np.random.default_rng(seed)
    labels = random.integers(len(CLOUDS), size=count)
    return CLOUDS[labels] + random.standard_normal((count, 2), dtype=np.float32), labels


def make_net(kind: type[NeuralNetClassifier] = NeuralNetClassifier, **options: Any) -> NeuralNetClassifier:
    """A classifier as anyone would write it; the lines that the criterion needs are commented."""
    settings = {
        "criterion": AdaptiveLabelLoss,
        "criterion__num_classes": len(CLOUDS),
        # skorch knows only torch's own criteria; without this predict_proba would return logits
        "predict_nonlinearity": partial(torch.softmax, dim=-1),
        "callbacks": [("epoch_end", EpochEnd)],
        "optimizer": torch.optim.AdamW,
        "optimizer__weight_decay": 0.01,
        "lr": 0.01,
        "batch_size": 64,
        "max_epochs": 5,
        "verbose": 0,
    }
    return kind(Network, **(settings | options))


def files(folder: Path) -> dict[str, Path]:
    """What to save and load: the criterion's file has S and the running accuracy."""
    names = {"f_params": "network", "f_criterion": "criterion", "f_optimizer": "optimizer", "f_history": "history"}
    return {argument: folder / f"{name}.{'json' if name == 'history' else 'pt'}" for argument, name in names.items()}


def main(folder: Path) -> None:
    """Train five epochs, then go on to the tenth from the files, residual labels included."""
    torch.manual_seed(0)
    points, labels = make_points(1024, seed=1)
    make_net().fit(points, labels).save_params(**files(folder))
    net = make_net().initialize()
    net.load_params(**files(folder))
    net.partial_fit(points, labels)
    points, labels = make_points(512, seed=2)
    print(f"accuracy {net.score(points, labels):.1%} after {len(net.history)} epochs")
    print(f"probabilities of a point sum to {net.predict_proba(points)[0].sum():.3f}")
    for confusion in net.criterion_.most_confused(2):
        print(f"cloud {confusion.label} is taken for cloud {confusion.taken_for}: {confusion.probability:.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
