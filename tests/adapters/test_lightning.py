"""CriterionCallback trains for real with a small network: it equals a plain loop, and resumes to the bit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from adapters.parts import (
    CRITERIA,
    EXAMPLES,
    OPTIMIZER,
    K,
    Network,
    assert_equal,
    examples,
    load_example,
    state_of,
    train_plainly,
)
from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.adapters import ModelAndCriterion

lightning = pytest.importorskip("lightning.pytorch")
from adaptive_labels.adapters.lightning import CriterionCallback  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the trainer's own


class Batches:
    """A loader that goes on where a checkpoint was written, as Lightning asks of one for resuming within an epoch."""

    def __init__(self, size: int = 2) -> None:
        self.size, self.done = size, 0

    def __len__(self) -> int:
        return EXAMPLES // self.size

    def __iter__(self) -> Iterator[list[Tensor]]:
        data, self.done = TensorDataset(*examples()), self.done % len(self)
        for start in range(self.done * self.size, EXAMPLES, self.size):
            self.done += 1
            yield list(data[start : start + self.size])

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.done = state_dict["done"]


def module_of(criterion: nn.Module, package: Any = lightning) -> Any:
    class Classifier(package.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.trained = ModelAndCriterion(Network(), criterion)

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            return self.trained(*batch)[0]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.trained.parameter_groups(), **OPTIMIZER)

    return Classifier()


def trainer_of(folder: Path, package: Any = lightning, saving: Any = (), callback: Any = None, **arguments: Any) -> Any:
    settings = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 3,
        "accumulate_grad_batches": 4,
        "logger": False,
        "enable_checkpointing": bool(saving),
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
        "callbacks": [callback or CriterionCallback(), *saving],
    }
    return package.Trainer(**(settings | arguments))


def trained(module: Any, trainer: Any, loader: Any = None, **resume: Any) -> dict[str, Tensor]:
    trainer.fit(module, loader or Batches(), **resume)
    return state_of(module.trained.model, module.trained.criterion)


def train_in_two_processes(name: str, folder: Path) -> dict[str, Tensor]:
    data = TensorDataset(*examples())
    sampler = DistributedSampler(data, 2, int(os.environ["RANK"]), shuffle=False)  # Lightning's own shuffles
    trainer = trainer_of(folder, strategy="ddp", devices=2, use_distributed_sampler=False)
    return trained(module_of(CRITERIA[name]()), trainer, DataLoader(data, batch_size=1, sampler=sampler))


# With class weights, a mean of the means of micro-batches is not the mean over the step.
UNWEIGHTED = [name for name in CRITERIA if name != "weighted"]


@pytest.mark.parametrize("name", UNWEIGHTED)
def test_two_processes_equal_one(two_processes: Path, name: str) -> None:
    for rank in range(2):
        assert_equal(torch.load(two_processes / f"lightning-{name}.{rank}"), train_plainly(name), 1e-4)


@pytest.mark.parametrize("name", UNWEIGHTED)
def test_four_accumulated_batches_equal_one_of_four_times_the_size(tmp_path: Path, name: str) -> None:
    assert_equal(trained(module_of(CRITERIA[name]()), trainer_of(tmp_path)), train_plainly(name), 1e-4)


@pytest.mark.parametrize("name", ["alr", "optimizer", "ols", "ls++"])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, name: str) -> None:
    checkpoint = lightning.callbacks.ModelCheckpoint
    saving = [checkpoint(tmp_path, "{step}", save_top_k=-1, every_n_train_steps=1)]
    saving += [checkpoint(tmp_path, "{epoch}", save_top_k=-1, save_on_train_epoch_end=True)]
    whole = trained(module_of(CRITERIA[name]()), trainer_of(tmp_path, saving=saving))
    for stop in ("step=2", "step=3", "epoch=0"):  # step 3 is an epoch's last, and is saved before the epoch's end
        trainer = trainer_of(tmp_path)
        assert_equal(trained(module_of(CRITERIA[name]()), trainer, ckpt_path=tmp_path / f"{stop}.ckpt"), whole)
        assert trainer.global_step == 9
        assert trainer.callbacks[0].state_dict() == {"epochs_ended": 3}


def test_a_second_fit_counts_its_own_epochs(tmp_path: Path) -> None:
    callback = CriterionCallback()
    ended = []
    for _ in range(2):
        criterion = AdaptiveLabelLoss(K)
        criterion.epoch_end = lambda: ended.append(1)
        trained(module_of(criterion), trainer_of(tmp_path, callback=callback))
    assert len(ended) == 6


def test_a_step_is_closed_when_training_fails(tmp_path: Path) -> None:
    module = module_of(AdaptiveLabelLoss(K))
    module.on_train_batch_end = lambda outputs, batch, batch_idx: 1 / 0
    with pytest.raises(ZeroDivisionError):
        trainer_of(tmp_path).fit(module, Batches())
    assert not module.trained.criterion._accumulating


def test_half_precision_leaves_the_criterion_in_single_precision(tmp_path: Path) -> None:
    module = module_of(AdaptiveLabelLoss(K))
    found = trained(module, trainer_of(tmp_path, precision="16-true"))
    assert found["model.stem.weight"].dtype == torch.float16
    own = {name: value for name, value in found.items() if name.startswith("criterion.")}
    assert all(value.dtype == torch.float32 and value.isfinite().all() for value in own.values())
    assert own["criterion.residual_logits"].abs().max() > 1e-2


def test_a_criterion_that_would_not_be_trained_is_refused(tmp_path: Path) -> None:
    module = module_of(CRITERIA["optimizer"]())
    module.configure_optimizers = lambda: torch.optim.SGD(module.trained.model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"no optimizer has AdaptiveLabelLoss\.residual_logits"):
        trainer_of(tmp_path).fit(module, Batches())
    module = module_of(AdaptiveLabelLoss(K))
    module.trained = nn.Module()
    module.configure_optimizers = lambda: torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    with pytest.raises(ValueError, match=r"Classifier has no criterion of adaptive_labels\.losses"):
        trainer_of(tmp_path).fit(module, Batches())


def test_it_works_with_pytorch_lightning(tmp_path: Path) -> None:
    package = pytest.importorskip("pytorch_lightning")
    assert_equal(
        trained(module_of(CRITERIA["ols"](), package), trainer_of(tmp_path, package)), train_plainly("ols"), 1e-4
    )


def test_the_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_example("lightning_module").main(str(tmp_path))
    printed = capsys.readouterr().out
    assert "accuracy 9" in printed
    assert "cloud 0 is taken for cloud 1" in printed
