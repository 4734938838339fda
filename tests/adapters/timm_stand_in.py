"""The part of timm 1.0.30 that CriterionTask stands on, for machines where timm cannot be imported (no torchvision).

Written from its published contract: names, arguments and what is called when; not its code. ``install()`` does nothing
where timm itself can be imported.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import nullcontext
from copy import deepcopy
from types import ModuleType
from typing import Any

import torch
from torch import nn


def unwrap_model(model: Any) -> Any:
    for wrapped in ("module", "_orig_mod"):
        if hasattr(model, wrapped):
            return unwrap_model(getattr(model, wrapped))
    return model


class ModelEma(nn.Module):
    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.module, self.decay = deepcopy(model).eval(), decay

    @torch.no_grad()
    def update(self, model: nn.Module, step: int | None = None) -> None:
        for mean, value in zip(self.module.state_dict().values(), model.state_dict().values(), strict=True):
            mean.lerp_(value, 1 - self.decay)

    def forward(self, *args: Any) -> Any:
        return self.module(*args)


class TrainingTask(nn.Module):
    def __init__(self, device: Any = None, dtype: Any = None, verbose: bool = True) -> None:
        super().__init__()
        self.device = torch.device("cpu") if device is None else device
        self.dtype = torch.get_default_dtype() if dtype is None else dtype
        self.verbose = verbose

    def get_trainable_module(self, ema: bool = False) -> Any:
        return getattr(self, "trainable_module_ema", None) if ema else self.trainable_module

    def setup_ema(self, decay: float = 0.9999, **kwargs: Any) -> nn.Module:
        self.trainable_module_ema = ModelEma(self.get_trainable_module(), decay)
        return self.trainable_module_ema

    def has_ema(self) -> bool:
        return self.get_trainable_module(ema=True) is not None

    def update_ema(self, step: int | None = None) -> None:
        if self.has_ema():
            self.get_trainable_module(ema=True).update(unwrap_model(self.get_trainable_module()), step=step)

    def get_eval_model(self, module: Any = None, ema: bool = False) -> Any:
        compiled = "eval_model_ema" if ema else "eval_model"
        if module is None and hasattr(self, compiled):
            return getattr(self, compiled)
        return self.get_trainable_module(ema=ema) if module is None else module

    def get_checkpoint_state(self, ema: bool = False, unwrap_fn: Any = unwrap_model) -> dict[str, Any]:
        model = self.get_eval_model(ema=ema)
        if model is None:
            return {}
        end = "_ema" if ema else ""
        state, task_state = unwrap_fn(model).state_dict(), self.get_task_state(ema=ema)
        return {f"state_dict{end}": state} | ({f"task_state{end}": task_state} if task_state else {})

    def load_checkpoint_state(
        self, state_dict: dict[str, Any], task_state: Any = None, ema: bool = False, strict: bool = True
    ) -> None:
        unwrap_model(self.get_eval_model(ema=ema)).load_state_dict(state_dict, strict=strict)
        self.load_task_state(task_state, strict=strict, ema=ema)

    def no_sync(self) -> Any:
        module = self.get_trainable_module()
        return module.no_sync() if hasattr(module, "no_sync") else nullcontext()


class ClassificationTask(TrainingTask):
    def __init__(
        self, model: nn.Module, criterion: Any, device: Any = None, dtype: Any = None, verbose: bool = True
    ) -> None:
        super().__init__(device=device, dtype=dtype, verbose=verbose)
        self.trainable_module, self.criterion = model, criterion.to(self.device)

    def prepare_distributed(self, device_ids: Any = None, **kwargs: Any) -> ClassificationTask:
        self.trainable_module = nn.parallel.DistributedDataParallel(self.trainable_module, device_ids, **kwargs)
        return self

    def forward(self, input: Any, target: Any) -> dict[str, Any]:
        output = self.trainable_module(input)
        return {"loss": self.criterion(output, target), "output": output}


def create_optimizer_v2(
    model: nn.Module, opt: str, lr: float, weight_decay: float, momentum: float = 0.9
) -> torch.optim.Optimizer:
    assert opt == "momentum"
    groups = [
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": weight_decay},
    ]
    return torch.optim.SGD(groups, lr=lr, momentum=momentum)


class CheckpointSaver:
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, task: TrainingTask) -> None:
        self.optimizer, self.task = optimizer, task

    def _save(self, save_path: Any, epoch: int) -> None:
        state = {"epoch": epoch, "optimizer": self.optimizer.state_dict(), "version": 2}
        torch.save(state | self.task.get_checkpoint_state() | self.task.get_checkpoint_state(ema=True), save_path)


def resume_task_checkpoint(task: TrainingTask, checkpoint_path: Any, optimizer: Any = None) -> int:
    found = torch.load(checkpoint_path, weights_only=True)
    task.load_checkpoint_state(found["state_dict"], found.get("task_state"))
    if optimizer is not None:
        optimizer.load_state_dict(found["optimizer"])
    return int(found["epoch"]) + 1


def load_task_ema_checkpoint(task: TrainingTask, checkpoint_path: Any) -> None:
    found = torch.load(checkpoint_path, weights_only=True)
    task.load_checkpoint_state(found["state_dict_ema"], found.get("task_state_ema"), ema=True)


PARTS = {
    "timm.task": (ClassificationTask, resume_task_checkpoint, load_task_ema_checkpoint),
    "timm.utils": (unwrap_model, CheckpointSaver),
    "timm.optim": (create_optimizer_v2,),
}


def install() -> list[str]:
    """Make ``import timm…`` find the stand-in, unless it finds timm; the names that were added to ``sys.modules``."""
    try:
        importlib.import_module("timm.task")
    except ImportError:
        pass
    else:
        return []
    sys.modules["timm"] = ModuleType("timm")
    for name, parts in PARTS.items():
        sys.modules[name] = ModuleType(name)
        for part in parts:
            setattr(sys.modules[name], part.__name__, part)
    return ["timm", *PARTS]
