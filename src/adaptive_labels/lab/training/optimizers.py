"""Optimizers by name, two where some gradients are sparse; clipping; an average of the weights."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from adaptive_labels.lab.config import TrainingConfig
from adaptive_labels.lab.objectives import Objective


def sparse_parameters(module: nn.Module) -> set[Tensor]:
    """The parameters that get sparse gradients: those held by a module whose `sparse` is True, as `nn.Embedding`'s."""
    held = (part for part in module.modules() if getattr(part, "sparse", False) is True)
    return {parameter for part in held for parameter in part.parameters(recurse=False)}


def make_optimizers(objective: Objective, config: TrainingConfig) -> list[Optimizer]:
    """The optimizer of a configuration for all parameters of an objective, or two; each group keeps its base rate.

    Sparse gradients are kept sparse: `SparseAdam` beside Adam and AdamW, and SGD without momentum beside SGD (the
    kinds that touch only the rows of the batch). Weight decay, which would touch every row, does not act on them.
    """
    assert config.lr is not None
    assert config.weight_decay is not None
    sparse = sparse_parameters(objective)
    dense_groups, sparse_groups = [], []
    for group in objective.parameter_groups(
        lr=config.lr,
        weight_decay=config.weight_decay,
        residual_lr=1.0 if config.residual_lr is None else config.residual_lr,
        residual_weight_decay=config.residual_weight_decay,
        decay_biases=config.decay_biases,
        bias_lr=config.bias_lr,
    ):
        constant = group.pop("criterion", False) and config.residual_schedule == "constant"
        shared = {"lr": group["lr"], "base_lr": group["lr"], "constant": constant}
        if dense := [parameter for parameter in group["params"] if parameter not in sparse]:
            dense_groups.append({**group, **shared, "params": dense})
        if rows := [parameter for parameter in group["params"] if parameter in sparse]:
            sparse_groups.append({**shared, "params": rows})
    members: list[Optimizer] = [_dense(dense_groups, config)] if dense_groups else []
    if sparse_groups:
        sgd = config.optimizer == "sgd"
        members.append(
            torch.optim.SGD(sparse_groups) if sgd else torch.optim.SparseAdam(sparse_groups, betas=config.betas)
        )
    return members


def _dense(groups: list[dict[str, Any]], config: TrainingConfig) -> Optimizer:
    # The fused kernels unscale 16-bit gradients inside the step, which would leave nothing to clip by before it.
    fused = config.precision != "16-mixed"
    if config.optimizer == "sgd":
        nesterov = config.nesterov and config.momentum > 0
        return torch.optim.SGD(groups, momentum=config.momentum, nesterov=nesterov, fused=fused)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, betas=config.betas, fused=fused)


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> None:
    """Scale all gradients, sparse ones too, so that their joint Euclidean norm is at most `max_norm`."""
    gradients = []
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            # Rows that appear twice must be added up before their length is taken.
            parameter.grad = parameter.grad.coalesce()
            gradients.append(parameter.grad.values())
        elif parameter.grad is not None:
            gradients.append(parameter.grad)
    norm = torch.nn.utils.get_total_norm(gradients, error_if_nonfinite=False)
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)


class WeightAverage:
    """Averages everything floating in a model's state, batch-norm statistics too; copies the rest.

        w̄ ← d·w̄ + (1 − d)·w,  d = min(decay, (1 + t) / (10 + t)) at the t-th update

    The smaller decay at the start keeps the random initial weights out of the average.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        names = {tensor: name for name, tensor in model.state_dict(keep_vars=True).items()}  # tied weights have one
        self._live: dict[str, Tensor] = {name: tensor.detach() for tensor, name in names.items()}
        self.average: dict[str, Tensor] = {name: tensor.clone() for name, tensor in self._live.items()}

    @torch.no_grad()
    def update(self) -> None:
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, average in self.average.items():
            if average.is_floating_point():
                average.lerp_(self._live[name], 1.0 - decay)
            else:
                average.copy_(self._live[name])

    @torch.no_grad()
    def exchange(self) -> None:
        """Give the model the averaged weights and keep its own in their place; a second call undoes it."""
        for name, average in self.average.items():
            live = self._live[name]
            own_weights = live.clone()
            live.copy_(average)
            average.copy_(own_weights)
