"""One or more networks and a criterion in one module, to wrap, optimise and checkpoint as one."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Call", "Distilled", "Inputs", "Mutual", "Objective", "Refined", "Supervised"]

Inputs = Tensor | tuple[Tensor, ...]
Call = Callable[[nn.Module, Inputs], Tensor]
"""How a network is called: as several processes do, say, or compiled."""


def _directly(network: nn.Module, inputs: Inputs) -> Tensor:
    logits: Tensor = network(inputs)
    return logits


class Objective(nn.Module):
    """A network that predicts, `model`, and its criterion: `objective(inputs, target)` gives the loss and the logits.

    The criterion is plain cross entropy unless it is training with gradients on, so that `objective.eval()` or
    `torch.no_grad()` is all an evaluation needs. It may offer `parameter_groups(lr=…)`, `epoch_end()`, `parts`,
    `residual_labels()` and `accumulation()`; `torch.nn.CrossEntropyLoss`, which offers none of them, will do.
    """

    def __init__(self, model: nn.Module, criterion: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.criterion = criterion
        self.learners: tuple[nn.Module, ...] = (model,)  # the networks that are trained, the one that predicts first

    def forward(self, inputs: Inputs, target: Tensor, call: Call = _directly) -> tuple[Tensor, Tensor]:
        """The criterion's loss (a scalar) and the model's logits (N, K); networks are called by ``call``."""
        logits = call(self.model, inputs)
        return self.criterion(logits, target), logits

    @property
    def held_parameters(self) -> int:
        """How many parameters training holds: all networks, the criterion, and a teacher where there is one."""
        teacher: nn.Module | None = getattr(self, "teacher", None)
        return count_parameters(self) + (0 if teacher is None else count_parameters(teacher))

    @property
    def active(self) -> bool:
        """Whether a forward is one of training, in which teachers and peers are asked."""
        return self.training and torch.is_grad_enabled()

    def parameter_groups(
        self,
        *,
        lr: float,
        weight_decay: float,
        residual_lr: float = 1.0,
        residual_weight_decay: float = 0.0,
        decay_biases: bool = True,
        bias_lr: float = 1.0,
    ) -> list[dict[str, Any]]:
        """Optimizer groups: the networks' parameters, then the criterion's own, marked ``"criterion": True``.

        A criterion whose `like_network` is True has its parameters among the networks'.

        Args:
            lr: the networks' learning rate.
            weight_decay: on the networks' parameters.
            residual_lr: the criterion's rate as a multiple of `lr`.
            residual_weight_decay: on the criterion's own parameters.
            decay_biases: False leaves biases and normalisation weights (all that is one-dimensional) undecayed.
            bias_lr: their rate as a multiple of `lr`; they decay as fast as the weights all the same.
        """
        like_network = getattr(self.criterion, "like_network", False)
        modules = (*self.learners, self.criterion) if like_network else self.learners
        trained = _trained(parameter for module in modules for parameter in module.parameters())
        apart = bias_lr != 1.0 or not decay_biases
        factors = _lr_factors(modules)
        groups: list[dict[str, Any]] = []
        for factor in dict.fromkeys(factors.get(parameter, 1.0) for parameter in trained):
            own = [parameter for parameter in trained if factors.get(parameter, 1.0) == factor]
            biases = [parameter for parameter in own if apart and parameter.ndim <= 1]
            weights = [parameter for parameter in own if not apart or parameter.ndim > 1]
            decay = weight_decay / bias_lr if decay_biases else 0.0
            groups.append({"params": weights, "lr": factor * lr, "weight_decay": weight_decay})
            groups.append({"params": biases, "lr": factor * lr * bias_lr, "weight_decay": decay})
        if not like_network:
            offer = getattr(self.criterion, "parameter_groups", None)
            rate = lr * residual_lr
            for group in offer(lr=rate) if offer else [{"params": self.criterion.parameters()}]:
                fixed = {"weight_decay": residual_weight_decay, "params": _trained(group["params"]), "criterion": True}
                groups.append({"lr": rate, **group, **fixed})
        return [group for group in groups if group["params"]]

    def clipped_together(self) -> Iterable[Iterable[Tensor]]:
        """The parameters whose gradients have one norm when they are clipped."""
        return [self.parameters()]

    def epoch_end(self) -> None:
        getattr(self.criterion, "epoch_end", lambda: None)()

    @property
    def parts(self) -> dict[str, Tensor]:
        """The scalar parts of the last loss, detached; empty if the criterion names none."""
        parts: dict[str, Tensor] = getattr(self.criterion, "parts", {})
        # Those that are detached scalars stay as they are: beside a small network, each operation can be felt.
        scalars = [(name, part) for name, part in parts.items() if part.numel() == 1]
        return {name: part.detach().reshape(()) if part.requires_grad or part.dim() else part for name, part in scalars}

    def accumulation(self) -> AbstractContextManager[object]:
        """A context in which several forwards count as one optimizer step for the criterion's own state."""
        context: AbstractContextManager[object] = getattr(self.criterion, "accumulation", nullcontext)()
        return context

    def residual_labels(self) -> Tensor | None:
        """The criterion's class similarities (K, K), detached, or None if it learns none."""
        labels = getattr(self.criterion, "residual_labels", None)
        return None if labels is None else labels().detach()


def _lr_factors(modules: Iterable[nn.Module]) -> dict[Tensor, float]:
    """The rate of each parameter as a multiple of `lr`, if its module has an `lr_factor`, as pretrained encoders do."""
    parts = [(part, getattr(part, "lr_factor", None)) for module in modules for part in module.modules()]
    return {parameter: factor for part, factor in parts if factor is not None for parameter in part.parameters()}


def _trained(parameters: Iterable[Tensor]) -> list[Tensor]:
    return [parameter for parameter in parameters if parameter.requires_grad]


class Supervised(Objective):
    """A model trained on labels."""


class _Taught(Objective):
    """A model beside a frozen teacher, which is asked about every training batch as it is, augmentation included.

    The teacher is no part of the module's state: it is never optimised, its mode never changes, and a checkpoint does
    not repeat it. It moves along to another device.
    """

    teacher: nn.Module

    def __init__(self, model: nn.Module, criterion: nn.Module, teacher: nn.Module) -> None:
        super().__init__(model, criterion)
        # Past nn.Module's own bookkeeping, which would make it a part.
        self.__dict__["teacher"] = teacher.requires_grad_(False).eval()

    @torch.no_grad()
    def ask(self, inputs: Inputs, call: Call) -> Tensor:
        return call(self.teacher, inputs)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self.teacher._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]


class Distilled(_Taught):
    """Knowledge distillation: the criterion gets labels, and the teacher's logits."""

    def forward(self, inputs: Inputs, target: Tensor, call: Call = _directly) -> tuple[Tensor, Tensor]:
        logits = call(self.model, inputs)
        teacher_logits = {"teacher_logits": self.ask(inputs, call)} if self.active else {}
        return self.criterion(logits, target, **teacher_logits), logits


class Refined(_Taught):
    """Label refinery: the teacher's probabilities for the same inputs take the place of the labels.

    The cross entropy with the teacher's probabilities q differs from the original's KL(q ‖ p) by the entropy of q,
    which no gradient sees.
    """

    def forward(self, inputs: Inputs, target: Tensor, call: Call = _directly) -> tuple[Tensor, Tensor]:
        """The loss (a scalar) and the model's logits (N, K); labels count in evaluation only."""
        logits = call(self.model, inputs)
        if self.active:
            teacher_logits = self.ask(inputs, call)
            target = teacher_logits.softmax(1, dtype=torch.promote_types(teacher_logits.dtype, torch.float32))
        return self.criterion(logits, target), logits


class Mutual(Objective):
    r"""Deep mutual learning: networks that learn from labels and from each other, on the same batches.

    .. math:: L = \sum_i \Big( CE(z^i, y) + \frac{1}{M-1} \sum_{j \ne i} KL(p^j \| p^i) \Big)

    for M networks, where p^j is a constant: the gradient of network i is that of its own term. So one optimizer over
    all networks moves each as an optimizer of its own would; only clipping looks at many numbers at once, and is done
    by network. All networks step at once; in the original (algorithm 1) they take turns, and the later ones see the
    earlier ones' new predictions on the batch.

    The first network predicts, and evaluation is of it alone.
    """

    def __init__(self, models: Sequence[nn.Module], criterion: nn.Module) -> None:
        if len(models) < 2:
            raise ValueError(f"models has {len(models)} entries; mutual learning needs at least 2")
        super().__init__(models[0], criterion)
        self.others = nn.ModuleList(models[1:])
        self.learners = tuple(models)
        self._parts: dict[str, Tensor] = {}

    def forward(self, inputs: Inputs, target: Tensor, call: Call = _directly) -> tuple[Tensor, Tensor]:
        """The sum of the networks' losses (a scalar), and the first network's logits (N, K)."""
        if not self.active:
            return super().forward(inputs, target, call)
        every = [call(learner, inputs) for learner in self.learners]
        losses, parts = [], []
        for number, own in enumerate(every):
            peers = [logits.detach() for other, logits in enumerate(every) if other != number]
            losses.append(self.criterion(own, target, teacher_logits=peers))
            parts.append(super().parts)
        self._parts = {name: torch.stack([part[name] for part in parts]).mean() for name in parts[0]}
        return torch.stack(losses).sum(), every[0]

    @property
    def parts(self) -> dict[str, Tensor]:
        """The scalar parts of the last loss, each the mean over the networks."""
        return self._parts

    def clipped_together(self) -> Iterable[Iterable[Tensor]]:
        """Each network's parameters by themselves."""
        return [learner.parameters() for learner in self.learners]


def count_parameters(module: nn.Module) -> int:
    """How many numbers a network or a criterion learns; residual labels count, also where they move themselves."""
    moved = [buffer for name, buffer in module.named_buffers() if name.rpartition(".")[2].startswith("residual_")]
    return sum(tensor.numel() for tensor in (*module.parameters(), *moved))
