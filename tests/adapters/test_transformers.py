"""Hugging Face's Trainer trains for real: it equals a plain loop, resumes to the bit, and says what it lacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from adapters.parts import CRITERIA, EXAMPLES, K, Network, assert_equal, examples, load_example, state_of, train_plainly
from adaptive_labels import AdaptiveLabelLoss

transformers = pytest.importorskip("transformers")
from adaptive_labels.adapters import transformers as adapter  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # the trainer's own


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = Network()

    def forward(self, input: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return {"logits": self.network(input)}


def rows(soft: bool = False) -> list[dict[str, Tensor]]:
    return [{"input": x, "labels": y} for x, y in zip(*examples(soft), strict=True)]


def arguments(folder: Path, **options: Any) -> Any:
    settings = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "learning_rate": 0.1,
        "num_train_epochs": 3,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "train_sampling_strategy": "sequential",
        "max_grad_norm": 0.0,
        "weight_decay": 0.1,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
    }
    return transformers.TrainingArguments(str(folder), **(settings | options))


def trainer_of(folder: Path, criterion: Any, data: Any = None, model: Any = None, **options: Any) -> Any:
    return adapter.CriterionTrainer(
        model=model or Classifier(),
        args=arguments(folder, **options),
        train_dataset=data or rows(),
        eval_dataset=data or rows(),
        criterion=criterion,
    )


def trained(trainer: Any, **resume: Any) -> dict[str, Tensor]:
    trainer.train(**resume)
    return state_of(trainer.model.network, trainer.criterion)


def train_in_two_processes(name: str, folder: Path) -> dict[str, Tensor]:
    options = {"per_device_train_batch_size": 1, "ddp_backend": "gloo", "accelerator_config": {"split_batches": False}}
    return trained(trainer_of(folder / name, CRITERIA[name](), **options))


@pytest.mark.parametrize("name", CRITERIA)
def test_two_processes_equal_one(two_processes: Path, name: str) -> None:
    for rank in range(2):
        found = torch.load(two_processes / f"transformers-{name}.{rank}")
        assert_equal(found, train_plainly(name, per_label=True), 1e-4)


@pytest.mark.parametrize(("name", "soft"), [*((name, False) for name in CRITERIA), ("alr", True), ("slr", True)])
def test_four_accumulated_batches_equal_one_of_four_times_the_size(tmp_path: Path, name: str, soft: bool) -> None:
    found = trained(trainer_of(tmp_path, CRITERIA[name](), rows(soft)))
    assert_equal(found, train_plainly(name, soft, per_label=True), 1e-4)


@pytest.mark.parametrize("name", ["alr", "optimizer", "ols", "ls++"])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, name: str) -> None:
    options = {"save_strategy": "steps", "save_steps": 1, "optim": "adamw_torch", "learning_rate": 0.01}
    whole = trained(trainer_of(tmp_path, CRITERIA[name](), **options))
    for stop in (2, 3):  # 3 is the last step of an epoch, and is saved before the epoch's end
        again = trainer_of(tmp_path, CRITERIA[name](), **options)
        assert_equal(trained(again, resume_from_checkpoint=str(tmp_path / f"checkpoint-{stop}")), whole)
        assert again.state.global_step == 9


def test_the_two_parts_alone_do_what_the_trainer_does(tmp_path: Path) -> None:
    criterion = AdaptiveLabelLoss(K)
    trainer = transformers.Trainer(
        model=Classifier(),
        args=arguments(tmp_path),
        train_dataset=rows(),
        compute_loss_func=adapter.loss_function(criterion),
        callbacks=[adapter.CriterionCallback(criterion)],
    )
    trainer.train()
    assert_equal(state_of(trainer.model.network, criterion), train_plainly("alr", per_label=True), 1e-4)


def test_the_best_checkpoint_brings_its_criterion(tmp_path: Path) -> None:
    options = {"save_strategy": "epoch", "eval_strategy": "epoch", "load_best_model_at_end": True}
    trainer = trainer_of(tmp_path, AdaptiveLabelLoss(K), greater_is_better=True, **options)  # the first loss is best
    best = trained(trainer)
    assert trainer.state.best_global_step == 3
    assert_equal(best, trained(trainer_of(tmp_path, AdaptiveLabelLoss(K), num_train_epochs=1)))


def test_evaluation_is_plain_cross_entropy(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, AdaptiveLabelLoss(K, label_smoothing=0.1), per_device_eval_batch_size=EXAMPLES)
    inputs, labels = examples()
    expected = nn.functional.cross_entropy(trainer.model.network(inputs), labels)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected.item(), abs=1e-5)


def test_token_labels_with_minus_100(tmp_path: Path) -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.network = nn.Linear(6, K)

        def forward(self, input: Tensor, labels: Tensor | None = None) -> tuple[Tensor]:
            return (self.network(input),)  # a tuple, as models with return_dict=False have it

    data = []
    for number, x in enumerate(torch.randn(EXAMPLES, 5, 6).unbind()):
        tags = x[:, :K].argmax(1)
        tags[: number % 5] = -100
        data.append({"input": x, "labels": tags})
    states = []
    for size, steps in ((8, 1), (2, 4)):
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps}
        states.append(trained(trainer_of(tmp_path, AdaptiveLabelLoss(K), data, Tagger(), **options)))
    assert_equal(states[1], states[0], 1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_smoothing_factor": 0.1}, r"label_smoothing_factor must be 0 .*got 0\.1"),
        ({"restore_callback_states_from_checkpoint": True}, "must be False"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    trainer = trainer_of(tmp_path, AdaptiveLabelLoss(K))
    for name, value in options.items():
        setattr(trainer.args, name, value)
    with pytest.raises(ValueError, match=message):
        trainer.train()


def test_what_is_missing_is_an_error_and_not_a_wrong_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    criterion = AdaptiveLabelLoss(K)
    options = {"args": arguments(tmp_path, save_strategy="steps", save_steps=2), "train_dataset": rows()}
    loss = adapter.loss_function(criterion)
    with pytest.raises(ValueError, match=r"needs callbacks=\[CriterionCallback\(criterion\)\]"):
        transformers.Trainer(Classifier(), compute_loss_func=loss, **options).train()
    callback = adapter.CriterionCallback(CRITERIA["optimizer"]())
    with pytest.raises(ValueError, match=r"no optimizer has AdaptiveLabelLoss\.residual_logits"):
        transformers.Trainer(Classifier(), compute_loss_func=loss, callbacks=[callback], **options).train()
    with pytest.raises(ValueError, match="a batch has no 'labels'"):
        loss({"logits": torch.zeros(2, K)}, None, 2)
    with criterion.accumulation(), pytest.raises(ValueError, match=r"did not count the labels .*use 4\.47"):
        loss({"logits": torch.zeros(2, K)}, torch.tensor([0, 1]), None)

    trainer_of(tmp_path, criterion, save_strategy="steps", save_steps=2).train()
    path = tmp_path / "checkpoint-2" / "trainer_state.json"
    state = json.loads(path.read_text())
    del state["stateful_callbacks"]["CriterionCallback"]
    path.write_text(json.dumps(state))
    with pytest.raises(ValueError, match="the checkpoint has no criterion"):
        trainer_of(tmp_path, criterion).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))

    twice = trainer_of(tmp_path, criterion)
    twice.add_callback(adapter.CriterionCallback(criterion))
    with pytest.raises(RuntimeError, match="does not save the state of exactly one CriterionCallback"):
        twice.train()
    monkeypatch.delattr(transformers.TrainerCallback, "on_pre_optimizer_step")
    with pytest.raises(RuntimeError, match="has no callback on_pre_optimizer_step"):
        adapter.CriterionCallback(criterion)


def test_the_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_example("transformers_trainer").main(str(tmp_path))
    printed = capsys.readouterr().out
    assert "accuracy 9" in printed
    assert "topic 0 is taken for topic 1" in printed
