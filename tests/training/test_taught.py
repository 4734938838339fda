"""Objectives of several networks: their gradients against the equations, and what the loop makes of them."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn
from training_parts import CLASSES, Memory, blobs, config_with, network

import reference
from adaptive_labels.lab.config import TrainingConfig
from adaptive_labels.lab.objectives import Distilled, Mutual, Objective, Refined
from adaptive_labels.lab.training.loop import fit
from adaptive_labels.lab.training.progress import Reporter
from adaptive_labels.losses import create_loss

X = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
Y = torch.tensor([0, 1, 2, 2, 0])


def linear(seed: int) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(6, CLASSES).double()


def gradients(loss: Tensor, module: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(module.parameters()), retain_graph=True))


def reference_loss(loss: Any, logits: Tensor, teacher_logits: list[Tensor]) -> Tensor:
    return reference.reduce(reference.samples(logits, Y, teacher_logits=teacher_logits), loss, "mean")


# ------------------------------------------------------------------------------------------------------ the equations


@pytest.mark.parametrize("options", [{}, {"alpha": 0.9, "temperature": 2.0}, {"alpha": 0.3, "temper_student": False}])
def test_distillation_has_the_loss_and_gradient_of_its_formula(options: dict[str, Any]) -> None:
    student, teacher = linear(0), linear(1)
    loss, logits = Distilled(student, create_loss("kd", CLASSES, **options), teacher)(X, Y)
    expected = reference_loss(reference.distillation(**options), student(X), [teacher(X).detach()])
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(gradients(loss, student), gradients(expected, student), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(logits, student(X))


def test_refined_labels_pull_as_the_divergence_from_the_teacher_and_the_given_ones_not_at_all() -> None:
    student, teacher = linear(0), linear(1)
    objective = Refined(student, create_loss("label-refinery", CLASSES), teacher)
    loss, _ = objective(X, Y)
    q = teacher(X).softmax(1).detach()
    divergence = F.kl_div(student(X).log_softmax(1), q, reduction="batchmean")
    torch.testing.assert_close(gradients(loss, student), gradients(divergence, student), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(loss - divergence, -(q * q.log()).sum(1).mean())
    torch.testing.assert_close(objective(X, (Y + 1) % CLASSES)[0], loss)


@pytest.mark.parametrize("count", [2, 3])
def test_each_peer_learns_from_labels_and_from_the_others_as_they_are(count: int) -> None:
    peers = [linear(seed) for seed in range(count)]
    objective = Mutual(peers, create_loss("dml", CLASSES, strength=0.7))
    loss, logits = objective(X, Y)
    torch.testing.assert_close(logits, peers[0](X))
    total = torch.zeros((), dtype=torch.float64)
    for peer in peers:
        others = [other(X).detach() for other in peers if other is not peer]
        own = reference_loss(reference.mutual(0.7), peer(X), others)
        torch.testing.assert_close(gradients(loss, peer), gradients(own, peer), rtol=1e-9, atol=1e-12)
        total = total + own
    torch.testing.assert_close(loss, total)


def test_mutual_learning_needs_two() -> None:
    with pytest.raises(ValueError, match="models has 1 entries; mutual learning needs at least 2"):
        Mutual([linear(0)], create_loss("dml", CLASSES))


# ---------------------------------------------------------------------------------------------------------- the teacher


class Sealed(nn.Module):
    """A teacher that is not to be asked."""

    def forward(self, inputs: Tensor) -> Tensor:
        raise AssertionError("asked")


@pytest.mark.parametrize("mode", ["eval", "no_grad"])
@pytest.mark.parametrize(("kind", "method"), [(Distilled, "kd"), (Refined, "label-refinery"), (Mutual, "dml")])
def test_evaluation_is_plain_cross_entropy_of_the_one_that_predicts(kind: Any, method: str, mode: str) -> None:
    model, criterion = linear(0), create_loss(method, CLASSES)
    objective = Mutual([model, Sealed()], criterion) if kind is Mutual else kind(model, criterion, Sealed())
    objective.train(mode != "eval")
    with torch.set_grad_enabled(mode != "no_grad"):
        loss, logits = objective(X, Y)
    torch.testing.assert_close(loss, F.cross_entropy(model(X), Y))
    torch.testing.assert_close(logits, model(X))


def test_a_teacher_is_held_and_no_part() -> None:
    teacher, student = network(dropout=0.5), linear(0)
    objective = Distilled(student, create_loss("kd", CLASSES), teacher).train()
    assert not teacher.training
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert set(objective.state_dict()) == {"model.weight", "model.bias"}
    assert list(objective.parameters()) == list(student.parameters())
    assert objective.held_parameters == sum(p.numel() for p in [*student.parameters(), *teacher.parameters()])
    objective.double()
    assert next(teacher.parameters()).dtype == torch.float64  # it moves along


# ------------------------------------------------------------------------------------------------------------- the loop


def make(kind: str) -> Objective:
    torch.manual_seed(3)
    if kind == "dml":
        return Mutual([network(0.2), network(0.2), network()], create_loss("dml", CLASSES))
    model, teacher = network(0.2), network(0.5)
    if kind == "kd":
        return Distilled(model, create_loss("kd", CLASSES), teacher)
    return Refined(model, create_loss("label-refinery", CLASSES), teacher)


def train(objective: Objective, config: TrainingConfig, folder: Path | None = None, reporter: Any = None) -> Memory:
    examples, labels, validation = blobs()
    recorder = Memory()
    fit(
        objective,
        examples,
        labels,
        validation,
        replace(config, checkpoint_seconds=0.0),
        5,
        recorder=recorder,
        reporter=reporter or Reporter(),
        checkpoint_dir=folder,
    )
    return recorder


class Stop(Reporter):
    """Ends the process, so to speak, in the third epoch."""

    def progress(self, now: Any) -> None:
        if now.epoch == 3:
            raise RuntimeError


@pytest.mark.parametrize("kind", ["kd", "label-refinery", "dml"])
def test_an_interrupted_run_ends_as_an_uninterrupted_one_and_its_checkpoint_holds_no_teacher(
    kind: str, tmp_path: Path
) -> None:
    config = config_with(epochs=4, ema=0.9)
    whole = make(kind)
    train(whole, config)
    with pytest.raises(RuntimeError):
        train(make(kind), config, tmp_path, Stop())
    file = max(tmp_path.glob("epoch-*.safetensors"))
    with safe_open(file, "pt") as stored:
        kept = {name.removeprefix("objective/") for name in stored.keys() if name.startswith("objective/")}  # noqa: SIM118
    assert kept == set(whole.state_dict())
    resumed = make(kind)
    train(resumed, config, tmp_path)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name


@pytest.mark.parametrize("kind", ["kd", "label-refinery"])
def test_a_teacher_is_the_same_to_the_bit_after_its_student_is_trained(kind: str) -> None:
    objective = make(kind)
    assert isinstance(objective, Distilled | Refined)
    before = {name: tensor.clone() for name, tensor in objective.teacher.state_dict().items()}
    start = copy.deepcopy(objective.model.state_dict())
    train(objective, config_with(weight_decay=0.1))
    assert all(torch.equal(tensor, before[name]) for name, tensor in objective.teacher.state_dict().items())
    assert not torch.equal(objective.model.state_dict()["0.weight"], start["0.weight"])


@pytest.mark.parametrize(("optimizer", "clip"), [("sgd", None), ("adamw", None), ("sgd", 0.05)])
def test_one_optimizer_moves_peers_as_one_each_would(optimizer: Any, clip: float | None) -> None:
    """Against a loop of its own: two networks, two optimizers, each network's gradients clipped by themselves."""
    config = config_with(epochs=1, optimizer=optimizer, lr=0.01, clip_norm=clip, schedule="constant", batch_size=130)
    torch.manual_seed(0)
    pair = [nn.Linear(6, CLASSES), nn.Linear(6, CLASSES)]
    objective = Mutual(copy.deepcopy(pair), create_loss("dml", CLASSES))
    train(objective, config)
    examples, labels, _ = blobs()
    every = [peer(examples.rows) for peer in pair]
    for peer, own, other in zip(pair, every, reversed(every), strict=True):
        loss = F.cross_entropy(own, labels)
        loss = loss + F.kl_div(own.log_softmax(1), other.detach().softmax(1), reduction="batchmean")
        if optimizer == "sgd":
            stepper: Any = torch.optim.SGD(peer.parameters(), 0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
        else:
            stepper = torch.optim.AdamW(peer.parameters(), 0.01, weight_decay=1e-4)
        for parameter, gradient in zip(peer.parameters(), gradients(loss, peer), strict=True):
            parameter.grad = gradient
        if clip is not None:
            assert float(nn.utils.clip_grad_norm_(peer.parameters(), clip)) > clip
        stepper.step()
    for peer, learner in zip(pair, objective.learners, strict=True):
        torch.testing.assert_close(list(learner.parameters()), list(peer.parameters()), rtol=1e-4, atol=1e-6)


def test_learning_together_teaches_all() -> None:
    objective = make("dml")
    recorder = train(objective, config_with(epochs=5))
    assert set(recorder.records[-1]["parts"]) == {"hard", "divergence"}
    rows, labels = blobs()[2]
    objective.eval()
    for learner in objective.learners:
        assert float((learner(rows.rows).argmax(1) == labels).float().mean()) > 0.8
