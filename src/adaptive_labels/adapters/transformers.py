"""A criterion in Hugging Face's Trainer.

Use ``CriterionTrainer(model, args, criterion=AdaptiveLabelLoss(K), …)`` in the place of ``Trainer``. If you cannot
change the trainer's class, pass ``loss_function(criterion)`` as ``compute_loss_func``.

Shapes: logits (N, K), or (N, T, K) for token classification; labels (N,) or (N, T) with −100 for ignored ones, or
class probabilities in the shape of the logits.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adaptive_labels.losses.base import Criterion
from adaptive_labels.losses.batch import WholeStep, number
from adaptive_labels.losses.targets import is_index

try:
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
    from transformers import Trainer, TrainerCallback, TrainerState
except ImportError as error:
    raise ImportError(f"{error}; pip install 'adaptive-labels[transformers]'") from error

CRITERION_FILE = "criterion.safetensors"


class CriterionTrainer(Trainer):  # type: ignore[misc]
    """Hugging Face's ``Trainer`` with a criterion of this package, whose state it trains, saves and restores.

    The loss is the criterion's mean over the whole accumulated batch of all processes, soft labels and class weights
    included. The criterion's parameters are a group of the optimizer without weight decay. Each checkpoint has a file
    ``criterion.safetensors``, from which a resumed run continues. In evaluation the loss is plain cross entropy.

    Args:
        *args, **kwargs: those of ``Trainer``. Leave ``label_smoothing_factor`` at 0, and ``compute_loss_func`` out.
        criterion: any :class:`~adaptive_labels.losses.base.Criterion` that needs no teacher.
        criterion_lr: the rate of the criterion's parameters. At the usual rates of pretrained networks (2e-5), S would
            hardly move from its start. The schedule applies to this rate, too.
        log_confusions: log the ``n`` largest residual labels at the end of each epoch, as ``confusion/A→B``.
    """

    criterion: Criterion

    def __init__(
        self, *args: Any, criterion: Criterion, criterion_lr: float = 0.01, log_confusions: int = 0, **kwargs: Any
    ) -> None:
        if not isinstance(criterion, Criterion):
            raise TypeError(f"criterion must be one of adaptive_labels.losses, got {type(criterion).__name__}")
        if criterion.needs_guide:
            raise ValueError(f"{type(criterion).__name__} needs a teacher or peers, which Trainer does not have")
        if criterion.reduction != "mean":
            raise ValueError(f"criterion must have reduction='mean', got {criterion.reduction!r}")
        if kwargs.get("compute_loss_func") is not None:
            raise ValueError("compute_loss_func and criterion are two losses: leave compute_loss_func away")
        settings = kwargs.get("args", args[1] if len(args) > 1 else None)
        if getattr(settings, "label_smoothing_factor", 0):
            raise ValueError("label_smoothing_factor must be 0: give label_smoothing to the criterion instead")
        # That there is one tells every version of Trainer that the loss is normalised over the whole step already.
        kwargs["compute_loss_func"] = criterion
        super().__init__(*args, **kwargs)
        self.criterion = criterion.to(self.args.device)
        self.criterion_lr = criterion_lr
        self.log_confusions = log_confusions
        self.add_callback(_EndOfEpoch(self))
        self._epochs_ended = 0
        self._step = ExitStack()
        self._micro_batches_left = 0

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """The optimizer of ``Trainer`` and a group for the criterion's parameters.

        Those that are trained as the network's are get the decay of the arguments, which is not the optimizer's own.
        """
        optimizer: torch.optim.Optimizer = super().create_optimizer(*args, **kwargs)
        known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for group in self.criterion.parameter_groups(lr=None if self.criterion.like_network else self.criterion_lr):
            if not known.intersection(map(id, group["params"])):
                optimizer.add_param_group({"weight_decay": self.args.weight_decay, **group})
        return optimizer

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], Any]:
        """The micro-batches of the next optimizer step; the criterion is told their totals."""
        batches, count = super().get_batch_samples(*args, **kwargs)
        self._step.close()
        self.criterion.zero_grad()  # Trainer clears the gradients of the model only
        self._step.enter_context(self.criterion.accumulation([_labels_of(batch) for batch in batches]))
        self._micro_batches_left = len(batches)
        return batches, count

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Train on one micro-batch. After the last one, the criterion's state is made the same in all processes."""
        super().training_step(*args, **kwargs)
        self._micro_batches_left -= 1
        if self._micro_batches_left == 0:
            if self.args.world_size > 1:
                self.criterion.sync()
            self._step.close()
        return self._loss  # some versions of Trainer report it divided by the number of micro-batches

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The criterion of the model's logits and the labels."""
        labels = _labels_of(inputs)
        outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
        self.criterion.train(model.training)
        loss: Tensor = self.criterion(*_rows(_logits_of(outputs), labels))
        self._loss = loss.detach()
        return (loss, outputs) if return_outputs else loss

    def _save_checkpoint(self, model: nn.Module, trial: Any, **kwargs: Any) -> None:
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
            folder.mkdir(parents=True, exist_ok=True)
            state = {name: value.contiguous() for name, value in self.criterion.state_dict().items()}
            save_file(state, folder / CRITERION_FILE, metadata={"epochs_ended": str(self._epochs_ended)})
        super()._save_checkpoint(model, trial, **kwargs)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            self._load_criterion(Path(checkpoint))
            state = TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))
            if self._epochs_ended < int(state.epoch):  # saved by the epoch's last step, before the epoch's end
                self.end_epoch()
        super()._load_optimizer_and_scheduler(checkpoint)

    def _load_best_model(self) -> None:
        super()._load_best_model()
        self._load_criterion(Path(self.state.best_model_checkpoint))

    def _load_criterion(self, checkpoint: Path) -> None:
        path = checkpoint / CRITERION_FILE
        if not path.is_file():
            raise ValueError(f"{checkpoint} has no {CRITERION_FILE}: it was not written by CriterionTrainer")
        with safe_open(path, "pt") as file:
            self._epochs_ended = int(file.metadata()["epochs_ended"])
        self.criterion.load_state_dict(load_file(path, device=str(self.args.device)))

    def end_epoch(self) -> None:
        """Tell the criterion that an epoch is over, and log its largest residual labels if they are asked for."""
        self.criterion.epoch_end()
        self._epochs_ended += 1
        most_confused = getattr(self.criterion, "most_confused", None)
        if self.log_confusions and most_confused is not None:
            names = getattr(getattr(self.model, "config", None), "id2label", None) or {}
            found = most_confused(self.log_confusions)
            name = {entry: names.get(entry, entry) for pair in found for entry in pair[:2]}
            self.log({f"confusion/{name[one.label]}→{name[one.taken_for]}": one.probability for one in found})


class _EndOfEpoch(TrainerCallback):  # type: ignore[misc]
    def __init__(self, trainer: CriterionTrainer) -> None:
        self.trainer = trainer

    def on_epoch_end(self, *args: Any, **kwargs: Any) -> None:
        self.trainer.end_epoch()


def loss_function(criterion: Criterion) -> Callable[..., Tensor]:
    """A function for ``Trainer(compute_loss_func=…)``: the criterion, normalised as ``Trainer`` expects.

    ``Trainer`` counts the labels of the whole accumulated batch; the loss is the sum over them divided by that count
    (class weights multiply the samples' losses). A plain ``Trainer`` does not train or save the criterion's parameters:
    let the criterion move S itself (``update="self"``), and save ``criterion.state_dict()``.
    """

    def loss_of(outputs: Any, labels: Tensor, num_items_in_batch: Any = None, **kwargs: Any) -> Tensor:
        logits, target = _rows(_logits_of(outputs), labels)
        criterion.train(logits.requires_grad)
        if num_items_in_batch is None:
            return criterion(logits, target)  # type: ignore[no-any-return]
        count = number(torch.as_tensor(num_items_in_batch)) / (1 if is_index(target) else logits.shape[-1])
        criterion._whole = WholeStep(count, count, None, 1)
        try:
            return criterion(logits, target)  # type: ignore[no-any-return]
        finally:
            criterion._whole = None

    return loss_of


def _labels_of(inputs: dict[str, Any]) -> Tensor:
    labels = inputs.get("labels")
    if labels is None:
        raise ValueError(f"a batch has no 'labels', only {', '.join(inputs)}: the data collator must keep them")
    return torch.as_tensor(labels)


def _logits_of(outputs: Any) -> Tensor:
    logits: Tensor = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
    return logits


def _rows(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(N, T, K) → (N·T, K), and the labels with them."""
    return logits.flatten(0, -2), labels.flatten(0, -2) if labels.shape == logits.shape else labels.flatten()
