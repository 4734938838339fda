"""A criterion in Hugging Face's Trainer: a loss function, and a callback that keeps the criterion's state.

``CriterionTrainer(model, args, criterion=criterion, …)`` stands for::

    Trainer(
        model, args, compute_loss_func=loss_function(criterion), callbacks=[CriterionCallback(criterion)], …
    )

Shapes: logits (N, K), or (N, T, K) for token classification; labels (N,) or (N, T) with −100 for ignored ones, or
class probabilities in the shape of the logits.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adaptive_labels.adapters.module import check_criterion, check_optimized
from adaptive_labels.losses.base import Criterion

try:
    from safetensors.torch import load, save
    from transformers import Trainer, TrainerCallback, TrainerState, __version__
    from transformers.trainer import TRAINER_STATE_NAME
    from transformers.trainer_callback import ExportableState
except ImportError as error:
    raise ImportError(f"{error}; pip install 'adaptive-labels[transformers]'") from error


def loss_function(criterion: Criterion) -> Callable[[Any, Tensor, Any], Tensor]:
    """A function for ``Trainer(compute_loss_func=…)``; the trainer needs ``CriterionCallback(criterion)``, too.

    The loss is the sum over the labels divided by the number of labels that ``Trainer`` counted: those of the whole
    accumulated batch of all processes. Class weights multiply the samples' losses. In evaluation it is cross entropy.
    """
    check_criterion(criterion)

    def loss_of(outputs: Any, labels: Tensor | None, num_items_in_batch: Any) -> Tensor:
        if labels is None:
            raise ValueError("a batch has no 'labels': the data collator must keep them")
        training = torch.is_grad_enabled()
        if training and not criterion._accumulating:
            raise ValueError("Trainer needs callbacks=[CriterionCallback(criterion)] besides loss_function(criterion)")
        if training and num_items_in_batch is None:
            raise ValueError(f"Transformers {__version__} did not count the labels of the batch: use 4.47 or newer")
        logits: Tensor = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        soft = labels.shape == logits.shape
        rows, target = logits.flatten(0, -2), labels.flatten(0, -2) if soft else labels.flatten()
        criterion.to(logits.device)
        if num_items_in_batch is None:
            return criterion(rows, target)  # type: ignore[no-any-return]
        # Trainer counts every entry of a row of class probabilities.
        count = torch.as_tensor(num_items_in_batch, device=logits.device) / (logits.shape[-1] if soft else 1)
        criterion.reduction = "sum"
        try:
            return criterion(rows, target) / count.clamp(min=1)  # type: ignore[no-any-return]
        finally:
            criterion.reduction = "mean"

    return loss_of


class CriterionCallback(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Tells the criterion when steps and epochs end, and keeps its state in each checkpoint's ``trainer_state.json``.

    A resumed run continues from there; a checkpoint without the criterion is refused. The micro-batches of an optimizer
    step count as one step of the criterion.
    """

    def __init__(self, criterion: Criterion) -> None:
        self.criterion = check_criterion(criterion)
        self._epochs_ended = 0
        self._step = ExitStack()
        missing = [name for name in vars(type(self)) if name.startswith("on_") and not hasattr(TrainerCallback, name)]
        if missing:
            raise RuntimeError(
                f"Transformers {__version__} has no callback {missing[0]}, which CriterionCallback needs"
            )

    def state(self) -> dict[str, Any]:
        """The criterion's state as JSON, for ``Trainer``."""
        tensors = {name: value.contiguous() for name, value in self.criterion.state_dict().items()}
        return {
            "args": {},
            "attributes": {},
            "criterion": b64encode(save(tensors)).decode("ascii"),
            "epochs_ended": self._epochs_ended,
        }

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Check what this class relies on, and continue from the checkpoint if there is one."""
        for name, only in (("label_smoothing_factor", 0), ("restore_callback_states_from_checkpoint", False)):
            if getattr(args, name) != only:
                raise ValueError(f"{name} must be {only} with CriterionCallback, got {getattr(args, name)}")
        if state.is_hyper_param_search:
            raise ValueError("hyperparameter_search would train one criterion in all trials: make a trainer per trial")
        check_optimized(self.criterion, kwargs["optimizer"].param_groups)
        self._epochs_ended = 0
        if state.global_step:
            self._restore(state)
            if self._epochs_ended < int(state.epoch):  # saved by the epoch's last step, before the epoch's end
                self.on_epoch_end()
        elif not isinstance(state.stateful_callbacks.get(type(self).__name__), dict):
            raise RuntimeError(f"Transformers {__version__} does not save the state of exactly one CriterionCallback")

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        """The first micro-batch of an optimizer step follows."""
        self._step.close()
        self._step.enter_context(self.criterion.accumulation())

    def on_pre_optimizer_step(self, args: Any, *others: Any, **kwargs: Any) -> None:
        """The last micro-batch is done; gradients of the criterion are outside of the model that DDP wraps."""
        if args.world_size > 1:
            self.criterion.sync()
        self._step.close()

    def on_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """``Trainer`` clears the gradients of the model only."""
        self.criterion.zero_grad()

    def on_epoch_end(self, *args: Any, **kwargs: Any) -> None:
        """An epoch has ended."""
        self.criterion.epoch_end()
        self._epochs_ended += 1

    def on_train_end(self, args: Any, state: Any, *others: Any, **kwargs: Any) -> None:
        """With ``load_best_model_at_end`` the criterion is the best checkpoint's, too."""
        self._step.close()
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            self._restore(TrainerState.load_from_json(str(Path(state.best_model_checkpoint) / TRAINER_STATE_NAME)))

    def _restore(self, state: Any) -> None:
        saved = state.stateful_callbacks.get(type(self).__name__)
        if saved is None:
            raise ValueError("the checkpoint has no criterion: it was written without CriterionCallback")
        self.criterion.load_state_dict(load(b64decode(saved["criterion"])))
        self._epochs_ended = saved["epochs_ended"]


class CriterionTrainer(Trainer):  # type: ignore[misc]
    """Hugging Face's ``Trainer`` with a criterion of this package.

    Args:
        *args, **kwargs: those of ``Trainer`` except ``compute_loss_func``.
        criterion: any criterion that needs no teacher. Parameters that it trains join the optimizer.
    """

    def __init__(self, *args: Any, criterion: Criterion, callbacks: list[Any] | None = None, **kwargs: Any) -> None:
        callbacks = [*(callbacks or []), CriterionCallback(criterion)]
        super().__init__(*args, compute_loss_func=loss_function(criterion), callbacks=callbacks, **kwargs)
        self.criterion = criterion

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """The optimizer of ``Trainer``, with the criterion's parameters if it trains any."""
        optimizer: torch.optim.Optimizer = super().create_optimizer(*args, **kwargs)
        known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for group in self.criterion.parameter_groups():
            if not known.intersection(map(id, group["params"])):  # it is called once more for a second train()
                optimizer.add_param_group({"weight_decay": self.args.weight_decay, **group})
        return optimizer
