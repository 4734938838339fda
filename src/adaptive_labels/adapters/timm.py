"""A criterion in timm's task-based training.

``CriterionTask(model, criterion)`` replaces ``timm.task.ClassificationTask``, which does not train its criterion, so
that S would stay uniform. Here the trainable module is network and criterion, as in timm's feature distillation, so
that DDP, the optimizer, EMA and checkpoints include the criterion.

Written for timm 1.0.30. timm needs torchvision, which was not available: without timm, the tests use a stand-in with
the same interface.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from adaptive_labels.losses.base import Criterion

try:
    from timm.models import group_parameters
    from timm.task import TrainingTask
    from timm.utils import unwrap_model
except ImportError as error:
    raise ImportError(f"{error}; pip install 'adaptive-labels[timm]'") from error


class ModelAndCriterion(nn.Module):
    """The network and the criterion as one module: from inputs and targets to the loss and the logits."""

    def __init__(self, model: nn.Module, criterion: Criterion) -> None:
        super().__init__()
        self.model = model
        self.criterion = criterion

    def forward(self, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and the logits (N, K)."""
        output = self.model(input)
        return self.criterion(output, target), output

    def no_weight_decay(self) -> set[str]:
        """The parameters that timm's optimizers must not decay: those that the network names, and the criterion's."""
        names: set[str] = getattr(unwrap_model(self.model), "no_weight_decay", set)()
        own = () if self.criterion.like_network else self.criterion.named_parameters()
        return {f"model.{name}" for name in names} | {f"criterion.{name}" for name, _ in own}

    def group_matcher(self, coarse: bool = False) -> Callable[[str], int] | dict[str, Any]:
        """The layers for layer decay: those of the network; the criterion is in the last, at the full rate."""
        model = unwrap_model(self.model)
        if not hasattr(model, "group_matcher"):
            return {}
        layers = group_parameters(model, model.group_matcher(coarse=coarse), reverse=True)
        last = max(layers.values(), default=0)
        return lambda name: layers.get(name.removeprefix("model."), last)


class CriterionTask(TrainingTask):  # type: ignore[misc]
    """timm's classification with a criterion of this package, whose state it trains, saves and restores.

    Make the optimizer from ``task.get_trainable_module()``, and call ``task.epoch_end()`` after each training epoch.
    Micro-batches within ``task.no_sync()`` and the one after them are one step for the criterion. The
    ``state_dict`` of a checkpoint has the network only, so that timm's other scripts can read it; the criterion is in
    ``task_state``.

    Args:
        model: the network.
        criterion: any :class:`~adaptive_labels.losses.base.Criterion` that needs no teacher.
        device, dtype, verbose: see ``timm.task.TrainingTask``.
    """

    trainable_module: nn.Module

    def __init__(
        self,
        model: nn.Module,
        criterion: Criterion,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
        verbose: bool = True,
    ) -> None:
        if not isinstance(criterion, Criterion):
            raise TypeError(f"criterion must be one of adaptive_labels.losses, got {type(criterion).__name__}")
        if criterion.needs_guide:
            raise ValueError(f"{type(criterion).__name__} needs a teacher or peers, which this task does not have")
        super().__init__(device=device, dtype=dtype, verbose=verbose)
        self.trainable_module = ModelAndCriterion(model, criterion.to(self.device))
        self._step = ExitStack()
        self._in_step = False
        self._last_micro_batch = True

    @property
    def criterion(self) -> Criterion:
        """The criterion that is trained."""
        found: Criterion = unwrap_model(self.trainable_module).criterion
        return found

    def forward(self, input: Tensor, target: Tensor) -> dict[str, Tensor]:
        """The loss and the logits of a batch, as ``loss`` and ``output``."""
        loss, output = self.trainable_module(input, target)
        if self._in_step and self._last_micro_batch:
            self._step.close()
            self._in_step = False
        return {"loss": loss, "output": output}

    def epoch_end(self) -> None:
        """Tell the criterion that an epoch of training is over."""
        self.criterion.epoch_end()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """The context of a micro-batch that is not the last of its step."""
        if not self._in_step:
            self._step.enter_context(self.criterion.accumulation())
            self._in_step = True
        self._last_micro_batch = False
        try:
            with super().no_sync():
                yield
        finally:
            self._last_micro_batch = True

    def prepare_distributed(self, device_ids: list[Any] | None = None, **ddp_kwargs: Any) -> Self:
        """Wrap network and criterion in one ``DistributedDataParallel``."""
        self.trainable_module = DistributedDataParallel(self.trainable_module, device_ids=device_ids, **ddp_kwargs)
        return self

    def compile(self, backend: str = "inductor", mode: str | None = None, **compile_kwargs: Any) -> Any:
        """Compile the network. The criterion is not compiled, since it counts and communicates."""
        trained = unwrap_model(self.trainable_module)
        trained.model = torch.compile(trained.model, backend=backend, mode=mode, **compile_kwargs)
        self.eval_model = trained.model
        return self.eval_model

    def get_eval_model(self, module: nn.Module | None = None, ema: bool = False) -> nn.Module | None:
        """The network alone."""
        found: nn.Module | None = super().get_eval_model(module=module, ema=ema)
        trained = None if found is None else unwrap_model(found)
        return trained.model if isinstance(trained, ModelAndCriterion) else found

    def get_clip_parameters(self, exclude_head: bool = False) -> Iterable[nn.Parameter]:
        """The parameters whose gradients are clipped: the network's.

        Adaptive clipping allows a gradient in proportion to the parameter, so that S, which starts at 0, would stay
        there.
        """
        parameters = list(unwrap_model(self.trainable_module).model.parameters())
        return parameters[:-2] if exclude_head else parameters

    def get_task_state(self, module: nn.Module | None = None, ema: bool = False) -> dict[str, Any]:
        """The criterion's state, for the checkpoint."""
        module = self.get_trainable_module(ema=ema) if module is None else module
        return {} if module is None else {"criterion": unwrap_model(module).criterion.state_dict()}

    def load_task_state(
        self, state: dict[str, Any] | None, strict: bool = True, module: nn.Module | None = None, ema: bool = False
    ) -> None:
        """Restore the criterion from a checkpoint."""
        if not state or "criterion" not in state:
            if strict:
                raise ValueError(
                    "the checkpoint has no criterion in 'task_state': it was not written by CriterionTask. To start "
                    "from its network, load it as an initial checkpoint instead of resuming"
                )
            return
        module = self.get_trainable_module(ema=ema) if module is None else module
        if module is None:
            raise ValueError("call setup_ema() before the state of the EMA is loaded")
        unwrap_model(module).criterion.load_state_dict(state["criterion"], strict=strict)
