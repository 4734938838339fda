import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from training_parts import CLASSES, Bag, Memory, Ragged, Rows, Similarities, blobs, config_with, objective_of

from adaptive_labels.lab.config import ConfigError, TrainingConfig
from adaptive_labels.lab.objectives import Supervised
from adaptive_labels.lab.training.batches import batches, micro_batches
from adaptive_labels.lab.training.evaluation import evaluate_objective, predict_logits
from adaptive_labels.lab.training.loop import FitResult, fit, snapshot_epochs
from adaptive_labels.lab.training.memory import TrainingMemoryError
from adaptive_labels.lab.training.progress import Reporter
from adaptive_labels.lab.training.schedules import make_schedule


def run(
    objective: Supervised, config: TrainingConfig, seed: int = 0, recorder: Memory | None = None, **options: Any
) -> FitResult:
    train, labels, validation = blobs()
    return fit(
        objective,
        train,
        labels,
        validation,
        config,
        seed,
        recorder=recorder or Memory(),
        reporter=Reporter(),
        **options,
    )


def same(first: nn.Module, second: nn.Module) -> bool:
    return all(
        torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


def test_it_learns_and_records() -> None:
    objective, recorder = objective_of(), Memory()
    result = run(objective, config_with(epochs=6), recorder=recorder)
    assert result.status == "finished"
    assert result.reason is None
    assert result.epochs == 6
    assert list(result.history) == recorder.records
    first, last = result.history[0], result.history[-1]
    assert set(last) == {
        "epoch",
        "train_loss",
        "train_accuracy",
        "validation_accuracy",
        "validation_loss",
        "learning_rate",
        "seconds",
        "parts",
    }
    assert [record["epoch"] for record in result.history] == [1, 2, 3, 4, 5, 6]
    assert last["validation_accuracy"] > 0.9
    assert last["train_loss"] < first["train_loss"]
    assert set(last["parts"]) == {"hard", "update"}
    assert last["train_loss"] == pytest.approx(last["parts"]["hard"] + last["parts"]["update"], rel=1e-5)


def test_it_equals_a_bare_loop() -> None:
    """The same steps written out with torch alone give the same weights."""
    config = config_with(lr=0.2, epochs=2)
    ours = objective_of(criterion=nn.CrossEntropyLoss())
    theirs = objective_of(criterion=nn.CrossEntropyLoss()).model
    orders: list[Tensor] = []

    class Watched(Rows):
        def batch(self, indices: Tensor) -> Tensor:
            orders.append(indices)
            return super().batch(indices)

    train, labels, validation = blobs()
    fit(ours, Watched(train.rows), labels, validation, config, 3, recorder=Memory(), reporter=Reporter())
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.2, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = make_schedule(config, 9)
    assert len(orders) == 18
    for step, indices in enumerate(orders):
        optimizer.param_groups[0]["lr"] = 0.2 * schedule(step)
        optimizer.zero_grad()
        F.cross_entropy(theirs(train.rows[indices]), labels[indices]).backward()
        optimizer.step()
    for mine, other in zip(ours.model.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other)
    for epoch in (orders[:9], orders[9:]):
        assert torch.cat(epoch).sort().values.tolist() == list(range(130))
    assert not torch.equal(torch.cat(orders[:9]), torch.cat(orders[9:]))


def test_the_recorded_figures_are_those_of_the_model() -> None:
    objective = objective_of()
    result = run(objective, config_with(epochs=2))
    _, _, (examples, labels) = blobs()
    logits = predict_logits(objective.model, examples, batch_size=7)
    last = result.history[-1]
    assert last["validation_loss"] == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-5)
    assert last["validation_accuracy"] == float((logits.argmax(1) == labels).float().mean())
    objective.eval()
    accuracy, loss = evaluate_objective(objective, examples, labels, device=torch.device("cpu"), batch_size=11)
    assert (accuracy, loss) == (pytest.approx(last["validation_accuracy"]), pytest.approx(last["validation_loss"]))
    assert not objective.training


def test_the_seed_decides_everything_and_nothing_leaks() -> None:
    first, second, third = objective_of(dropout=0.3), objective_of(dropout=0.3), objective_of(dropout=0.3)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    run(first, config_with())
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(2)
    torch.rand(10)
    run(second, config_with())
    run(third, config_with(), seed=1)
    assert same(first, second)
    assert not same(first, third)


def test_the_number_of_threads_is_put_back() -> None:
    before = torch.get_num_threads()
    seen = []

    def augment(inputs: Any, generator: torch.Generator, epoch: int, indices: Tensor) -> Any:
        seen.append(torch.get_num_threads())
        return inputs

    run(objective_of(), config_with(epochs=1, threads=2), augment=augment)
    assert set(seen) == {2}
    assert torch.get_num_threads() == before


def test_accumulation_equals_the_whole_batch() -> None:
    def plain() -> Supervised:
        torch.manual_seed(0)
        return Supervised(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, CLASSES)), Similarities())

    whole, cut = plain(), plain()
    first = run(whole, config_with(clip_norm=0.5))
    second = run(cut, config_with(clip_norm=0.5, accumulate=3))
    for mine, other in zip(whole.parameters(), cut.parameters(), strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-4)
    assert first.history[-1]["train_loss"] == pytest.approx(second.history[-1]["train_loss"], rel=1e-4)
    # The criterion counted optimizer steps, not forwards: 130 examples in batches of 16, three epochs.
    assert int(cut.criterion.steps) == int(whole.criterion.steps) == 27
    assert int(cut.criterion.epochs) == 3


def test_clipping_limits_the_step() -> None:
    objective = objective_of(criterion=nn.CrossEntropyLoss())
    before = torch.cat([parameter.detach().flatten().clone() for parameter in objective.parameters()])
    config = config_with(epochs=1, batch_size=130, momentum=0.0, weight_decay=0.0, clip_norm=0.01, schedule="constant")
    run(objective, config)
    after = torch.cat([parameter.detach().flatten() for parameter in objective.parameters()])
    assert float((after - before).norm()) == pytest.approx(0.1 * 0.01, rel=1e-3)


def test_augmentation_draws_from_its_own_seeded_generator() -> None:
    def noisy(inputs: Any, generator: torch.Generator, epoch: int, indices: Tensor) -> Any:
        return inputs + torch.randn(inputs.shape, generator=generator)

    first, second, plain = objective_of(), objective_of(), objective_of()
    run(first, config_with(), augment=noisy)
    run(second, config_with(), augment=noisy)
    run(plain, config_with())
    assert same(first, second)
    assert not same(first, plain)


def test_no_two_epochs_draw_the_same_numbers() -> None:
    drawn: dict[str, list[float]] = {"layers": [], "augment": []}

    class Drawing(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            if self.training:
                drawn["layers"].append(float(torch.rand(())))
            return super().forward(inputs)

    def augment(inputs: Any, generator: torch.Generator, epoch: int, indices: Tensor) -> Any:
        drawn["augment"].append(float(torch.rand((), generator=generator)))
        return inputs

    run(Supervised(Drawing(6, CLASSES), nn.CrossEntropyLoss()), config_with(), augment=augment)
    numbers = drawn["layers"] + drawn["augment"]
    assert len(numbers) == len(set(numbers)) == 2 * 27


@pytest.mark.parametrize("lr", [1e6, 1e30])
def test_divergence_is_a_result_not_a_traceback(lr: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    recorder = Memory()
    result = run(
        Supervised(model, nn.CrossEntropyLoss()), config_with(lr=lr, epochs=50, schedule="constant"), recorder=recorder
    )
    assert result.status == "diverged"
    assert result.reason is not None
    assert result.reason.startswith("the loss became ")
    assert f"(learning rate {lr:g}): try a lower learning rate" in result.reason
    assert f"at epoch {result.epochs + 1}, step " in result.reason
    assert all(math.isfinite(record["train_loss"]) for record in recorder.records)


class Trap(nn.Module):
    """Cross entropy that becomes NaN at a chosen forward."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.seen = at, 0

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        loss = F.cross_entropy(logits, target)
        self.seen += self.training
        return loss * math.nan if self.training and self.seen == self.at else loss


def test_divergence_names_the_first_bad_step() -> None:
    result = run(objective_of(criterion=Trap(at=9 + 4)), config_with(schedule="constant", lr=0.25))
    assert result.reason == "the loss became NaN at epoch 2, step 4 (learning rate 0.25): try a lower learning rate"
    assert result.epochs == 1


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")])
def test_out_of_memory_names_the_batch_size(error: Exception) -> None:
    class Full(nn.Module):
        def forward(self, logits: Tensor, target: Tensor) -> Tensor:
            raise error

    with pytest.raises(TrainingMemoryError, match=r"in epoch 1 with batch size 16: try training.accumulate=2"):
        run(objective_of(criterion=Full()), config_with(batch_size=16))


def test_weights_that_break_in_the_last_step_are_a_divergence() -> None:
    class Breaks(nn.Module):
        def forward(self, logits: Tensor, target: Tensor) -> Tensor:
            return logits.sum() * 1e20

    result = run(objective_of(criterion=Breaks()), config_with(epochs=1, batch_size=130, lr=1e30))
    assert result.status == "diverged"
    assert result.reason is not None
    assert result.reason.startswith("the weights or the validation loss became NaN or infinite in epoch 1")


def test_early_stop_waits_for_its_patience() -> None:
    result = run(objective_of(), config_with(epochs=60, early_stop=2, lr=1.0, schedule="constant"))
    losses = [record["validation_loss"] for record in result.history]
    assert result.status == "stopped-early"
    assert result.reason == "no lower validation loss for 2 epochs"
    assert len(losses) < 60
    assert losses.index(min(losses)) == len(losses) - 3


def test_average_is_what_is_evaluated_and_kept() -> None:
    objective = objective_of()
    result = run(objective, config_with(ema=0.9, lr=0.5, schedule="constant"))
    _, _, (examples, labels) = blobs()
    logits = predict_logits(objective.model, examples)
    assert result.history[-1]["validation_loss"] == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-5)
    raw = objective_of()
    run(raw, config_with(lr=0.5, schedule="constant"))
    assert not same(raw.model, objective.model)
    assert torch.equal(raw.criterion.scores, objective.criterion.scores)


def test_residual_labels_of_selected_epochs() -> None:
    recorder = Memory()
    run(objective_of(), config_with(epochs=7), recorder=recorder)
    assert sorted(recorder.matrices) == [1, 2, 5, 7]
    for matrix in recorder.matrices.values():
        assert matrix.shape == (CLASSES, CLASSES)
        assert matrix.sum(axis=1) == pytest.approx([1.0] * CLASSES)
    assert not (recorder.matrices[1] == recorder.matrices[7]).all()
    plain = Memory()
    run(objective_of(criterion=nn.CrossEntropyLoss()), config_with(), recorder=plain)
    assert plain.matrices == {}


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        (1, {1}),
        (2, {1, 2}),
        (10, {1, 2, 5, 10}),
        (300, {1, 2, 5, 10, 20, 50, 100, 200, 300}),
        (999, {1, 2, 5, 10, 20, 50, 100, 200, 500, 999}),
    ],
)
def test_snapshot_epochs(epochs: int, expected: set[int]) -> None:
    assert snapshot_epochs(epochs) == expected


@pytest.mark.parametrize("sparse", [False, True])
def test_ragged_texts(sparse: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (300,), generator=generator)
    lengths = torch.randint(1, 9, (300,), generator=generator)
    tokens = torch.randint(0, 16, (int(lengths.sum()),), generator=generator)
    tokens += 16 * torch.repeat_interleave(labels, lengths)
    examples = Ragged(tokens, lengths)
    torch.manual_seed(0)
    objective = Supervised(Bag(sparse=sparse), Similarities())
    config = config_with(optimizer="adam", lr=0.05, epochs=4, clip_norm=1.0)
    result = fit(objective, examples, labels, (examples, labels), config, 0, recorder=Memory(), reporter=Reporter())
    assert result.history[-1]["validation_accuracy"] == 1.0


@pytest.mark.parametrize("count", [1, 2, 3, 15, 16, 17, 31, 32, 33, 34])
@pytest.mark.parametrize("size", [1, 2, 16])
def test_batches_cover_all_and_leave_none_alone(count: int, size: int) -> None:
    parts = list(batches(torch.arange(count), size))
    assert torch.cat(parts).tolist() == list(range(count))
    assert all(len(part) in (size, size + 1) for part in parts[:-1])
    if count > 1 and size > 1:
        assert all(len(part) > 1 for part in parts)


@pytest.mark.parametrize(("length", "count", "sizes"), [(7, 1, [7]), (7, 2, [4, 3]), (7, 5, [3, 2, 2]), (1, 4, [1])])
def test_micro_batches(length: int, count: int, sizes: list[int]) -> None:
    assert [len(piece) for piece in micro_batches(torch.arange(length), count)] == sizes


def test_what_is_refused(tmp_path: Path) -> None:
    train, labels, validation = blobs()
    with pytest.raises(ConfigError, match=r"training\.lr is not given: a configuration is resolved before"):
        run(objective_of(), TrainingConfig(epochs=1, batch_size=2, optimizer="sgd", weight_decay=0, schedule="linear"))
    for examples, answers in ((train, labels[:-1]), (Rows(train.rows[:0]), labels[:0])):
        with pytest.raises(ValueError, match=f"train has {len(examples)} examples and {len(answers)} labels"):
            fit(
                objective_of(),
                examples,
                answers,
                validation,
                config_with(),
                0,
                recorder=Memory(),
                reporter=Reporter(),
            )
    with pytest.raises(ConfigError, match="needs a GPU"):
        run(objective_of(), config_with(precision="16-mixed"))
