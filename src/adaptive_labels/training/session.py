"""The moving parts of a training run: what is built at its start, and saved and restored between epochs."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adaptive_labels.config import ConfigError, TrainingConfig
from adaptive_labels.objectives import Objective
from adaptive_labels.training import checkpoints
from adaptive_labels.training.optimizers import WeightAverage, clip_gradients, make_optimizers
from adaptive_labels.training.precision import check_compiler, check_precision, choose_device, compiled_forward

_MIXED = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


class Session:
    """An objective set up for training on a device, with its optimizers and its history."""

    def __init__(self, objective: Objective, config: TrainingConfig) -> None:
        for name in ("epochs", "batch_size", "optimizer", "lr", "weight_decay", "schedule"):
            if getattr(config, name) is None:
                raise ConfigError(f"training.{name} is not given: a configuration is resolved before it is trained")
        self.config = config
        self.device = choose_device(config.device)
        check_precision(config.precision, self.device)
        if config.compile:
            check_compiler(self.device)
        self.objective = objective.to(self.device)
        if config.channels_last:
            for learner in objective.learners:
                learner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizers = make_optimizers(objective, config)
        self._parameters = list(objective.parameters())
        # Scales the loss, so that 16-bit gradients do not vanish; in any other precision it does nothing.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "16-mixed")
        self._compiled = [compiled_forward(learner) for learner in objective.learners] if config.compile else []
        self.average = WeightAverage(nn.ModuleList(objective.learners), config.ema) if config.ema is not None else None
        self.history: list[dict[str, Any]] = []  # one record for each finished epoch, earlier sittings included
        self.seconds_before = 0.0  # spent on the finished epochs, before the run was interrupted

    def autocast(self) -> AbstractContextManager[object]:
        """A context in which forwards run in the configuration's precision."""
        dtype = _MIXED.get(self.config.precision)
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)

    def backward(self, loss: Tensor) -> None:
        """Add a loss's gradients to the parameters'."""
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def set_rate_factor(self, factor: float) -> None:
        """Set every group's rate to its base rate times `factor`, unless the group is marked as constant."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                if not group["constant"]:
                    group["lr"] = group["base_lr"] * factor

    def step(self) -> None:
        """Clip, move every parameter, drop the gradients, and take the weights into the average."""
        if self.config.clip_norm is not None:
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)
            for parameters in self.objective.clipped_together():
                clip_gradients(parameters, self.config.clip_norm)
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
        self.scaler.update()
        for parameter in self._parameters:
            parameter.grad = None
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

    @contextmanager
    def evaluated_weights(self) -> Iterator[None]:
        """A context with the weights that count: the average, where one is kept."""
        if self.average is None:
            yield
            return
        self.average.exchange()
        try:
            yield
        finally:
            self.average.exchange()

    @torch.no_grad()
    def weights_are_finite(self) -> bool:
        """Whether no parameter, the criterion's included, holds a NaN or an infinity."""
        parameters = list(self.objective.parameters())
        sums = [parameter.sum(dtype=torch.float32) for parameter in parameters]
        if not sums or bool(torch.stack(sums).isfinite().all()):
            return True  # a NaN or an infinity would be in its sum, which needs no mask as large as the weights
        return all(bool(torch.isfinite(parameter).all()) for parameter in parameters)

    def save(self, folder: Path, seconds: float) -> None:
        """Write a checkpoint of the last finished epoch; `seconds` is what the run has taken up to here."""
        states = [optimizer.state_dict()["state"] for optimizer in self.optimizers]
        moments, plain_moments = checkpoints.split_optimizer_state(states)
        tensors = {f"objective/{name}": tensor for name, tensor in self.objective.state_dict().items()} | moments
        if self.average is not None:
            tensors |= {f"average/{name}": tensor for name, tensor in self.average.average.items()}
        plain = {
            "history": self.history,
            "optimizer": plain_moments,
            "average_updates": self.average.updates if self.average is not None else 0,
            "precision": self.scaler.state_dict(),
            "seconds": seconds,
        }
        checkpoints.write_checkpoint(folder, len(self.history), tensors, plain)

    def restore(self, folder: Path) -> None:
        """Take up the checkpoint in a folder, if there is one."""
        checkpoint = checkpoints.read_checkpoint(folder)
        if checkpoint is None:
            return
        _, tensors, plain = checkpoint
        try:
            self.objective.load_state_dict(_under("objective/", tensors))
            states = checkpoints.join_optimizer_state(tensors, plain["optimizer"])
            for optimizer, state in zip(self.optimizers, states, strict=True):
                # Hyper-parameters belong to the configuration and are not in a checkpoint.
                optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
            if self.average is not None:
                saved = _under("average/", tensors)
                for name, average in self.average.average.items():
                    average.copy_(saved[name])
                self.average.updates = plain["average_updates"]
            if plain["precision"]:
                self.scaler.load_state_dict(plain["precision"])
            self.history = list(plain["history"])
        except (RuntimeError, ValueError, KeyError, IndexError) as error:
            first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise checkpoints.CheckpointError(
                f"the checkpoint in {folder} belongs to another model, criterion or optimizer ({first_line}): "
                "remove the folder to start again"
            ) from error
        # Checkpoints of earlier versions do not say it.
        self.seconds_before = plain.get("seconds", sum(record["seconds"] for record in self.history))


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def derived_seed(seed: int, epoch: int, stream: int) -> int:
    """A seed for one use in one epoch, so that an epoch's draws do not depend on how the run came to it."""
    return int(np.random.SeedSequence([seed, epoch, stream]).generate_state(1, np.uint64)[0] >> np.uint64(1))


@contextmanager
def contained(device: torch.device, threads: int | None) -> Iterator[None]:
    """Set the number of threads, if one is given; put it and torch's random state back afterwards."""
    threads_before = torch.get_num_threads()
    devices, kind = ([], "cuda") if device.type == "cpu" else ([device.index], device.type)
    with torch.random.fork_rng(devices=devices, device_type=kind):
        try:
            if threads is not None:
                torch.set_num_threads(threads)
            yield
        finally:
            torch.set_num_threads(threads_before)


@contextmanager
def remembered_interrupts() -> Iterator[Callable[[], None]]:
    """A context that yields a function to be called now and then: it raises what Ctrl-C should have raised.

    Ctrl-C raises at once, as ever. But Python prints and drops what is raised in a finaliser or around a fork, as when
    a `DataLoader` starts its workers, and the run would go on as if nobody had asked it to stop.
    """
    asked = False
    before = signal.getsignal(signal.SIGINT)
    # Only the main thread may set a handler; where Ctrl-C is ignored, as in a comparison's workers, it stays so.
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        before(number, frame)

    def check() -> None:
        if asked:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)
