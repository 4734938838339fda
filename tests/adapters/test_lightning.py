"""CriterionCallback trains for real with a small network: resumption, accumulation, two processes, half precision."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adapters.parts import SCRIPTS, assert_equal, run_script
from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.losses import create_loss

lightning = pytest.importorskip("lightning.pytorch")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the trainers' own
]

K, FEATURES, EXAMPLES = 4, 6, 24


def examples() -> torch.utils.data.TensorDataset:
    random = torch.Generator().manual_seed(3)
    inputs = torch.randn(EXAMPLES, FEATURES, generator=random)
    return torch.utils.data.TensorDataset(inputs, (inputs[:, :K] + 0.5 * inputs[:, 1 : K + 1]).argmax(1))


class Batches:
    """A loader that goes on where a checkpoint was written, as Lightning asks of one for resuming within an epoch."""

    def __init__(self, size: int) -> None:
        self.size, self.done = size, 0

    def __len__(self) -> int:
        return EXAMPLES // self.size

    def __iter__(self) -> Iterator[list[Tensor]]:
        data, self.done = examples(), self.done % len(self)
        for start in range(self.done * self.size, EXAMPLES, self.size):
            self.done += 1
            yield list(data[start : start + self.size])

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.done = state_dict["done"]


def module_of(criterion: nn.Module, package: Any = lightning, groups: Any = None, decay: float = 0.1) -> Any:
    from adaptive_labels.adapters.lightning import parameter_groups

    class Classifier(package.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.network = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, K))
            self.criterion = criterion

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            return self.criterion(self.network(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            chosen = parameter_groups(self, lr=0.5) if groups is None else groups(self)
            return torch.optim.SGD(chosen, lr=0.1, momentum=0.9, weight_decay=decay)

    return Classifier()


def trainer_of(folder: Path, package: Any = lightning, callback: Any = None, **arguments: Any) -> Any:
    from adaptive_labels.adapters.lightning import CriterionCallback

    settings = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 3,
        "accumulate_grad_batches": 4,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": folder,
        "callbacks": [],
    } | arguments
    settings["callbacks"] = [callback or CriterionCallback(), *settings["callbacks"]]
    return package.Trainer(**settings)


def state_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


CRITERIA = {
    "alr": lambda: AdaptiveLabelLoss(K, update="optimizer"),
    "epoch": lambda: AdaptiveLabelLoss(K, update="optimizer", residual_weight="epoch"),
    "weighted": lambda: AdaptiveLabelLoss(K, update="optimizer", weight=torch.tensor([1.0, 2.0, 0.5, 3.0])),
    "self": lambda: AdaptiveLabelLoss(K, update="self"),
    "ols": lambda: create_loss("ols", K),
    "ls++": lambda: create_loss("ls++", K),
    "baseline": lambda: create_loss("baseline", K),
}


@pytest.mark.parametrize("name", ["alr", "epoch", "self", "ols", "ls++"])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, name: str) -> None:
    saving = lightning.callbacks.ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, every_n_train_steps=1)
    whole = module_of(CRITERIA[name]())
    trainer_of(tmp_path, callbacks=[saving], enable_checkpointing=True).fit(whole, Batches(2))
    if name == "alr":
        assert whole.criterion.residual_logits.abs().max() > 1e-2
    for stop in (2, 3, 5, 6):  # 3 and 6 are the last steps of their epochs
        again = module_of(CRITERIA[name]())
        trainer = trainer_of(tmp_path)
        trainer.fit(again, Batches(2), ckpt_path=tmp_path / f"step={stop}.ckpt")
        assert trainer.global_step == 9
        assert trainer.callbacks[0].state_dict() == {"epochs_ended": 3}
        assert_equal(state_of(again), state_of(whole))


def test_a_run_resumed_from_the_end_of_an_epoch_ends_no_epoch_twice(tmp_path: Path) -> None:
    saving = lightning.callbacks.ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)
    whole = module_of(CRITERIA["epoch"]())
    trainer_of(tmp_path, callbacks=[saving], enable_checkpointing=True).fit(whole, Batches(2))
    again = module_of(CRITERIA["epoch"]())
    trainer = trainer_of(tmp_path)
    trainer.fit(again, Batches(2), ckpt_path=tmp_path / "epoch=0.ckpt")
    assert trainer.callbacks[0].state_dict() == {"epochs_ended": 3}
    assert_equal(state_of(again), state_of(whole))


@pytest.mark.parametrize("name", ["alr", "ols", "ls++", "baseline"])
def test_four_accumulated_batches_equal_one_of_four_times_the_size(tmp_path: Path, name: str) -> None:
    states = []
    for size, steps in ((8, 1), (2, 4)):
        module = module_of(CRITERIA[name]())
        trainer_of(tmp_path, accumulate_grad_batches=steps).fit(module, Batches(size))
        states.append(state_of(module))
    assert_equal(states[1], states[0], 1e-4)


def test_the_running_accuracy_is_folded_once_per_step(tmp_path: Path) -> None:
    criterion = AdaptiveLabelLoss(K, update="optimizer", residual_weight="epoch")
    folds = []
    fold = criterion.accuracy.fold
    criterion.accuracy.fold = lambda: folds.append(float(criterion.accuracy.pending_counts[1])) or fold()
    trainer_of(tmp_path).fit(module_of(criterion), Batches(2))
    assert [count for count in folds if count] == [8.0] * 9  # 2 × 4 examples a step
    assert criterion.accuracy.last_epoch > 0
    assert not criterion._accumulating


def test_a_step_is_closed_when_training_fails(tmp_path: Path) -> None:
    module = module_of(AdaptiveLabelLoss(K, update="optimizer"))
    module.on_train_batch_end = lambda outputs, batch, batch_idx: 1 / 0
    with pytest.raises(ZeroDivisionError):
        trainer_of(tmp_path).fit(module, Batches(2))
    assert not module.criterion._accumulating


def test_half_precision_leaves_the_criterion_in_single_precision(tmp_path: Path) -> None:
    module = module_of(AdaptiveLabelLoss(K, update="optimizer"))
    trainer_of(tmp_path, precision="16-true").fit(module, Batches(2))
    assert module.network[0].weight.dtype == torch.float16
    for name, value in module.criterion.state_dict().items():
        assert value.dtype == torch.float32, name
        assert value.isfinite().all(), name
    assert module.criterion.residual_logits.abs().max() > 1e-2
    assert module.criterion.accuracy.running > 0


def test_confusions_are_logged(tmp_path: Path) -> None:
    from adaptive_labels.adapters.lightning import CriterionCallback

    callback = CriterionCallback(log_confusions=2, class_names=["a", "b", "c", "d"])
    logger = lightning.loggers.CSVLogger(tmp_path)
    trainer_of(tmp_path, callback=callback, logger=logger, log_every_n_steps=1).fit(
        module_of(AdaptiveLabelLoss(K, update="optimizer")), Batches(2)
    )
    names = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()[0].split(",")
    logged = [name for name in names if name.startswith("confusion/")]
    assert len(logged) >= 2
    assert all(name[10] in "abcd" and name[11] == "→" for name in logged)


def test_a_second_fit_counts_its_own_epochs(tmp_path: Path) -> None:
    from adaptive_labels.adapters.lightning import CriterionCallback

    callback = CriterionCallback()
    ended = []
    for _ in range(2):
        criterion = AdaptiveLabelLoss(K, update="optimizer")
        criterion.epoch_end = lambda: ended.append(1)
        trainer_of(tmp_path, callback=callback).fit(module_of(criterion), Batches(2))
    assert len(ended) == 6


def test_wrong_optimizers_are_refused_with_a_sentence(tmp_path: Path) -> None:
    def fit(criterion: nn.Module, groups: Any, decay: float = 0.1) -> None:
        trainer_of(tmp_path).fit(module_of(criterion, groups=groups, decay=decay), Batches(2))

    with pytest.raises(
        ValueError, match=r"weight_decay=0\.1 .* self\.criterion\.residual_logits .*parameter_groups\(self\)"
    ):
        fit(AdaptiveLabelLoss(K, update="optimizer"), lambda module: module.parameters())
    with pytest.raises(ValueError, match=r"no optimizer has self\.criterion\.residual_logits.*groups\(self\)"):
        fit(AdaptiveLabelLoss(K, update="optimizer"), lambda module: module.network.parameters())
    with pytest.raises(ValueError, match=r"Classifier has no criterion of adaptive_labels\.losses"):
        fit(nn.CrossEntropyLoss(), lambda module: module.parameters())
    fit(AdaptiveLabelLoss(K, update="optimizer"), lambda module: module.parameters(), decay=0.0)
    fit(AdaptiveLabelLoss(K, update="self"), lambda module: module.network.parameters())


def test_it_works_with_pytorch_lightning(tmp_path: Path) -> None:
    package = pytest.importorskip("pytorch_lightning")
    states = []
    for chosen in (lightning, package):
        module = module_of(AdaptiveLabelLoss(K, update="optimizer", residual_weight="epoch"), chosen)
        trainer_of(tmp_path, chosen).fit(module, Batches(2))
        states.append(state_of(module))
    assert_equal(states[1], states[0])


WORKER = """
import os, sys
sys.path.insert(0, {tests!r})
import torch
from pathlib import Path
from torch.utils.data import DataLoader, DistributedSampler
from adapters.test_lightning import CRITERIA, examples, module_of, state_of, trainer_of
from process_end import leave
folder, data = Path(sys.argv[1]), examples()
for name in sys.argv[2].split(","):
    module = module_of(CRITERIA[name]())
    trainer = trainer_of(folder, strategy="ddp", devices=2, use_distributed_sampler=False)
    sampler = DistributedSampler(data, 2, int(os.environ["RANK"]), shuffle=False)  # Lightning's own shuffles
    trainer.fit(module, DataLoader(data, batch_size=1, sampler=sampler))
    torch.save(state_of(module), folder / f"{{name}}.{{trainer.global_rank}}")
leave()
"""


def test_two_processes_equal_one(tmp_path: Path) -> None:
    names = list(CRITERIA)
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(tests=str(Path(__file__).parent.parent)))
    run_script(script, tmp_path, ",".join(names), processes=2)
    for name in names:
        module = module_of(CRITERIA[name]())
        trainer_of(tmp_path).fit(module, Batches(2))
        for rank in range(2):
            assert_equal(torch.load(tmp_path / f"{name}.{rank}", weights_only=True), state_of(module), 1e-4)


def test_the_example(tmp_path: Path) -> None:
    printed = run_script(SCRIPTS / "lightning_module.py", tmp_path)
    assert "accuracy 9" in printed
    assert "cloud 0 is taken for cloud 1" in printed
    assert (tmp_path / "last.ckpt").is_file()
