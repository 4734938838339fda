"""CriterionTask in a loop as timm's train script has it: against timm, or a stand-in of its task contract."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adapters.parts import SCRIPTS, assert_equal, run_script
from adapters.timm_stand_in import install
from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.losses import create_loss

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
K, EXAMPLES = 4, 24


@pytest.fixture(autouse=True)
def timm() -> Iterator[None]:
    added = install()
    yield
    for name in added:
        sys.modules.pop(name, None)


class Network(nn.Module):
    """As small as a network of timm can be."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.head = nn.Linear(8, K)

    def forward(self, input: Tensor) -> Tensor:
        return self.head(self.stem(input).relu())

    def no_weight_decay(self) -> set[str]:
        return {"stem.weight"}

    def group_matcher(self, coarse: bool = False) -> Any:
        return lambda name: 1 if name.startswith("head") else 0


def examples(soft: bool = False) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(3)
    inputs = torch.randn(EXAMPLES, 6, generator=random)
    labels = (inputs[:, :K] + 0.5 * inputs[:, 1 : K + 1]).argmax(1)
    if soft:  # mixup without smoothing
        one_hot = nn.functional.one_hot(labels, K).float()
        return inputs, 0.7 * one_hot + 0.3 * one_hot.flip(0)
    return inputs, labels


def task_of(criterion: nn.Module, ema: bool = False) -> Any:
    from adaptive_labels.adapters.timm import CriterionTask

    torch.manual_seed(0)
    task = CriterionTask(Network(), criterion, verbose=False)
    if ema:
        task.setup_ema(decay=0.9)
    return task


def optimizer_of(task: Any) -> torch.optim.Optimizer:
    from timm.optim import create_optimizer_v2

    return create_optimizer_v2(task.get_trainable_module(), "sgd", lr=0.1, weight_decay=0.1, momentum=0.9)


def train_epoch(
    task: Any,
    optimizer: torch.optim.Optimizer,
    size: int = 2,
    steps: int = 4,
    share: slice = slice(None),
    soft: bool = False,
) -> None:
    """An epoch as in timm's train script: no_sync for all micro-batches of a step but the last."""
    task.train()
    inputs, labels = examples(soft)
    batches = list(zip(inputs.split(size), labels.split(size), strict=True))
    for number, (input, target) in enumerate(batches, 1):
        last = number % steps == 0
        with nullcontext() if last else task.no_sync():
            (task(input[share], target[share])["loss"] / steps).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
            task.update_ema()
    task.epoch_end()


def state_of(task: Any) -> dict[str, Tensor]:
    from timm.utils import unwrap_model

    parts = {"": task.get_trainable_module(), "ema.": task.get_trainable_module(ema=True)}
    found = {prefix: unwrap_model(part).state_dict() for prefix, part in parts.items() if part is not None}
    return {f"{prefix}{name}": value.clone() for prefix, state in found.items() for name, value in state.items()}


CRITERIA = {
    "alr": lambda: AdaptiveLabelLoss(K, update="optimizer"),
    "epoch": lambda: AdaptiveLabelLoss(K, update="optimizer", residual_weight="epoch"),
    "self": lambda: AdaptiveLabelLoss(K, update="self"),
    "ols": lambda: create_loss("ols", K),
    "ls++": lambda: create_loss("ls++", K),
    "slr": lambda: create_loss("slr", K),
}


@pytest.mark.parametrize("name", ["alr", "epoch", "ols", "ls++"])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, name: str) -> None:
    from timm.task import load_task_ema_checkpoint, resume_task_checkpoint
    from timm.utils import CheckpointSaver

    whole = task_of(CRITERIA[name](), ema=True)
    optimizer = optimizer_of(whole)
    for epoch in range(3):
        train_epoch(whole, optimizer)
        saver = CheckpointSaver(whole.get_trainable_module(), optimizer, task=whole)
        saver._save(str(tmp_path / f"{epoch}.pth.tar"), epoch)
    if name == "alr":
        assert whole.criterion.residual_logits.abs().max() > 1e-3
    again = task_of(CRITERIA[name](), ema=True)
    optimizer = optimizer_of(again)
    begin = resume_task_checkpoint(again, str(tmp_path / "0.pth.tar"), optimizer)
    load_task_ema_checkpoint(again, str(tmp_path / "0.pth.tar"))
    for _ in range(begin, 3):
        train_epoch(again, optimizer)
    assert_equal(state_of(again), state_of(whole))


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("name", ["alr", "ols", "ls++", "slr"])
def test_four_accumulated_batches_equal_one_of_four_times_the_size(name: str, soft: bool) -> None:
    states = []
    for size, steps in ((8, 1), (2, 4)):
        task = task_of(CRITERIA[name]())
        optimizer = optimizer_of(task)
        for _ in range(3):
            train_epoch(task, optimizer, size, steps, soft=soft)
        states.append(state_of(task))
    assert_equal(states[1], states[0], 1e-4)


def test_the_running_accuracy_is_folded_once_per_step() -> None:
    task = task_of(AdaptiveLabelLoss(K, update="optimizer", residual_weight="epoch"))
    accuracy, folds = task.criterion.accuracy, []
    fold = accuracy.fold
    accuracy.fold = lambda: folds.append(float(accuracy.pending_counts[1])) or fold()
    train_epoch(task, optimizer_of(task))
    assert [count for count in folds if count] == [8.0] * 3
    assert accuracy.last_epoch > 0
    assert not task.criterion._accumulating


def test_weight_decay_spares_s() -> None:
    task = task_of(AdaptiveLabelLoss(K, update="optimizer"))
    trained = task.get_trainable_module()
    assert trained.no_weight_decay() == {"model.stem.weight", "criterion.residual_logits"}
    decay = {id(p): group["weight_decay"] for group in optimizer_of(task).param_groups for p in group["params"]}
    assert decay[id(task.criterion.residual_logits)] == 0.0
    assert decay[id(trained.model.stem.weight)] == 0.0
    assert decay[id(trained.model.head.weight)] == 0.1
    assert task_of(create_loss("ls++", K)).get_trainable_module().no_weight_decay() == {"model.stem.weight"}
    assert set(task.get_clip_parameters()) == set(trained.model.parameters())
    assert len(task.get_clip_parameters(exclude_head=True)) == 2


def test_layer_decay_puts_s_into_the_last_layer() -> None:
    matcher = task_of(AdaptiveLabelLoss(K, update="optimizer")).get_trainable_module().group_matcher()
    assert [matcher(name) for name in ("model.stem.weight", "model.head.bias", "criterion.residual_logits")] == [
        0,
        1,
        1,
    ]


def test_the_network_alone_is_evaluated_and_saved() -> None:
    task = task_of(AdaptiveLabelLoss(K, update="optimizer"), ema=True)
    network = task.get_trainable_module().model
    assert task.get_eval_model() is network
    assert isinstance(task.get_eval_model(ema=True), Network)
    assert task.get_eval_model(ema=True) is not network
    state = task.get_checkpoint_state()
    assert state["state_dict"].keys() == Network().state_dict().keys()
    assert set(state["task_state"]) == {"criterion"}
    assert "residual_logits" in task.get_checkpoint_state(ema=True)["task_state_ema"]["criterion"]
    output = task(*examples())
    assert output["output"].shape == (EXAMPLES, K)


def test_a_compiled_network_trains_and_saves_the_same() -> None:
    states = []
    for compiled in (False, True):
        task = task_of(AdaptiveLabelLoss(K, update="optimizer"))
        optimizer = optimizer_of(task)
        if compiled:
            assert task.compile(backend="eager") is task.get_eval_model()
        train_epoch(task, optimizer)
        states.append(task.get_checkpoint_state())
    assert_equal(states[1]["state_dict"], states[0]["state_dict"], 1e-6)
    assert_equal(states[1]["task_state"]["criterion"], states[0]["task_state"]["criterion"], 1e-6)


def test_what_does_not_fit_is_refused_with_a_sentence() -> None:
    with pytest.raises(TypeError, match=r"must be one of adaptive_labels\.losses, got CrossEntropyLoss"):
        task_of(nn.CrossEntropyLoss())
    with pytest.raises(ValueError, match="needs a teacher"):
        task_of(create_loss("kd", K))
    task = task_of(AdaptiveLabelLoss(K, update="optimizer"))
    with pytest.raises(ValueError, match="the checkpoint has no criterion in 'task_state'"):
        task.load_checkpoint_state(Network().state_dict())
    task.load_checkpoint_state(Network().state_dict(), strict=False)


WORKER = """
import sys
sys.path.insert(0, {tests!r})
import torch
from pathlib import Path
import torch.distributed as dist
from adapters.timm_stand_in import install
install()
from adapters.test_timm import CRITERIA, optimizer_of, state_of, task_of, train_epoch
from process_end import leave
dist.init_process_group("gloo")
rank = dist.get_rank()
for name, make in CRITERIA.items():
    task = task_of(make())
    optimizer = optimizer_of(task)
    task.prepare_distributed()
    for _ in range(3):
        train_epoch(task, optimizer, share=slice(rank, rank + 1))
    torch.save(state_of(task), Path(sys.argv[1]) / f"{{name}}.{{rank}}")
leave()
"""


def test_two_processes_equal_one(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(tests=str(Path(__file__).parent.parent)))
    run_script(script, tmp_path, processes=2)
    for name, make in CRITERIA.items():
        task = task_of(make())
        optimizer = optimizer_of(task)
        for _ in range(3):
            train_epoch(task, optimizer)
        for rank in range(2):
            assert_equal(torch.load(tmp_path / f"{name}.{rank}", weights_only=True), state_of(task), 1e-4)


def test_the_example(tmp_path: Path) -> None:
    import timm

    if not hasattr(timm, "create_model"):
        pytest.skip("the example needs timm itself")
    printed = run_script(SCRIPTS / "timm_task.py", tmp_path)
    assert "place 0 is taken for place 1" in printed
    assert (tmp_path / "last.pth.tar").is_file()
