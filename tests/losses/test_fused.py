"""The fused path: the same values, gradients and state as the plain path, by the kernel and by torch's operations."""

from __future__ import annotations

import copy
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from torch import Tensor, nn

from adaptive_labels.losses import AdaptiveLabelLoss
from adaptive_labels.losses.fused import kernel as kernels

ENGINES = ("kernel", "tensors")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> kernels.Kernel:
    """The kernel, compiled for this session."""
    if shutil.which("cc") is None:
        pytest.skip("the kernel needs a C compiler")
    from adaptive_labels.losses.fused.build import build

    return kernels.load(build(tmp_path_factory.mktemp("kernel")))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both engines in turn, whatever is installed."""
    if request.param == "kernel":
        kernel = request.getfixturevalue("compiled")
        monkeypatch.setattr(kernels, "find", lambda: (kernel, ""))
    else:
        monkeypatch.setattr(kernels, "find", lambda: (None, "taken away by the test"))
    return str(request.param)


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def pair(classes: int, dtype: torch.dtype = torch.float64, **options: Any) -> tuple[AdaptiveLabelLoss, ...]:
    """The same criterion twice: the fused one, which must be, and the plain one."""
    fused = AdaptiveLabelLoss(classes, update="optimizer", **options, fused=True).to(dtype)
    with torch.no_grad():
        for parameter in fused.residual_parameters():
            parameter.copy_(torch.randn(parameter.shape))
        fused.accuracy.running.fill_(0.4)
        fused.accuracy.last_epoch.fill_(0.3)
    plain = copy.deepcopy(fused)
    plain.fused = False
    return fused, plain


def results(criterion: AdaptiveLabelLoss, z: Tensor, y: Tensor, *weights: Tensor, upstream: float = 1.0) -> dict:
    """Everything that a step does: value, gradients, parts and state."""
    inputs = z.clone().requires_grad_()
    loss = criterion(inputs, y, *weights)
    (upstream * loss).backward()
    found = {"loss": loss.detach(), "logits": inputs.grad}
    for name, parameter in criterion.named_parameters():
        if parameter.grad is not None:
            found[f"{name}.grad"] = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
            parameter.grad = None
    found |= {f"parts.{name}": part for name, part in criterion.parts.items()}
    return found | {name: value.clone() for name, value in criterion.state_dict().items()}


def assert_same(engine: str, fused: AdaptiveLabelLoss, plain: AdaptiveLabelLoss, *batch: Any, **how: Any) -> None:
    upstream = how.pop("upstream", 1.0)
    ours, theirs = results(fused, *batch, upstream=upstream), results(plain, *batch, upstream=upstream)
    assert fused.fused_path == engine
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, **how, msg=lambda m, n=name: f"{n}: {m}")


OPTIONS = st.fixed_dictionaries(
    {
        "label_smoothing": st.sampled_from([0.0, 0.1, 0.3]),
        "reduction": st.sampled_from(["mean", "sum"]),
        "residual_weight": st.sampled_from(["running", "batch", "epoch", "waiting", 0.0, 0.7]),
        "normalization": st.sampled_from(["sum", "literal", "hybrid"]),
        "attraction": st.sampled_from([1.0, 0.0, -1.5, 2.0]),
        "smooth_over": st.sampled_from(["all", "others"]),
        "residual_reduction": st.sampled_from([None, "batch", "class"]),
        "ignore_index": st.sampled_from([-100, 1]),
        "frozen": st.booleans(),
    },
    optional={
        "update": st.just("self"),
        "sparse": st.just(True),
        "rank": st.just(2),
        "weight": st.just(True),
    },
)


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_equals_the_plain_path(engine: str, data: st.DataObject) -> None:
    """Two steps in float64 (the second with the state of the first), to 1e-10, over all options."""
    options = data.draw(OPTIONS)
    if options.get("update") == "self":
        options.pop("sparse", None)
    classes = data.draw(st.integers(2, 7))
    samples = data.draw(st.sampled_from([0, 1, 2, 5, 33]))
    torch.manual_seed(data.draw(st.integers(0, 10**6)))
    if options.pop("weight", False):
        options["weight"] = torch.rand(classes) * (torch.rand(classes) > 0.2)
    fused, plain = pair(classes, **options)
    for _ in range(2):
        z = data.draw(st.sampled_from([0.1, 1.0, 30.0])) * torch.randn(samples, classes, dtype=torch.float64)
        y = torch.randint(classes, (samples,))
        weights = [torch.rand(samples) * (torch.rand(samples) > 0.2)] if data.draw(st.booleans()) else []
        assert_same(engine, fused, plain, z, y, *weights, upstream=data.draw(st.sampled_from([1.0, -2.5])),
                    rtol=1e-9, atol=1e-10)  # fmt: skip


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("samples", "classes"), [(300, 3), (40, 1000), (3, 30_000), (200, 257), (1, 40_000)])
@pytest.mark.parametrize("options", [{}, {"update": "self"}, {"sparse": True}, {"rank": 3}, {"attraction": -1.0}])
def test_large_batches_with_threads(
    engine: str, samples: int, classes: int, dtype: torch.dtype, options: dict[str, Any]
) -> None:
    """Classes on the border of two threads, several chunks of samples, odd sizes."""
    if classes > 1000 and "rank" not in options:
        options = {**options, "rank": 2}
    fused, plain = pair(classes, dtype, label_smoothing=0.1, **options)
    z, y = 3 * torch.randn(samples, classes, dtype=dtype), torch.randint(min(classes, 20), (samples,))
    tolerance = {"rtol": 1e-9, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 2e-4, "atol": 2e-6}
    assert_same(engine, fused, plain, z, y, **tolerance)


@pytest.mark.usefixtures("two_threads")
def test_one_class_for_all_threads(engine: str) -> None:
    """A single label, so that every thread has a part in the same row of S."""
    for options in ({}, {"update": "self", "residual_reduction": "batch"}):
        fused, plain = pair(500, label_smoothing=0.1, **options)
        assert_same(engine, fused, plain, torch.randn(200, 500, dtype=torch.float64), torch.full((200,), 7))


@pytest.mark.parametrize("size", [90.0, 100.0, 1e4, 1e30])
@pytest.mark.parametrize("update", ["self", "optimizer"])
def test_extreme_logits(engine: str, size: float, update: str) -> None:
    fused, plain = pair(5, torch.float32, label_smoothing=0.1, update=update)
    z = torch.tensor([[1.0, 0, 0, 0, 0], [0, 1, 0, 0, -1], [-1, -1, -1, -1, 0], [0, 0, 0, 0, 0]]) * size
    for y in (torch.tensor([0, 1, 4, 2]), torch.tensor([1, 0, 0, 2])):
        assert_same(engine, fused, plain, z, y, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_masked_and_nan_logits(engine: str) -> None:
    """A class that is masked with −inf, and NaN: what the plain path says, and never something finite for NaN."""
    fused, plain = pair(4, torch.float32)
    z = torch.randn(3, 4)
    z[1, 2] = -torch.inf
    ours, theirs = fused(z.requires_grad_(), torch.tensor([0, 1, 2])), plain(z, torch.tensor([0, 1, 2]))
    torch.testing.assert_close(ours, theirs)
    nan = torch.randn(3, 4)
    nan[2, 1] = torch.nan
    assert fused(nan.requires_grad_(), torch.tensor([0, 1, 2])).isnan()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast(engine: str, dtype: torch.dtype) -> None:
    fused, plain = pair(6, torch.float32, label_smoothing=0.1, rank=2)
    z, y = torch.randn(8, 6).to(dtype), torch.randint(6, (8,))
    assert_same(engine, fused, plain, z, y)
    found = []
    for criterion in (fused, plain):
        inputs = z.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = criterion(inputs, y)
        loss.backward()
        assert loss.dtype == torch.float32
        found.append((loss.detach(), inputs.grad, criterion.residual_left.grad, criterion.residual_right.grad))
    torch.testing.assert_close(found[0], found[1])


def test_tied_logits_count_as_the_plain_path_counts_them(engine: str) -> None:
    fused, plain = pair(3, torch.float32, residual_weight="batch")
    z = torch.tensor([[1.0, 1, 1], [1, 1, 0], [0, 1, 1], [0, 0, 0]])
    for y in (torch.tensor([0, 1, 1, 2]), torch.tensor([2, 0, 2, 0])):
        assert_same(engine, fused, plain, z, y)


def test_layouts_and_shapes(engine: str) -> None:
    """Transposed logits, strided targets of another integer type, dense predictions, a single sample."""
    fused, plain = pair(5, update="self")
    z, y = torch.randn(5, 12, dtype=torch.float64).T, torch.randint(5, (24,), dtype=torch.int32)[::2]
    assert_same(engine, fused, plain, z, y)
    assert_same(engine, fused, plain, torch.randn(2, 5, 3, 4, dtype=torch.float64), torch.randint(5, (2, 3, 4)))
    assert_same(engine, fused, plain, torch.randn(5, dtype=torch.float64), torch.tensor(3))


def test_logits_without_gradient_still_train_the_residual_labels(engine: str) -> None:
    fused, plain = pair(4)
    z, y = torch.randn(6, 4, dtype=torch.float64), torch.randint(4, (6,))
    for criterion in (fused, plain):
        criterion(z, y).backward()
    torch.testing.assert_close(fused.residual_logits.grad, plain.residual_logits.grad)


def test_the_graph_can_be_kept_and_summed(engine: str) -> None:
    """Two backward passes through one graph, and two losses of one set of logits."""
    fused, plain = pair(4, update="self")
    y = torch.randint(4, (6,))
    grads = []
    for criterion in (fused, plain):
        torch.manual_seed(3)
        layer = nn.Linear(3, 4).double()
        z = layer(torch.randn(6, 3, dtype=torch.float64))
        loss = criterion(z, y) + 2 * criterion(z, y)
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        grads.append(layer.weight.grad)
    torch.testing.assert_close(grads[0], grads[1])


def test_second_derivatives_are_refused_and_first_ones_are_not(engine: str) -> None:
    fused, plain = pair(4)
    z, y = torch.randn(6, 4, dtype=torch.float64, requires_grad=True), torch.randint(4, (6,))
    (ours,) = torch.autograd.grad(fused(z, y), z, create_graph=True)
    (theirs,) = torch.autograd.grad(plain(z, y), z, create_graph=True)
    torch.testing.assert_close(ours, theirs)
    with pytest.raises(RuntimeError, match="fused=False"):
        ours.square().sum().backward()
    theirs.square().sum().backward()


def test_no_dense_gradient(engine: str) -> None:
    for options in ({"update": "self"}, {"sparse": True}, {"sparse": True, "rank": 2}):
        criterion, _ = pair(50, **options)
        before = [parameter.detach().clone() for parameter in criterion.residual_parameters()]
        z, y = torch.randn(4, 50, dtype=torch.float64, requires_grad=True), torch.tensor([3, 3, 9, 40])
        criterion(z, y).backward()
        first = criterion.residual_parameters()[0]
        if "update" in options:
            assert first.grad is None
            assert (before[0] != first).any(1).nonzero().flatten().tolist() == [3, 9, 40]
        else:
            assert first.grad is not None
            assert first.grad.is_sparse
            assert first.grad.coalesce().indices().flatten().tolist() == [3, 9, 40]


def test_a_wrong_label_is_named_and_changes_nothing(engine: str) -> None:
    for options in ({"update": "self"}, {"update": "self", "rank": 2}):
        fused, _ = pair(4, **options)
        before = copy.deepcopy(fused.state_dict())
        with pytest.raises(ValueError, match=r"target must be in \[0, 3\] .* got 4 at position 2"):
            fused(torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.tensor([0, 1, 4]))
        for name, value in fused.state_dict().items():
            assert torch.equal(value, before[name]), name


def test_accumulation_holds_the_weight(engine: str) -> None:
    fused, plain = pair(4)
    for criterion in (fused, plain):
        torch.manual_seed(1)
        with criterion.accumulation():
            for _ in range(3):
                criterion(torch.randn(6, 4, dtype=torch.float64, requires_grad=True), torch.randint(4, (6,)))
        criterion(torch.randn(6, 4, dtype=torch.float64, requires_grad=True), torch.randint(4, (6,)))
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(fused.state_dict()[name], value)


def test_training_is_the_same_step_by_step(engine: str) -> None:
    """Thirty steps of a network in float64: every loss of the list, not only the last."""
    histories = []
    for fused in (True, False):
        torch.manual_seed(5)
        model = nn.Linear(6, 5).double()
        criterion = AdaptiveLabelLoss(5, 0.1, update="optimizer", fused=fused).double()
        groups = [{"params": model.parameters()}, *criterion.parameter_groups()]
        optimizer = torch.optim.SGD(groups, lr=0.5, momentum=0.9)
        history = []
        for _ in range(30):
            x = torch.randn(16, 6, dtype=torch.float64)
            loss = criterion(model(x), x[:, :5].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        histories.append(history)
    assert histories[0] == pytest.approx(histories[1], rel=1e-9)


REFUSED = [
    ({}, (torch.randn(2, 3), torch.full((2, 3), 1 / 3)), "class probabilities"),
    ({"reduction": "none"}, (torch.randn(2, 3), torch.tensor([0, 1])), "reduction='none'"),
]


@pytest.mark.parametrize(("options", "batch", "words"), REFUSED)
def test_what_cannot_be_fused(options: dict[str, Any], batch: tuple[Tensor, Tensor], words: str) -> None:
    with pytest.raises(ValueError, match=f"fused=True: .*{words}"):
        AdaptiveLabelLoss(3, update="optimizer", **options, fused=True)(*batch)
    automatic = AdaptiveLabelLoss(3, update="optimizer", **options)
    automatic(*batch)
    assert automatic.fused_path == "plain"
    assert automatic.fused_reason is not None
    assert words in automatic.fused_reason


def test_the_reason_for_torchs_operations_is_said(monkeypatch: pytest.MonkeyPatch, compiled: kernels.Kernel) -> None:
    criterion = AdaptiveLabelLoss(3, update="optimizer")
    with kernels.switched_off():
        criterion(torch.randn(2, 3), torch.tensor([0, 1]))
    assert (criterion.fused_path, criterion.fused_reason) == ("tensors", "the kernel is switched off")
    monkeypatch.setattr(kernels, "find", lambda: (compiled, ""))
    criterion(torch.randn(2, 3), torch.tensor([0, 1]))
    assert (criterion.fused_path, criterion.fused_reason) == ("kernel", None)
    criterion(torch.randn(2, 3, dtype=torch.float64), torch.tensor([0, 1]))
    assert criterion.fused_path == "tensors"
    assert "logits' dtype torch.float64" in (criterion.fused_reason or "")


class Sharded(Tensor):
    """A kind of tensor whose address is not that of its values, as a DTensor's."""

    def data_ptr(self) -> int:
        raise AssertionError("this ends the process")


@pytest.mark.parametrize("update", ["optimizer", "self"])
def test_the_kernel_never_reads_a_subclass_of_tensor(update: str, compiled: kernels.Kernel) -> None:
    criterion = AdaptiveLabelLoss(3, update=update)
    shards = criterion.residual_logits.detach().as_subclass(Sharded)
    criterion.residual_logits = torch.nn.Parameter(shards, requires_grad=update == "optimizer")
    criterion(torch.randn(2, 3, requires_grad=True), torch.tensor([0, 1])).backward()
    assert criterion.fused_path == "tensors"


@pytest.mark.parametrize("flags", [["-DADAPTIVE_LABELS_PORTABLE"], ["-fno-openmp"]], ids=["portable", "one-thread"])
def test_other_processors_and_compilers(
    flags: list[str], compiled: kernels.Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without AVX2, and without OpenMP."""
    from adaptive_labels.losses.fused.build import build

    kernel = kernels.load(build(tmp_path, flags))
    monkeypatch.setattr(kernels, "find", lambda: (kernel, ""))
    for options in ({"attraction": -2.0}, {"update": "self", "rank": 2}, {"residual_weight": "batch"}):
        fused, plain = pair(300, torch.float32, label_smoothing=0.1, **options)
        z, y = torch.randn(120, 300), torch.randint(9, (120,))
        assert_same("kernel", fused, plain, z, y, rtol=2e-4, atol=2e-6)


def test_the_criterion_can_be_copied_and_pickled_after_a_step(engine: str) -> None:
    fused, _ = pair(4)
    fused(torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.tensor([0, 1, 2]))
    for copied in (copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
        assert copied.fused_path == engine
        assert {name: part.item() for name, part in copied.parts.items()} == {
            name: part.item() for name, part in fused.parts.items()
        }


def test_torch_compile_fuses_by_itself(engine: str) -> None:
    """Inside a compiled function the plain path is traced, also where the fused one is demanded."""
    fused, plain = pair(4, update="self")
    run = torch.compile(fused, fullgraph=True, backend="eager")
    z, y = torch.randn(6, 4, dtype=torch.float64), torch.randint(4, (6,))
    for _ in range(2):
        torch.testing.assert_close(run(z.requires_grad_(), y), plain(z, y))
    torch.testing.assert_close(fused.residual_logits, plain.residual_logits)
    fused(z, y)
    assert fused.fused_path == engine


def test_find_names_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernels, "FOLDER", tmp_path)
    find = kernels._built.__wrapped__  # without its cache
    assert find() == (None, f"the kernel has not been built; `{kernels.BUILD}` does it where there is a C compiler")
    import importlib.machinery

    broken = tmp_path / (kernels.NAME + importlib.machinery.EXTENSION_SUFFIXES[0])
    broken.write_bytes(b"not a library")
    kernel, reason = find()
    assert kernel is None
    assert reason.startswith("the kernel does not load")


def test_building_without_a_compiler_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from adaptive_labels.losses.fused.build import build

    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ValueError, match="there is no C compiler 'no-such-compiler'"):
        build(tmp_path)


def test_a_kernel_of_other_sources_is_not_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from adaptive_labels.losses.fused.build import build

    build(tmp_path)
    monkeypatch.setattr(kernels, "FOLDER", tmp_path)
    find = kernels._built.__wrapped__  # without its cache
    assert find()[0] is not None
    monkeypatch.setattr(kernels, "INTERFACE", kernels.INTERFACE + 1)
    assert find() == (None, f"the kernel was built from other sources; build it again with `{kernels.BUILD}`")
