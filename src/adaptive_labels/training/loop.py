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
from adaptive_labels.training.progress import Progress, Reporter
from adaptive_labels.training.recorders import Recorder
from adaptive_labels.training.schedules import make_schedule
from adaptive_labels.training.session import Session, contained, derived_seed, remembered_interrupts

SHUFFLE, LAYERS, AUGMENT = 0, 1, 2  # separate streams of random numbers
# In nats: a network that ends here gives the true class a probability of e^-10,000 on average.
HOPELESS_LOSS = 1e4
REFRESH_SECONDS = 0.2  # between two looks at the running means, which wait for the device


class Interrupted(KeyboardInterrupt):
    """The user stopped a run; the message says what is kept and how to go on."""


class _DivergenceError(Exception):
    """The loss or the weights are no longer finite; the message is the reason to record."""


@dataclass(frozen=True)
class FitResult:
    """How training ended: its history has a record for every finished epoch.

    seconds: of all sittings, up to the checkpoint from which each later one went on.
    """

    status: Literal["finished", "stopped-early", "diverged"]
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
    loop = _Loop(Session(objective, config), train, train_labels, validation, seed, augment, reporter)
    session = loop.session
    try:
        with contained(session.device, config.threads), remembered_interrupts() as loop.check_interrupts:
            loop.run(recorder, checkpoint_dir, checkpoint_seconds)
        divergence = None
    except _DivergenceError as error:
        divergence = str(error)
    except KeyboardInterrupt:
        raise Interrupted(_how_to_go_on(len(session.history) + 1, checkpoint_dir)) from None
    finally:
        reporter.close()
    if session.average is not None:
        session.average.exchange()
    history, seconds = tuple(session.history), loop.seconds()
    if divergence is not None:
        return FitResult("diverged", divergence, history, seconds)
    if len(history) < loop.epochs:
        reason = f"no lower validation loss for {config.early_stop} epochs"
        return FitResult("stopped-early", reason, history, seconds)
    return FitResult("finished", None, history, seconds)


class _Loop:
    """The epochs of a run, and what they have in common."""

    def __init__(
        self,
        session: Session,
        examples: Encoded,
        labels: Tensor,
        validation: tuple[Encoded, Tensor],
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
        self.session, self.examples, self.labels, self.validation = session, examples, labels, validation
        self.seed, self.augment, self.reporter = seed, augment, reporter
        self.epochs, self.batch_size, self.lr = config.epochs, config.batch_size, config.lr
        self.steps = len(list(batches(torch.arange(len(labels)), config.batch_size)))  # of an epoch
        self.schedule = make_schedule(config, self.steps)
        self.check_interrupts: Callable[[], None] = lambda: None
        self.began = self.epoch_began = self.next_look = time.perf_counter()
        self.first_look: tuple[int, float] | None = None  # steps done, and when: the pace is measured from there

    def seconds(self) -> float:
        """What the run has taken up to now, earlier sittings included."""
        return self.session.seconds_before + time.perf_counter() - self.began

    def run(self, recorder: Recorder, checkpoint_dir: Path | None, checkpoint_seconds: float) -> None:
        """Train epoch after epoch, from the checkpoint if there is one, and record each."""
        session, patience = self.session, self.session.config.early_stop
        if checkpoint_dir is not None:
            session.restore(checkpoint_dir)
        saved = time.perf_counter()
        recorder.rewind(len(session.history))
        while len(session.history) < self.epochs and not _stops_early(session.history, patience):
            record = self.epoch(len(session.history) + 1)
            self.check_interrupts()
            session.history.append(record)
            recorder.epoch(record)
            self.reporter.epoch(record, self.epochs)
            if _stops_early(session.history, patience) or record["epoch"] in snapshot_epochs(self.epochs):
                labels = session.objective.residual_labels()
                if labels is not None:
                    recorder.residual_labels(record["epoch"], labels.float().cpu().numpy())
            if checkpoint_dir is not None and time.perf_counter() - saved >= checkpoint_seconds:
                session.save(checkpoint_dir, self.seconds())
                saved = time.perf_counter()
        loss = session.history[-1]["validation_loss"]
        if loss > HOPELESS_LOSS:  # before the end it might have recovered
            raise _DivergenceError(f"the validation loss ended at {loss:.2g}: try a lower learning rate")

    def epoch(self, epoch: int) -> dict[str, Any]:
        """Train an epoch, evaluate it, and return its record."""
        session, self.epoch_began = self.session, time.perf_counter()
        with session.compiled():
            means = self.train(epoch)
        session.objective.epoch_end()
        with session.evaluated_weights(), session.autocast():
            size = max(self.batch_size, LARGE_BATCH)
            accuracy, loss = evaluate(session.objective, *self.validation, device=session.device, batch_size=size)
        rate = self.lr * self.schedule(epoch * self.steps - 1)
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
            "seconds": time.perf_counter() - self.epoch_began,
            "parts": means.parts,
        }

    def train(self, epoch: int) -> RunningMeans:
        """One pass over the training examples in a shuffled order that depends on seed and epoch only."""
        session, objective = self.session, self.session.objective
        shuffling = torch.Generator().manual_seed(derived_seed(self.seed, epoch, SHUFFLE))
        augment_seed = derived_seed(self.seed, epoch, AUGMENT)
        augmenting = torch.Generator().manual_seed(augment_seed)
        torch.manual_seed(derived_seed(self.seed, epoch, LAYERS))  # dropout and the like
        means = RunningMeans()
        objective.train()
        done = (epoch - 1) * self.steps
        order = torch.randperm(len(self.labels), generator=shuffling)
        in_batches = arranged(self.examples, order, self.batch_size, shuffling)
        steps = [pieces(batch, session.config.accumulate) for batch in in_batches]
        every_piece = [piece for parts in steps for piece in parts]
        upcoming = inputs_of(self.examples, every_piece, augment_seed if session.config.augment else None)
        for step, parts in enumerate(steps):
            size = sum(map(len, parts))
            session.set_rate_factor(self.schedule(done + step))
            with objective.accumulation():
                for piece in parts:
                    inputs = next(upcoming)
                    if self.augment is not None:
                        inputs = self.augment(inputs, augmenting, epoch, piece)
                    target = self.labels[piece].to(session.device)
                    with session.autocast():
                        loss, logits = objective(to_device(inputs, session.device), target)
                    # Each piece counts by its size, so that the gradients add up to those of the whole batch's mean.
                    session.backward(loss if len(piece) == size else loss * (len(piece) / size))
                    means.add(step, loss, logits, target, objective.parts)
            session.step()
            self.check_interrupts()
            if time.perf_counter() >= self.next_look:
                self.look(means, epoch, step + 1)
        self.look(means, epoch, self.steps)
        return means

    def look(self, means: RunningMeans, epoch: int, steps: int) -> None:
        """Read the running means, which waits for the device: report them, or end a run whose loss is not finite."""
        means.fold()
        if means.bad_step is not None:
            rate = self.lr * self.schedule((epoch - 1) * self.steps + means.bad_step)
            raise _DivergenceError(
                f"the loss became {'NaN' if math.isnan(means.loss) else 'infinite'} at epoch {epoch}, "
                f"step {means.bad_step + 1} (learning rate {rate:g}): try a lower learning rate"
            )
        now, done, total = time.perf_counter(), (epoch - 1) * self.steps + steps, self.epochs * self.steps
        self.next_look = now + REFRESH_SECONDS
        self.first_look = self.first_look or (done, now)
        first, since = self.first_look
        self.reporter.progress(
            Progress(
                epoch=epoch,
                epochs=self.epochs,
                steps_done=done,
                steps=total,
                loss=means.loss,
                accuracy=means.accuracy,
                learning_rate=self.lr * self.schedule(done - 1),
                examples_per_second=means.examples / max(now - self.epoch_began, 1e-9),
                seconds_left=None if done == first else (now - since) / (done - first) * (total - done),
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


def _how_to_go_on(epoch: int, checkpoint_dir: Path | None) -> str:
    """What is kept of a run that the user stopped in an epoch, and what to do."""
    kept = 0 if checkpoint_dir is None else kept_epochs(checkpoint_dir)
    if kept == 0:
        return f"stopped in epoch {epoch}; nothing is kept yet: the same command starts again"
    return f"stopped in epoch {epoch}; what was learnt up to epoch {kept} is kept: the same command goes on from there"
