"""The training loop. It does not depend on any method."""

import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from adaptive_labels.errors import Stopped
from adaptive_labels.lab.config import ConfigError, TrainingConfig
from adaptive_labels.lab.objectives import Call, Objective
from adaptive_labels.lab.training import processes
from adaptive_labels.lab.training.batches import (
    Augment,
    BatchSource,
    ProcessSlice,
    arranged,
    batches,
    inputs_of,
    micro_batches,
    slice_of,
    to_device,
)
from adaptive_labels.lab.training.checkpoints import kept_up_to
from adaptive_labels.lab.training.evaluation import LARGE_BATCH, RunningMeans, evaluate_objective
from adaptive_labels.lab.training.memory import TrainingMemoryError, is_out_of_memory
from adaptive_labels.lab.training.progress import Progress, Reporter, warn
from adaptive_labels.lab.training.recorders import Recorder
from adaptive_labels.lab.training.schedules import make_schedule
from adaptive_labels.lab.training.session import Session, contained, derived_seed
from adaptive_labels.lab.training.signals import STOPPING, remembered_signals

SHUFFLE, LAYERS, AUGMENT = 0, 1, 2  # separate streams of random numbers
# In nats: a network that ends here gives the true class a probability of e^-10,000 on average.
HOPELESS_LOSS = 1e4
REFRESH_SECONDS = 0.2  # between two looks at the running means, which wait for the device


class Interrupted(Stopped):
    """The user or a scheduler stopped a run; the message says what is kept and how to go on."""


class _DivergenceError(Exception):
    """The loss or the weights are no longer finite: the reason to record."""


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
        return len(self.history)


def fit(
    objective: Objective,
    train: BatchSource,
    train_labels: Tensor,
    validation: tuple[BatchSource, Tensor],
    config: TrainingConfig,
    seed: int,
    *,
    recorder: Recorder,
    reporter: Reporter,
    checkpoint_dir: Path | None = None,
    augment: Augment | None = None,
    should_stop: Callable[[], int] = lambda: 0,
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
        augment: a change of whole training batches.
        should_stop: asked after each step; the number of a signal, or 0. Signals to this process stop it, too.
    """
    session = Session(objective, config)
    loop = _Loop(session, train, train_labels, validation, seed, augment, reporter, recorder, checkpoint_dir)
    divergence: _DivergenceError | None = None
    try:
        with contained(session.device, config.threads), remembered_signals() as signalled:
            loop.should_stop = lambda: signalled() or should_stop()
            loop.run()
    except _DivergenceError as error:
        divergence = error
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingMemoryError(config, len(session.history) + 1) from error
    except KeyboardInterrupt as stop:
        number = stop.number if isinstance(stop, Stopped) else signal.SIGINT
        raise Interrupted(_how_to_go_on(len(session.history) + 1, checkpoint_dir), number) from None
    finally:
        reporter.close()
    if session.average is not None:
        session.average.exchange()
    history, seconds = tuple(session.history), loop.seconds()
    if divergence is not None:
        return FitResult("diverged", str(divergence), history, seconds)
    if len(history) < loop.epochs:
        reason = f"no lower validation loss for {config.early_stop} epochs"
        return FitResult("stopped-early", reason, history, seconds)
    return FitResult("finished", None, history, seconds)


@dataclass
class _Loop:
    """The epochs of a run, and what they have in common."""

    session: Session
    examples: BatchSource
    labels: Tensor
    validation: tuple[BatchSource, Tensor]
    seed: int
    augment: Augment | None
    reporter: Reporter
    recorder: Recorder
    checkpoint_dir: Path | None

    def __post_init__(self) -> None:
        if not 0 < len(self.labels) == len(self.examples):
            raise ValueError(
                f"train has {len(self.examples)} examples and {len(self.labels)} labels: one each, and not none"
            )
        config = self.session.config
        assert config.epochs is not None
        assert config.batch_size is not None
        assert config.lr is not None
        self.epochs, self.batch_size, self.lr = config.epochs, config.batch_size, config.lr
        self.steps = len(list(batches(torch.arange(len(self.labels)), config.batch_size)))  # of an epoch
        self.schedule = make_schedule(config, self.steps)
        self.should_stop: Callable[[], int] = lambda: 0
        self.diverged = False
        self.world, self.rank = processes.world(), processes.rank()
        processes.from_first(self.check_size)
        self.began = self.next_look = self.saved = time.perf_counter()
        self.first_look: tuple[int, float] | None = None  # steps done, and when: the pace is measured from there

    def check_size(self) -> None:
        """Refuse batches that are too small to be shared."""
        count = self.session.config.accumulate
        if self.world > 1 and self.batch_size // count < 2 * self.world:
            raise ConfigError(
                f"training.batch_size is {self.batch_size}, in {count} parts: each of {self.world} processes needs at "
                "least two examples of each"
            )

    def seconds(self) -> float:
        """What the run has taken up to now, earlier sittings included."""
        return self.session.seconds_before + time.perf_counter() - self.began

    def keep(self, *within: Any) -> None:
        """Write a checkpoint, if there is a place for it and this process writes."""
        if self.checkpoint_dir is not None and self.rank == 0:
            self.session.save(self.checkpoint_dir, self.seconds(), self.recorder.arrays(), *within)
            self.saved = time.perf_counter()

    def run(self) -> None:
        session, recorder, patience = self.session, self.recorder, self.session.config.early_stop
        recorded = {} if self.checkpoint_dir is None else session.restore(self.checkpoint_dir, warn)
        recorder.rewind(session.history, recorded)
        self.saved = time.perf_counter()
        while len(session.history) < self.epochs and not _stops_early(session.history, patience):
            record = self.epoch(len(session.history) + 1)
            session.history.append(record)
            recorder.epoch(record)
            self.reporter.epoch(record, self.epochs)
            if _stops_early(session.history, patience) or record["epoch"] in snapshot_epochs(self.epochs):
                labels = session.objective.residual_labels()
                if labels is not None:
                    recorder.residual_labels(record["epoch"], labels.float().cpu().numpy())
            if time.perf_counter() - self.saved >= session.config.checkpoint_seconds:
                self.keep()
        loss = session.history[-1]["validation_loss"]
        if loss > HOPELESS_LOSS:  # before the end it might have recovered
            raise _DivergenceError(f"the validation loss ended at {loss:.2g}: try a lower learning rate")

    def epoch(self, epoch: int) -> dict[str, Any]:
        session, now = self.session, _Pass(epoch, self.seed)
        self.train(now)
        session.agree()
        try:
            with session.evaluated_weights(), session.autocast():
                size = max(self.batch_size, LARGE_BATCH)
                accuracy, loss = evaluate_objective(
                    session.objective, *self.validation, device=session.device, batch_size=size, caller=self.caller
                )
        except Stopped:
            self.keep_within(now)
            raise
        session.objective.epoch_end()
        rate = self.lr * self.schedule(epoch * self.steps - 1)
        if not (math.isfinite(loss) and session.weights_are_finite()):
            raise _DivergenceError(
                f"the weights or the validation loss became NaN or infinite in epoch {epoch} (learning rate {rate:g}): "
                "try a lower learning rate"
            )
        return {
            "epoch": epoch,
            "train_loss": now.means.loss,
            "train_accuracy": now.means.accuracy,
            "validation_accuracy": accuracy,
            "validation_loss": loss,
            "learning_rate": rate,
            "seconds": time.perf_counter() - now.began,
            "parts": now.means.parts,
        }

    def train(self, now: "_Pass") -> None:
        """One pass over the training examples in a shuffled order that depends on seed and epoch only."""
        session, objective, epoch = self.session, self.session.objective, now.epoch
        shuffling = torch.Generator().manual_seed(derived_seed(self.seed, epoch, SHUFFLE))
        torch.manual_seed(derived_seed(self.seed, epoch, LAYERS))  # dropout and the like
        objective.train()
        order = torch.randperm(len(self.labels), generator=shuffling)
        now.batches = arranged(self.examples, order, self.batch_size, shuffling)
        if (begun := session.resume_epoch(now.augmenting)) is not None:
            now.done = begun["step"]
            now.means.restore(begun["means"])
            now.began -= begun["seconds"]
        steps = [
            [slice_of(whole, self.world, self.rank) for whole in micro_batches(batch, session.config.accumulate)]
            for batch in now.batches[now.done :]
        ]
        indices = [part.indices for parts in steps for part in parts]
        upcoming = inputs_of(self.examples, indices, now.augment_seed if session.config.augment else None)
        for parts in steps:
            size = sum(len(part.whole) for part in parts)
            session.set_rate_factor(self.schedule((epoch - 1) * self.steps + now.done))
            if self.world > 1:
                session.own_draws.manual_seed(derived_seed(self.seed, epoch, LAYERS, now.done, self.rank))
            with objective.accumulation():
                for part in parts:
                    inputs, count = next(upcoming), len(part.whole)
                    if self.augment is not None:
                        inputs = self.augment(inputs, now.augmenting, epoch, part)
                    target = self.labels[part.whole].to(session.device)
                    with session.autocast():
                        call = session.caller(part, training=True)
                        loss, logits = objective(to_device(inputs, session.device), target, call)
                    # Each part counts by its size, so that the gradients add up to those of the whole batch's mean.
                    session.backward(loss if count == size else loss * (count / size))
                    now.means.add(now.done, loss, logits, target, objective.parts)
            notices = session.step(self.notices())
            now.done += 1
            self.after_step(now, notices)
        self.look(now, together=True)

    def notices(self) -> Sequence[float]:
        """What this process has to tell the others: that the loss is not finite, and which signal it got."""
        if self.world == 1:
            return ()
        asked = self.should_stop()
        return [float(self.diverged), *(float(asked == number) for number in STOPPING)]

    def after_step(self, now: "_Pass", notices: Sequence[float]) -> None:
        """Stop if a process was asked to, look at the means now and then, and keep what is done now and then."""
        signals = [number for number, count in zip(STOPPING, notices[1:], strict=False) if count]
        asked = signals[0] if signals else 0 if self.world > 1 else self.should_stop()
        if asked:
            self.keep_within(now)
            raise Stopped(number=asked)
        if notices and notices[0]:
            self.look(now, together=True)
        clock = time.perf_counter()
        if clock >= self.next_look:
            self.look(now)
        if clock - self.saved >= self.session.config.checkpoint_seconds:
            self.keep_within(now)

    def caller(self, part: ProcessSlice) -> Call:
        """How networks are called in evaluation; stops before it if asked to. Several processes go on and agree."""
        if self.world == 1 and (asked := self.should_stop()):
            raise Stopped(number=asked)
        return self.session.caller(part, training=False)

    def keep_within(self, now: "_Pass") -> None:
        """Write a checkpoint within an epoch, unless the loss is not finite any more."""
        now.means.fetch()
        if now.means.bad_step is None:
            seconds = time.perf_counter() - now.began
            self.keep({"step": now.done, "means": now.means.state(), "seconds": seconds}, now.augmenting)

    def look(self, now: "_Pass", together: bool = False) -> None:
        """Read the running means, which waits for the device: report them, or end a run whose loss is not finite.

        Several processes end ``together`` only: one that finds it out by itself tells the others with its next step.
        """
        means, epoch = now.means, now.epoch
        means.fetch()
        if means.bad_step is not None:
            self.diverged = True
        if self.diverged and (together or self.world == 1):
            bad = now.done - 1 if means.bad_step is None else means.bad_step
            rate = self.lr * self.schedule((epoch - 1) * self.steps + bad)
            kind = "NaN" if math.isnan(means.loss) else "infinite"
            raise _DivergenceError(
                f"the loss became {kind} at epoch {epoch}, step {bad + 1} (learning rate {rate:g}): "
                "try a lower learning rate"
            )
        clock, done, total = time.perf_counter(), (epoch - 1) * self.steps + now.done, self.epochs * self.steps
        self.next_look = clock + REFRESH_SECONDS
        self.first_look = self.first_look or (done, clock)
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
                examples_per_second=means.examples / max(clock - now.began, 1e-9),
                seconds_left=None if done == first else (clock - since) / (done - first) * (total - done),
            )
        )


class _Pass:
    """One pass over the training examples: how far it is, its means, and what its augmentation draws from."""

    def __init__(self, epoch: int, seed: int) -> None:
        self.epoch = epoch
        self.began = time.perf_counter()
        self.done = 0  # steps
        self.means = RunningMeans()
        self.batches: Sequence[Tensor] = ()  # the examples of each step
        self.augment_seed = derived_seed(seed, epoch, AUGMENT)
        self.augmenting = torch.Generator().manual_seed(self.augment_seed)


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
    """What is kept of a run that was stopped in an epoch, and what to do."""
    place = None if checkpoint_dir is None else kept_up_to(checkpoint_dir)
    if place is None:
        return f"stopped in epoch {epoch}; nothing is kept yet: the same command starts again"
    return f"stopped in epoch {epoch}; what was learnt up to {place} is kept: the same command goes on from there"
