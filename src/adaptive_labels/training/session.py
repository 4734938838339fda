"""The moving parts of a training run: what is built at its start, and saved and restored between epochs."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from torch import nn

from adaptive_labels.config import ConfigError, TrainingConfig
from adaptive_labels.objectives import Objective
from adaptive_labels.training.checkpoints import (
    Checkpoint,
    CheckpointError,
    join_optimizer_state,
    read_checkpoint,
    split_optimizer_state,
    write_checkpoint,
)
from adaptive_labels.training.compiler import check_compiler, compiled_forward
from adaptive_labels.training.ema import WeightAverage
from adaptive_labels.training.optimizers import Optimizers, clip_gradients, make_optimizers
from adaptive_labels.training.precision import check_precision, choose_device

__all__ = ["Session", "contained", "derived_seed"]

_PRECISIONS: dict[str, Any] = {"32": "32-true", "bf16-mixed": "bf16-mixed", "16-mixed": "16-mixed"}


class Session:
    """An objective set up for training on a device: wrapped by Fabric, with its optimizers and its history."""

    def __init__(self, objective: Objective, config: TrainingConfig) -> None:
        for name in ("epochs", "batch_size", "optimizer", "lr", "weight_decay", "schedule"):
            if getattr(config, name) is None:
                raise ConfigError(f"training.{name} is not given: a configuration is resolved before it is trained")
        self.config = config
        self.device = choose_device(config.device)
        check_precision(config.precision, self.device)
        if config.compile:
            check_compiler(self.device)
        devices: Any = 1 if self.device.type == "cpu" else [self.device.index]
        self.fabric = Fabric(
            accelerator=self.device.type,
            devices=devices,
            precision=_PRECISIONS[config.precision],
            plugins=[LightningEnvironment()],  # one process, also where a scheduler's variables suggest more
        )
        self.objective = objective
        if config.channels_last:
            for learner in objective.learners:
                learner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        # The module that `setup` returns is left aside: there is one process, so nothing to keep in step, and its
        # hooks cost as much time as a small layer. `setup` has moved the objective itself to the device.
        _, *members = self.fabric.setup(objective, *make_optimizers(objective, config).members)
        self.optimizers = Optimizers(members)
        self._compiled = [compiled_forward(learner) for learner in objective.learners] if config.compile else []
        self.average = WeightAverage(nn.ModuleList(objective.learners), config.ema) if config.ema is not None else None
        self.history: list[dict[str, Any]] = []

    @property
    def finished_epochs(self) -> int:
        """How many epochs are behind this session, before an interruption or after it."""
        return len(self.history)

    def step(self) -> None:
        """Clip, move every parameter, drop the gradients, and take the weights into the average."""
        if self.config.clip_norm is not None:
            for member in self.optimizers.members:
                self.fabric.strategy.precision.unscale_gradients(getattr(member, "optimizer", member))
            for parameters in self.objective.clipped_together():
                clip_gradients(parameters, self.config.clip_norm)
        self.optimizers.step()
        self.optimizers.zero_grad()
        if self.average is not None:
            self.average.update()

    @contextmanager
    def compiled(self) -> Iterator[None]:
        """A context in which the networks run compiled, where the configuration asks for it.

        Evaluation stays outside: its mode and its batch sizes would each be compiled again. Only how a network is
        called changes, so that its weights keep their names in checkpoints and results.
        """
        learners = self.objective.learners
        for learner, forward in zip(learners, self._compiled, strict=False):
            learner.forward = forward
        try:
            yield
        finally:
            for learner in learners[: len(self._compiled)]:
                del learner.forward  # the class's own is seen again

    def evaluated_weights(self) -> AbstractContextManager[None]:
        """A context with the weights that count: the average, where one is kept."""
        return nullcontext() if self.average is None else self.average.applied()

    @torch.no_grad()
    def weights_are_finite(self) -> bool:
        """Whether no parameter, the criterion's included, holds a NaN or an infinity."""
        parameters = list(self.objective.parameters())
        sums = [parameter.sum(dtype=torch.float32) for parameter in parameters]
        if not sums or bool(torch.stack(sums).isfinite().all()):
            return True  # a NaN or an infinity would be in its sum, which needs no mask as large as the weights
        return all(bool(torch.isfinite(parameter).all()) for parameter in parameters)

    def save(self, folder: Path) -> None:
        """Write a checkpoint of the last finished epoch."""
        tensors = {f"objective/{name}": tensor for name, tensor in self.objective.state_dict().items()}
        if self.average is not None:
            tensors |= {f"average/{name}": tensor for name, tensor in self.average.average.items()}
        moments, plain_moments = split_optimizer_state(self.optimizers.state_dict())
        plain = {
            "history": self.history,
            "optimizer": plain_moments,
            "average_updates": self.average.updates if self.average is not None else 0,
            "precision": self.fabric.strategy.precision.state_dict(),
        }
        write_checkpoint(folder, Checkpoint(self.finished_epochs, tensors | moments, plain))

    def restore(self, folder: Path) -> None:
        """Take up the checkpoint in a folder, if there is one."""
        checkpoint = read_checkpoint(folder)
        if checkpoint is None:
            return
        try:
            self.objective.load_state_dict(_under("objective/", checkpoint.tensors))
            moments = join_optimizer_state(checkpoint.tensors, checkpoint.plain["optimizer"])
            self.optimizers.load_state_dict(moments)
            if self.average is not None:
                saved = _under("average/", checkpoint.tensors)
                for name, average in self.average.average.items():
                    average.copy_(saved[name])
                self.average.updates = checkpoint.plain["average_updates"]
            self.fabric.strategy.precision.load_state_dict(checkpoint.plain["precision"])
            self.history = list(checkpoint.plain["history"])
        except (RuntimeError, ValueError, KeyError, IndexError) as error:
            first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise CheckpointError(
                f"the checkpoint in {folder} belongs to another model, criterion or optimizer ({first_line}): "
                "remove the folder to start again"
            ) from error


def _under(prefix: str, tensors: Any) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def derived_seed(seed: int, epoch: int, stream: int) -> int:
    """A seed for one use in one epoch, so that an epoch's draws do not depend on how the run came to it."""
    return int(np.random.SeedSequence([seed, epoch, stream]).generate_state(1, np.uint64)[0] >> np.uint64(1))


@contextmanager
def contained(device: torch.device, threads: int | None) -> Iterator[None]:
    """Put back torch's random state and number of threads afterwards."""
    threads_before = torch.get_num_threads()
    devices, kind = ([], "cuda") if device.type == "cpu" else ([device.index], device.type)
    with torch.random.fork_rng(devices=devices, device_type=kind):
        try:
            if threads is not None:
                torch.set_num_threads(threads)
            yield
        finally:
            torch.set_num_threads(threads_before)
