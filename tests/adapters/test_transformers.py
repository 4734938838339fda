"""CriterionTrainer trains for real with a small random encoder: normalisation, resumption, several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adapters.parts import assert_equal, run_script
from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.losses import create_loss

transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # the trainers' own
]

K, WORDS, EXAMPLES = 4, 20, 24


class Encoder(nn.Module):
    """A bag of words whose output looks like that of a model of Transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        self.head = nn.Linear(8, K)

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        embedded = self.words(input_ids)
        return {"logits": self.head(embedded if input_ids.dim() == 3 else embedded.mean(1))}


def examples(soft: bool = False) -> list[dict[str, Any]]:
    random = torch.Generator().manual_seed(3)
    texts = torch.randint(WORDS, (EXAMPLES, 5), generator=random)
    labels: Tensor = texts.sum(1) % K
    if soft:
        labels = torch.rand(EXAMPLES, K, generator=random).softmax(1)
    return [{"input_ids": text, "labels": label} for text, label in zip(texts, labels, strict=True)]


def trainer_of(
    folder: Path, criterion: nn.Module, data: list | None = None, model: nn.Module | None = None, **arguments: Any
):
    from adaptive_labels.adapters.transformers import CriterionTrainer

    torch.manual_seed(0)
    settings = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "learning_rate": 0.1,
        "num_train_epochs": 3,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "weight_decay": 0.1,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "logging_steps": 1,
        "save_steps": 2,
        "seed": 5,
    } | arguments
    args = transformers.TrainingArguments(str(folder), **settings)
    return CriterionTrainer(
        model=Encoder() if model is None else model,
        args=args,
        train_dataset=data or examples(),
        eval_dataset=data or examples(),
        criterion=criterion,
        criterion_lr=0.5,
    )


def state_of(trainer: Any) -> dict[str, Tensor]:
    criterion = {f"criterion.{name}": value.clone() for name, value in trainer.criterion.state_dict().items()}
    return {name: value.clone() for name, value in trainer.model.state_dict().items()} | criterion


CRITERIA = {
    "alr": lambda: AdaptiveLabelLoss(K, update="optimizer"),
    "alr-s": lambda: create_loss("alr-s", K),
    "weighted": lambda: AdaptiveLabelLoss(K, update="optimizer", weight=torch.tensor([1.0, 2.0, 0.5, 3.0])),
    "class mean": lambda: AdaptiveLabelLoss(K, update="optimizer", residual_reduction="class"),
    "ols": lambda: create_loss("ols", K),
    "ls++": lambda: create_loss("ls++", K),
    "slr": lambda: create_loss("slr", K),
    "baseline": lambda: create_loss("baseline", K),
}


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("name", CRITERIA)
def test_four_accumulated_batches_equal_one_of_four_times_the_size(tmp_path: Path, name: str, soft: bool) -> None:
    states = []
    for size, steps in ((8, 1), (2, 4)):
        trainer = trainer_of(
            tmp_path / str(size),
            CRITERIA[name](),
            examples(soft),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=steps,
            save_strategy="no",
        )
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        states.append(state_of(trainer) | {"losses": torch.tensor(losses)})
    assert_equal(states[1], states[0], 1e-4)
    if "criterion.residual_logits" in states[0]:
        assert states[0]["criterion.residual_logits"].abs().max() > 1e-3  # it has moved


@pytest.mark.parametrize("name", ["alr", "ols", "ls++", "self"])
@pytest.mark.parametrize("stop", [2, 3, 5])  # 3 is the last step of an epoch
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, name: str, stop: int) -> None:
    def criterion() -> nn.Module:
        return AdaptiveLabelLoss(K, update="self") if name == "self" else CRITERIA[name]()

    options = {"save_steps": 1, "optim": "adamw_torch", "learning_rate": 0.01}
    whole = trainer_of(tmp_path / "whole", criterion(), **options)
    whole.train()
    again = trainer_of(tmp_path / "whole", criterion(), **options)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{stop}"))
    assert again.state.global_step == whole.state.global_step == 9
    assert_equal(state_of(again), state_of(whole))


def test_a_checkpoint_without_the_criterion_is_refused(tmp_path: Path) -> None:
    trainer_of(tmp_path, AdaptiveLabelLoss(K, update="optimizer")).train()
    (tmp_path / "checkpoint-2" / "criterion.safetensors").unlink()
    with pytest.raises(ValueError, match=r"checkpoint-2 has no criterion\.safetensors"):
        trainer_of(tmp_path, AdaptiveLabelLoss(K, update="optimizer")).train(
            resume_from_checkpoint=str(tmp_path / "checkpoint-2")
        )


def test_s_is_not_decayed_and_not_part_of_the_model(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    trainer = trainer_of(tmp_path, AdaptiveLabelLoss(K, update="optimizer"))
    trainer.train()
    groups = trainer.optimizer.param_groups
    owners = [group for group in groups if any(p is trainer.criterion.residual_logits for p in group["params"])]
    assert [(group["weight_decay"], group["lr"]) for group in owners] == [(0.0, 0.5)]
    like_network = trainer_of(tmp_path, create_loss("ls++", K))
    (own,) = like_network.criterion.parameters()
    (group,) = [g for g in like_network.create_optimizer().param_groups if any(p is own for p in g["params"])]
    assert (group["weight_decay"], group["lr"]) == (0.1, 0.1)
    assert not any("residual" in name for name in load_file(tmp_path / "checkpoint-9" / "model.safetensors"))
    saved = load_file(tmp_path / "checkpoint-9" / "criterion.safetensors")
    assert torch.equal(saved["residual_logits"], trainer.criterion.residual_logits)


def test_evaluation_is_plain_cross_entropy(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, AdaptiveLabelLoss(K, update="optimizer"), per_device_eval_batch_size=EXAMPLES)
    found = trainer.evaluate()["eval_loss"]
    texts = torch.stack([example["input_ids"] for example in examples()])
    labels = torch.stack([example["labels"] for example in examples()])
    expected = nn.functional.cross_entropy(trainer.model(texts)["logits"], labels)
    assert found == pytest.approx(expected.item(), abs=1e-5)


def test_the_running_weight_is_folded_once_per_step_and_confusions_are_logged(tmp_path: Path) -> None:
    from adaptive_labels.adapters.transformers import CriterionTrainer

    criterion = AdaptiveLabelLoss(K, update="optimizer", residual_weight="epoch")
    trainer = trainer_of(tmp_path, criterion)
    assert isinstance(trainer, CriterionTrainer)
    trainer.log_confusions = 2
    folds = []
    fold = criterion.accuracy.fold
    criterion.accuracy.fold = lambda: folds.append(float(criterion.accuracy.pending_counts[1])) or fold()
    trainer.train()
    counted = [count for count in folds if count]
    assert counted == [8.0] * 9  # 2 × 4 examples a step
    assert criterion.accuracy.last_epoch > 0
    logged = [name for entry in trainer.state.log_history for name in entry if name.startswith("confusion/")]
    assert len(logged) == 6


def test_token_labels_with_minus_100(tmp_path: Path) -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, K)

        def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
            return {"logits": self.words(input_ids)}

    data = []
    for number, example in enumerate(examples()):
        tags = example["input_ids"] % K
        tags[: number % 5] = -100
        data.append({"input_ids": example["input_ids"], "labels": tags})
    states = []
    for size, steps in ((8, 1), (2, 4)):
        torch.manual_seed(0)
        trainer = trainer_of(
            tmp_path / str(size),
            AdaptiveLabelLoss(K, update="optimizer"),
            data,
            Tagger(),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=steps,
        )
        trainer.train()
        states.append(state_of(trainer))
    assert_equal(states[1], states[0], 1e-4)


@pytest.mark.parametrize("soft", [False, True])
def test_loss_function_is_normalised_as_trainer_expects(tmp_path: Path, soft: bool) -> None:
    from adaptive_labels.adapters.transformers import loss_function

    states = []
    for size, steps in ((8, 1), (2, 4)):
        torch.manual_seed(0)
        model, criterion = Encoder(), AdaptiveLabelLoss(K, update="frozen", residual_weight=0.5)
        args = transformers.TrainingArguments(
            str(tmp_path / str(size)),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=steps,
            learning_rate=0.1,
            optim="sgd",
            max_grad_norm=0.0,
            num_train_epochs=2,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            save_strategy="no",
            logging_steps=1,
        )
        trainer = transformers.Trainer(
            model, args, train_dataset=examples(soft), compute_loss_func=loss_function(criterion)
        )
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        states.append(dict(model.state_dict()) | {"losses": torch.tensor(losses)})
    assert_equal(states[1], states[0], 1e-4)


def test_wrong_arguments_are_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"must be one of adaptive_labels\.losses, got CrossEntropyLoss"):
        trainer_of(tmp_path, nn.CrossEntropyLoss())
    with pytest.raises(ValueError, match="needs a teacher"):
        trainer_of(tmp_path, create_loss("kd", K))
    with pytest.raises(ValueError, match="reduction='mean'"):
        trainer_of(tmp_path, AdaptiveLabelLoss(K, update="optimizer", reduction="sum"))
    with pytest.raises(ValueError, match="label_smoothing_factor must be 0"):
        trainer_of(tmp_path, AdaptiveLabelLoss(K, update="optimizer"), label_smoothing_factor=0.1)


WORKER = """
import sys
sys.path.insert(0, {tests!r})
import torch
from pathlib import Path
from adapters.test_transformers import CRITERIA, examples, state_of, trainer_of
from process_end import leave
folder = Path(sys.argv[1])
for name in sys.argv[2].split(","):
    trainer = trainer_of(folder / name, CRITERIA[name](), per_device_train_batch_size=1, save_strategy="no",
        accelerator_config={{"split_batches": False}}, ddp_backend="gloo")
    trainer.train()
    torch.save(state_of(trainer), folder / f"{{name}}.{{trainer.args.process_index}}")
leave()
"""


def test_two_processes_equal_one(tmp_path: Path) -> None:
    names = list(CRITERIA)
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(tests=str(Path(__file__).parent.parent)))
    run_script(script, tmp_path, ",".join(names), processes=2)
    for name in names:
        trainer = trainer_of(tmp_path / "single", CRITERIA[name](), save_strategy="no")
        trainer.train()
        expected = state_of(trainer)
        for rank in range(2):
            assert_equal(torch.load(tmp_path / f"{name}.{rank}", weights_only=True), expected, 1e-4)
