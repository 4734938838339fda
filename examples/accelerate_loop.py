"""Train a small classifier with Accelerate and ALR, stop it, and go on where it was.

python examples/accelerate_loop.py [FOLDER]
accelerate launch --cpu --num_processes 2 examples/accelerate_loop.py [FOLDER]

The data is made up, so that nothing has to be downloaded: four clouds of points, of which 0 and 1 overlap. So the
residual labels of cloud 0 should point to cloud 1.
"""

import sys
import tempfile
from contextlib import nullcontext
from itertools import islice

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.adapters import ModelAndCriterion
from adaptive_labels.losses.base import Criterion

CLOUDS = torch.tensor([[0.0, 0.0], [2.0, 0.0], [9.0, 0.0], [0.0, 9.0]])


class Progress:
    """How far training is: the finished epochs, and the steps of the epoch that is not finished."""

    def __init__(self) -> None:
        self.epoch = self.step = 0

    def state_dict(self) -> dict[str, int]:
        """For the checkpoint."""
        return vars(self).copy()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """From the checkpoint."""
        vars(self).update(state)


def make_points(count: int, seed: int) -> TensorDataset:
    """Points around the centres of the clouds."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(CLOUDS), (count,), generator=random)
    return TensorDataset(CLOUDS[labels] + torch.randn(count, 2, generator=random), labels)


def train(
    folder: str,
    criterion: Criterion,
    epochs: int,
    batch_size: int = 16,
    micro_batches: int = 4,
    resume: bool = False,
    stop_after: int = 0,
) -> ModelAndCriterion:
    """Train and return the network and the criterion; each optimizer step takes so many ``micro_batches``.

    ``resume`` from the checkpoint in ``folder``; ``stop_after`` so many steps, with a checkpoint there.
    """
    # The accelerator is not told of the accumulation: the criterion divides, over the whole step of all processes.
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    set_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, len(CLOUDS)))
    trained = ModelAndCriterion(model, criterion)
    optimizer = torch.optim.AdamW(trained.parameter_groups(), lr=0.01, weight_decay=0.01)
    loader = DataLoader(make_points(1024, seed=1), batch_size=batch_size, shuffle=True)
    wrapped, optimizer, loader = accelerator.prepare(trained, optimizer, loader)
    progress = Progress()
    accelerator.register_for_checkpointing(progress)
    if resume:
        accelerator.load_state(folder)

    steps = 0
    for epoch in range(progress.epoch, epochs):
        loader.set_epoch(epoch)  # the order of the data depends on the epoch only
        batches = iter(accelerator.skip_first_batches(loader, progress.step * micro_batches))
        while step := list(islice(batches, micro_batches)):
            with criterion.accumulation([labels for _, labels in step]):
                for number, (points, labels) in enumerate(step, 1):
                    with nullcontext() if number == len(step) else accelerator.no_sync(wrapped):
                        accelerator.backward(wrapped(points, labels)[0])
            optimizer.step()
            optimizer.zero_grad()
            progress.step += 1
            steps += 1
            if steps == stop_after:
                accelerator.save_state(folder)
                return trained
        criterion.epoch_end()
        progress.epoch, progress.step = epoch + 1, 0
    accelerator.save_state(folder)
    return trained


def main(folder: str) -> None:
    """Train 40 steps, which ends within an epoch, then go on to the tenth epoch, residual labels included."""
    train(folder, AdaptiveLabelLoss(len(CLOUDS)), epochs=10, stop_after=40)
    trained = train(folder, AdaptiveLabelLoss(len(CLOUDS)), epochs=10, resume=True)
    if Accelerator().is_main_process:
        points, labels = make_points(512, seed=2).tensors
        accuracy = (trained.model(points).argmax(1) == labels).float().mean()
        print(f"accuracy {accuracy:.1%}")
        for confusion in trained.criterion.most_confused(2):
            print(f"cloud {confusion.label} is taken for cloud {confusion.taken_for}: {confusion.probability:.2f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
