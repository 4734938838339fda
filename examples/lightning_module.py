"""Train a small classifier with Lightning and ALR, stop it, and go on where it was.

python examples/lightning_module.py [FOLDER]

The data is made up, so that nothing has to be downloaded: four clouds of points, of which 0 and 1 overlap. So the
residual labels of cloud 0 should point to cloud 1.
"""

import sys
import tempfile

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.adapters.lightning import CriterionCallback

CLOUDS = torch.tensor([[0.0, 0.0], [2.0, 0.0], [9.0, 0.0], [0.0, 9.0]])


class Classifier(L.LightningModule):
    """A module as anyone would write it; the criterion is the line that differs."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, len(CLOUDS)))
        self.criterion = AdaptiveLabelLoss(len(CLOUDS))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        """The loss of a batch."""
        points, labels = batch
        return self.criterion(self.network(points), labels)

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        """The loss here is plain cross entropy, since the module is in evaluation mode."""
        points, labels = batch
        logits = self.network(points)
        self.log("val_loss", self.criterion(logits, labels))
        self.log("val_accuracy", (logits.argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The criterion moves the residual labels itself: they are no parameters."""
        return torch.optim.AdamW(self.parameters(), lr=0.01, weight_decay=0.01)


def make_points(count: int, seed: int) -> TensorDataset:
    """Points around the centres of the clouds."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(CLOUDS), (count,), generator=random)
    return TensorDataset(CLOUDS[labels] + torch.randn(count, 2, generator=random), labels)


def make_trainer(folder: str, epochs: int) -> L.Trainer:
    """A trainer with gradient accumulation and a checkpoint per epoch."""
    return L.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=epochs,
        accumulate_grad_batches=4,
        default_root_dir=folder,
        callbacks=[
            CriterionCallback(),
            ModelCheckpoint(folder, "last", enable_version_counter=False),
        ],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def main(folder: str) -> None:
    """Train five epochs, then go on to the tenth from the checkpoint, residual labels included."""
    L.seed_everything(0)
    train = DataLoader(make_points(1024, seed=1), batch_size=16, shuffle=True)
    test = DataLoader(make_points(512, seed=2), batch_size=512)
    make_trainer(folder, epochs=5).fit(Classifier(), train)
    module, trainer = Classifier(), make_trainer(folder, epochs=10)
    trainer.fit(module, train, ckpt_path=f"{folder}/last.ckpt")
    print(f"accuracy {trainer.validate(module, test, verbose=False)[0]['val_accuracy']:.1%}")
    for confusion in module.criterion.most_confused(2):
        print(f"cloud {confusion.label} is taken for cloud {confusion.taken_for}: {confusion.probability:.2f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
