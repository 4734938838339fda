"""The training loop, a page long; it knows no method's name."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from adaptive_labels.config import TrainingConfig
from adaptive_labels.objectives import Objective
from adaptive_labels.training.batches import Augment, Encoded, arranged, batches, inputs_of, pieces, to_device
from adaptive_labels.training.checkpoints import kept_epochs
from adaptive_labels.training.evaluation import LARGE_BATCH, RunningMeans, evaluate
from adaptive_labels.training.progress import Clock, Progress, Reporter
from adaptive_labels.training.recorders import Recorder
from adaptive_labels.training.schedules import make_schedule
from adaptive_labels.training.session import Session, contained, derived_seed, remembered_interrupts

__all__ = ["FitResult", "Interrupted", "fit", "snapshot_epochs"]

SHUFFLE, LAYERS, AUGMENT = 0, 1, 2  # separate streams of random numbers
# In nats: a network that ends here gives the true class a probability of e^-10,000 on average.
HOPELESS_LOSS = 1e4


Status = Literal["finished", "stopped-early", "diverged"]


class Interrupted(KeyboardInterrupt):
    """The user stopped a run; the message says what is kept and how to go on."""


class _DivergenceError(Exception):
    """The loss or the weights are no longer finite; the message is the reason to record."""


@dataclass(frozen=True)
class FitResult:
    """How training ended: its history has a record for every finished epoch.

    seconds: of all sittings, up to the checkpoint from which each later one went on.
    """

    status: Status
    reason: str | None
    history: tuple[dict[str, Any], ...]
    seconds: float

    @property
    def epochs(self) -> int:
        """The number of finished epochs."""
        return len(self.history)


def fit(
    objective: Objective,
    train: Encoded,
    train_labels: Tensor,
    validation: tuple[Encoded, Tensor],
    config: TrainingConfig,
    seed: int,
    *,
    recorder: Recorder,
    reporter: Reporter,
    checkpoint_dir: Path | None = None,
    checkpoint_seconds: float = 5.0,
    augment: Augment | None = None,
) -> FitResult:
    """Train an objective in place; its model ends with the weights to be used (averaged ones under `ema`).

    The same seed, data and initial weights give the same weights on one machine, whether or not the run was
    interrupted. Global random state is put back.

    Args:
        objective: networks and criterion, initialised by the caller.
        train: the training examples; `train_labels` their labels (N,).
        validation: examples and labels that are evaluated after every epoch.
        config: resolved, nothing left to be chosen by the data.
        seed: of the shuffling, of dropout and of `augment`.
        recorder: gets the history; `reporter`: shows progress, and is closed at the end.
        checkpoint_dir: where to keep what resuming needs; if it holds a checkpoint, training goes on after it.
        checkpoint_seconds: the least time between checkpoints; 0 keeps every epoch.
        augment: a change of whole training batches.
    """
    session = Session(objective, config)
    lesson = _Lesson(session, train, train_labels, seed, augment, reporter)
    reason: str | None = None
    status: Status = "finished"
    try:
        with contained(session.device, config.threads), remembered_interrupts() as lesson.check_interrupts:
            _epochs(lesson, validation, recorder, checkpoint_dir, checkpoint_seconds)
    except _DivergenceError as divergence:
        status, reason = "diverged", str(divergence)
    except KeyboardInterrupt:
        raise Interrupted(_how_to_go_on(session, checkpoint_dir)) from None
    finally:
        reporter.close()
    if session.average is not None:
        session.average.keep()
    if status == "finished" and session.finished_epochs < lesson.epochs:
        status, reason = "stopped-early", f"no lower validation loss for {config.early_stop} epochs"
    return FitResult(status, reason, tuple(session.history), lesson.seconds())


class _Lesson:
    """What the epochs of a run have in common."""

    def __init__(
        self,
        session: Session,
        examples: Encoded,
        labels: Tensor,
        seed: int,
        augment: Augment | None,
        reporter: Reporter,
    ) -> None:
        if not 0 < len(labels) == len(examples):
            raise ValueError(f"train has {len(examples)} examples and {len(labels)} labels: one each, and not none")
        config = session.config
        assert config.epochs is not None
        assert config.batch_size is not None
        assert config.lr is not None
        self.session, self.examples, self.labels = session, examples, labels
        self.seed, self.augment, self.reporter = seed, augment, reporter
        self.epochs, self.batch_size, self.lr = config.epochs, config.batch_size, config.lr
        self.steps = sum(1 for _ in batches(torch.arange(len(labels)), config.batch_size))
        self.schedule = make_schedule(config, self.steps)
        self.clock = Clock()
        self.began = time.perf_counter()
        self.check_interrupts: Callable[[], None] = lambda: None

    def seconds(self) -> float:
        """What the run has taken up to now, earlier sittings included."""
        return self.session.seconds_before + time.perf_counter() - self.began


def _epochs(
    lesson: _Lesson,
    validation: tuple[Encoded, Tensor],
    recorder: Recorder,
    checkpoint_dir: Path | None,
    checkpoint_seconds: float,
) -> None:
    """Train epoch after epoch, from the checkpoint if there is one, and record each."""
    session, patience = lesson.session, lesson.session.config.early_stop
    if checkpoint_dir is not None:
        session.restore(checkpoint_dir)
    saved = time.perf_counter()
    recorder.rewind(session.finished_epochs)
    while session.finished_epochs < lesson.epochs and not _stops_early(session.history, patience):
        record = _epoch(lesson, validation)
        lesson.check_interrupts()
        session.history.append(record)
        recorder.epoch(record)
        lesson.reporter.epoch(record, lesson.epochs)
        if _stops_early(session.history, patience) or record["epoch"] in snapshot_epochs(lesson.epochs):
            labels = session.objective.residual_labels()
            if labels is not None:
                recorder.residual_labels(record["epoch"], labels.float().cpu().numpy())
        if checkpoint_dir is not None and time.perf_counter() - saved >= checkpoint_seconds:
            session.save(checkpoint_dir, lesson.seconds())
            saved = time.perf_counter()
    loss = session.history[-1]["validation_loss"]
    if loss > HOPELESS_LOSS:  # before the end it might have recovered
        raise _DivergenceError(f"the validation loss ended at {loss:.2g}: try a lower learning rate")


def _epoch(lesson: _Lesson, validation: tuple[Encoded, Tensor]) -> dict[str, Any]:
    """Train an epoch, evaluate it, and return its record."""
    began = time.perf_counter()
    session = lesson.session
    epoch = session.finished_epochs + 1
    with session.compiled():
        means = _train(lesson, epoch)
    session.objective.epoch_end()
    with session.evaluated_weights(), session.autocast():
        size = max(lesson.batch_size, LARGE_BATCH)
        accuracy, loss = evaluate(session.objective, *validation, device=session.device, batch_size=size)
    rate = lesson.lr * lesson.schedule(epoch * lesson.steps - 1)
    if not (math.isfinite(loss) and session.weights_are_finite()):
        raise _DivergenceError(
            f"the weights or the validation loss became NaN or infinite in epoch {epoch} (learning rate {rate:g}): "
            "try a lower learning rate"
        )
    return {
        "epoch": epoch,
        "train_loss": means.loss,
        "train_accuracy": means.accuracy,
        "validation_accuracy": accuracy,
        "validation_loss": loss,
        "learning_rate": rate,
        "seconds": time.perf_counter() - began,
        "parts": means.parts,
    }


def _train(lesson: _Lesson, epoch: int) -> RunningMeans:
    """One pass over the training examples in a shuffled order that depends on seed and epoch only."""
    session, objective = lesson.session, lesson.session.objective
    shuffling = torch.Generator().manual_seed(derived_seed(lesson.seed, epoch, SHUFFLE))
    augment_seed = derived_seed(lesson.seed, epoch, AUGMENT)
    augmenting = torch.Generator().manual_seed(augment_seed)
    torch.manual_seed(derived_seed(lesson.seed, epoch, LAYERS))  # dropout and the like
    means = RunningMeans()
    objective.train()
    lesson.clock.start_epoch()
    done = (epoch - 1) * lesson.steps
    order = torch.randperm(len(lesson.labels), generator=shuffling)
    in_batches = arranged(lesson.examples, order, lesson.batch_size, shuffling)
    steps = [pieces(batch, session.config.accumulate) for batch in in_batches]
    every_piece = [piece for parts in steps for piece in parts]
    upcoming = inputs_of(lesson.examples, every_piece, augment_seed if session.config.augment else None)
    for step, parts in enumerate(steps):
        size = sum(map(len, parts))
        session.optimizers.set_rate_factor(lesson.schedule(done + step))
        with objective.accumulation():
            for piece in parts:
                inputs = next(upcoming)
                if lesson.augment is not None:
                    inputs = lesson.augment(inputs, augmenting, epoch, piece)
                target = lesson.labels[piece].to(session.device)
                with session.autocast():
                    loss, logits = objective(to_device(inputs, session.device), target)
                # Each piece counts by its size, so that the gradients add up to those of the whole batch's mean.
                session.backward(loss if len(piece) == size else loss * (len(piece) / size))
                means.add(step, loss, logits, target, objective.parts)
        session.step()
        lesson.check_interrupts()
        if lesson.clock.is_time():
            _look(lesson, means, epoch, step + 1)
    _look(lesson, means, epoch, lesson.steps)
    return means


def _look(lesson: _Lesson, means: RunningMeans, epoch: int, steps: int) -> None:
    """Read the running means, which waits for the device: report them, or end a run whose loss is not finite."""
    means.fold()
    if means.bad_step is not None:
        rate = lesson.lr * lesson.schedule((epoch - 1) * lesson.steps + means.bad_step)
        raise _DivergenceError(
            f"the loss became {'NaN' if math.isnan(means.loss) else 'infinite'} at epoch {epoch}, "
            f"step {means.bad_step + 1} (learning rate {rate:g}): try a lower learning rate"
        )
    done, total = (epoch - 1) * lesson.steps + steps, lesson.epochs * lesson.steps
    lesson.reporter.progress(
        Progress(
            epoch=epoch,
            epochs=lesson.epochs,
            steps_done=done,
            steps=total,
            loss=means.loss,
            accuracy=means.accuracy,
            learning_rate=lesson.lr * lesson.schedule(done - 1),
            examples_per_second=means.examples / lesson.clock.epoch_seconds(),
            seconds_left=lesson.clock.seconds_left(done, total),
        )
    )


def snapshot_epochs(epochs: int) -> set[int]:
    """1, 2, 5, 10, 20, 50, … and the last: the epochs whose residual labels are kept."""
    selected = {step * 10**power for power in range(len(str(epochs))) for step in (1, 2, 5)}
    return {epoch for epoch in selected if epoch < epochs} | {epochs}


def _stops_early(history: list[dict[str, Any]], patience: int | None) -> bool:
    """Whether the lowest validation loss is `patience` or more epochs old."""
    if patience is None or not history:
        return False
    losses = [record["validation_loss"] for record in history]
    return len(losses) - 1 - losses.index(min(losses)) >= patience


def _how_to_go_on(session: Session, checkpoint_dir: Path | None) -> str:
    """What is kept of a run that the user stopped, and what to do."""
    stopped = f"stopped in epoch {session.finished_epochs + 1}"
    kept = 0 if checkpoint_dir is None else kept_epochs(checkpoint_dir)
    if kept == 0:
        return f"{stopped}; nothing is kept yet: the same command starts again"
    return f"{stopped}; what was learnt up to epoch {kept} is kept: the same command goes on from there"
