"""The state of a training run: built at its start, saved in checkpoints and restored from them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adaptive_labels.lab.config import ConfigError, TrainingConfig
from adaptive_labels.lab.objectives import Call, Inputs, Objective
from adaptive_labels.lab.training import checkpoints, processes
from adaptive_labels.lab.training.batches import ProcessSlice
from adaptive_labels.lab.training.optimizers import WeightAverage, clip_gradients, make_optimizers, sparse_parameters
from adaptive_labels.lab.training.precision import check_precision, choose_device, compiled
from adaptive_labels.lab.words import first_line

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
        self.objective = objective.to(self.device)
        if config.channels_last:
            for learner in objective.learners:
                learner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizers = make_optimizers(objective, config)
        self._parameters = list(objective.parameters())
        self._sparse = sparse_parameters(objective)
        self.own_draws = torch.Generator()  # what the networks of this process draw from, with several processes
        self._norms: list[processes.WholeBatchNorm] = []
        # Scales the loss, so that 16-bit gradients do not vanish; in any other precision it does nothing.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "16-mixed")
        self._compiled = {learner: compiled(learner) for learner in objective.learners} if config.compile else {}
        self.average = WeightAverage(nn.ModuleList(objective.learners), config.ema) if config.ema is not None else None
        self.history: list[dict[str, Any]] = []  # one record for each finished epoch, earlier sittings included
        self.seconds_before = 0.0  # spent before the run was interrupted
        self.within: dict[str, Any] | None = None  # where in an epoch the run goes on, and with which random states
        if processes.world() > 1:
            if config.sync_batchnorm and config.compile:
                raise ConfigError("training.sync_batchnorm and training.compile are both true: leave one of them off")
            if config.sync_batchnorm:
                self._norms = [norm for learner in objective.learners for norm in processes.share_batch_norm(learner)]
            objective.criterion.sees_whole_batches = True  # type: ignore[assignment]
            self.agree()

    def autocast(self) -> AbstractContextManager[object]:
        """A context in which forwards run in the configuration's precision."""
        dtype = _MIXED.get(self.config.precision)
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)

    def backward(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def set_rate_factor(self, factor: float) -> None:
        """Set every group's rate to its base rate times `factor`, unless the group is marked as constant."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                if not group["constant"]:
                    group["lr"] = group["base_lr"] * factor

    def step(self, notices: Sequence[float] = ()) -> Sequence[float]:
        """Clip, move every parameter, drop the gradients, and take the weights into the average.

        With several processes, the networks' gradients are summed first; so are the ``notices``, which come back.
        """
        if processes.world() > 1:
            networks = [p for learner in self.objective.learners for p in learner.parameters() if p.requires_grad]
            notices = processes.sum_gradients(networks, self._sparse, notices)
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
        return notices

    def caller(self, part: ProcessSlice, training: bool) -> Call:
        """How networks are called for a slice of a batch: compiled in training, and for all processes together.

        Evaluation is not compiled: its mode and its batch sizes would each be compiled again.
        """

        def call(network: nn.Module, inputs: Inputs) -> Tensor:
            forward = self._compiled.get(network, network) if training else network
            if len(part.sizes) == 1:
                logits: Tensor = forward(inputs)
                return logits
            for norm in self._norms:
                norm.rows = part.sizes[processes.rank()]
            # What networks draw is this process's own, so that the criteria of all processes draw the same.
            with forked_random_state(self.device):
                torch.manual_seed(int(torch.randint(2**62, (), generator=self.own_draws)))
                logits = forward(inputs)
            return processes.gather(logits if logits.dtype == torch.float64 else logits.float(), part.sizes)

        return call

    def agree(self) -> None:
        """Give all processes the weights and statistics of the first, which may differ in their last bits."""
        if processes.world() > 1:
            averages = self.average.average if self.average is not None else {}
            processes.share_state([*self.objective.state_dict().values(), *averages.values()])

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

    def save(
        self,
        folder: Path,
        seconds: float,
        recorded: Mapping[str, np.ndarray[Any, Any]] | None = None,
        within: Mapping[str, Any] | None = None,
        augmenting: torch.Generator | None = None,
    ) -> None:
        """Write a checkpoint after the last finished epoch and so many `seconds`, or within the next epoch.

        `recorded` are the recorder's arrays, to be recorded again if they are lost; `within` holds the "step" of the
        next epoch that is done and what belongs to it, and `augmenting` is the generator of that epoch's augmentation.
        """
        states = [optimizer.state_dict()["state"] for optimizer in self.optimizers]
        moments, plain_moments = checkpoints.split_optimizer_state(states)
        tensors = {f"objective/{name}": tensor for name, tensor in self.objective.state_dict().items()} | moments
        if self.average is not None:
            tensors |= {f"average/{name}": tensor for name, tensor in self.average.average.items()}
        tensors |= {f"recorded/{name}": torch.from_numpy(array) for name, array in (recorded or {}).items()}
        plain = {
            "history": self.history,
            "optimizer": plain_moments,
            "average_updates": self.average.updates if self.average is not None else 0,
            "precision": self.scaler.state_dict(),
            "seconds": seconds,
        }
        if within is not None and augmenting is not None:
            plain["within"] = within
            tensors |= {"random/augment": augmenting.get_state(), "random/cpu": torch.get_rng_state()}
            if self.device.type != "cpu":
                tensors["random/device"] = torch.get_device_module(self.device).get_rng_state(self.device)
        checkpoints.write_checkpoint(folder, len(self.history), tensors, plain, 0 if within is None else within["step"])

    def resume_epoch(self, augmenting: torch.Generator) -> dict[str, Any] | None:
        """Where the epoch that begins goes on, if it was begun before; random states are then as they were."""
        within, self.within = self.within, None
        if within is not None:
            states = within.pop("random")
            augmenting.set_state(states["augment"])
            torch.set_rng_state(states["cpu"])
            if self.device.type != "cpu" and "device" in states:
                torch.get_device_module(self.device).set_rng_state(states["device"], self.device)
        return within

    def restore(
        self, folder: Path, note: Callable[[str], None] = lambda words: None
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Take up the last whole checkpoint in a folder, if there is one; the recorder's arrays that it holds.

        `note` is given a sentence about each checkpoint that is damaged.
        """
        checkpoint = processes.from_first(lambda: checkpoints.read_checkpoint(folder, note))
        if checkpoint is None:
            return {}
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
            self.history, self.seconds_before = list(plain["history"]), float(plain["seconds"])
            if "within" in plain:
                self.within = {**plain["within"], "random": _under("random/", tensors)}
        except (RuntimeError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise checkpoints.CheckpointError(
                f"the checkpoint in {folder} belongs to another model, criterion or optimizer ({first_line(error)}): "
                "remove the folder to start again"
            ) from error
        return {name: tensor.numpy() for name, tensor in _under("recorded/", tensors).items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def derived_seed(seed: int, epoch: int, *stream: int) -> int:
    """A seed for one use in one epoch, so that an epoch's draws do not depend on how the run came to it."""
    return int(np.random.SeedSequence([seed, epoch, *stream]).generate_state(1, np.uint64)[0] >> np.uint64(1))


@contextmanager
def contained(device: torch.device, threads: int | None) -> Iterator[None]:
    """Set the number of threads, if one is given; put it and torch's random state back afterwards."""
    threads_before = torch.get_num_threads()
    with forked_random_state(device):
        try:
            if threads is not None:
                torch.set_num_threads(threads)
            yield
        finally:
            torch.set_num_threads(threads_before)


def forked_random_state(device: torch.device) -> AbstractContextManager[None]:
    """A context that puts torch's random state back, on the CPU and on a device."""
    devices, kind = ([], "cuda") if device.type == "cpu" else ([device.index], device.type)
    return torch.random.fork_rng(devices=devices, device_type=kind)
