"""Train a small network of timm with ALR and mixup, stop it, and go on where it was.

python examples/timm_task.py [FOLDER]

The images are made up, so that nothing has to be downloaded: a bright spot in one of four places, of which 0 and 1
overlap. So the residual labels of place 0 should point to place 1.
"""

import sys
import tempfile
from contextlib import nullcontext

import timm
import torch
from timm.data import Mixup
from timm.optim import create_optimizer_v2
from timm.task import resume_task_checkpoint
from timm.utils import CheckpointSaver
from torch.utils.data import DataLoader, TensorDataset

from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.adapters.timm import CriterionTask

PLACES = torch.tensor([[8.0, 8.0], [11.0, 8.0], [26.0, 8.0], [8.0, 26.0]])
MICRO_BATCHES = 4  # of one optimizer step


def make_images(count: int, seed: int) -> TensorDataset:
    """Images (N, 3, 32, 32) with a spot of 3 × 3 pixels near the centre of a place."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(PLACES), (count,), generator=random)
    spots = (PLACES[labels] + 1.5 * torch.randn(count, 2, generator=random)).round().long().clamp(1, 30)
    images = 0.1 * torch.randn(count, 3, 32, 32, generator=random)
    for image, (row, column) in zip(images, spots.tolist(), strict=True):
        image[:, row - 1 : row + 2, column - 1 : column + 2] += 2.0
    return TensorDataset(images, labels)


def train(folder: str, epochs: int, resume: str = "") -> CriterionTask:
    """The parts of timm's train script; the criterion and its task are the lines that differ."""
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=len(PLACES))
    task = CriterionTask(model, AdaptiveLabelLoss(len(PLACES)), verbose=False)
    optimizer = create_optimizer_v2(task.get_trainable_module(), "adamw", lr=0.005, weight_decay=0.05)
    begin = resume_task_checkpoint(task, resume, optimizer) or 0 if resume else 0
    saver = CheckpointSaver(task.get_trainable_module(), optimizer, task=task, checkpoint_dir=folder)
    mixup = Mixup(
        mixup_alpha=0.1, prob=0.5, label_smoothing=0.0, num_classes=len(PLACES)
    )  # ALR smooths, mixup must not
    loader = DataLoader(make_images(1024, seed=1), batch_size=16, shuffle=True, drop_last=True)
    for epoch in range(begin, epochs):
        task.train()
        for number, (images, labels) in enumerate(loader, 1):
            last = number % MICRO_BATCHES == 0
            with nullcontext() if last else task.no_sync():
                (task(*mixup(images, labels))["loss"] / MICRO_BATCHES).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
        task.epoch_end()
        saver.save_checkpoint(epoch, metric=epoch)
    return task


def main(folder: str) -> None:
    """Train three epochs, then go on to the sixth from the checkpoint, residual labels included."""
    train(folder, epochs=3)
    task = train(folder, epochs=6, resume=f"{folder}/last.pth.tar")
    images, labels = make_images(512, seed=2).tensors
    with torch.no_grad():
        accuracy = (task.get_eval_model().eval()(images).argmax(1) == labels).float().mean()
    print(f"accuracy {accuracy:.1%}")
    for confusion in task.criterion.most_confused(2):
        print(f"place {confusion.label} is taken for place {confusion.taken_for}: {confusion.probability:.2f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
