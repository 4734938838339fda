"""One loss, computed in several ways: in closed form by the kernel and by torch, and by the plain functions."""

from __future__ import annotations

import copy
import pickle
import shutil
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from torch import Tensor, nn

from adaptive_labels.losses import AdaptiveLabelLoss, LowRankAdaptiveLabelLoss
from adaptive_labels.losses.base import Criterion
from adaptive_labels.losses.fused import kernel as kernels
from adaptive_labels.losses.fused.build import build

EXACT = {"rtol": 1e-10, "atol": 1e-10}
FORMS = ("index", "pair", "sparse", "dense")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> kernels.Kernel:
    """The kernel, compiled for this session."""
    if shutil.which("cc") is None:
        pytest.skip("the kernel needs a C compiler")
    return kernels.load(build(tmp_path_factory.mktemp("kernel")))


class Plain:
    """A criterion that computes by the plain functions, which it does by itself while it is compiled."""

    def __init__(self, criterion: AdaptiveLabelLoss) -> None:
        criterion._active_loss = lambda batch, world: Criterion._active_loss(  # type: ignore[method-assign]
            criterion, batch.with_probabilities(), world
        )
        self.criterion = criterion


def make(classes: int, rank: int | None, dtype: torch.dtype = torch.float64, **options: Any) -> AdaptiveLabelLoss:
    """A criterion that has learned something."""
    criterion = LowRankAdaptiveLabelLoss(classes, rank, **options) if rank else AdaptiveLabelLoss(classes, **options)
    with torch.no_grad():
        for name, value in criterion.state_dict(keep_vars=True).items():
            if name.startswith("residual"):
                value.normal_()
        criterion.accuracy.running.fill_(0.4)
    return criterion.to(dtype)


def target_of(form: str, samples: int, classes: int) -> Any:
    labels, others = torch.randint(classes, (2, samples))
    if form == "index":
        return labels
    if form == "pair":
        return labels, others, torch.rand(samples)
    if form == "sparse":
        rows = torch.zeros(samples, classes).scatter_add_(1, labels.unsqueeze(1), torch.full((samples, 1), 0.3))
        return rows.scatter_add_(1, others.unsqueeze(1), torch.full((samples, 1), 0.7)).double()
    return torch.randn(samples, classes).double().softmax(1)


def results(criterion: AdaptiveLabelLoss, way: str, kernel: Any, z: Tensor, *batch: Any) -> dict[str, Tensor]:
    """Everything that a step does: value, gradients, parts and state, computed in one of the ways."""
    criterion, inputs = copy.deepcopy(criterion), z.clone().requires_grad_()
    if way == "plain":
        Plain(criterion)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "find", lambda: (kernel if way == "kernel" else None, ""))
        loss = criterion(inputs, *batch)
        upstream = torch.randn(loss.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        (loss * upstream).sum().backward()
    found = {"loss": loss.detach(), "logits": inputs.grad, **criterion.parts, **criterion.state_dict()}
    found |= {f"{name}.grad": parameter.grad for name, parameter in criterion.named_parameters()}
    return found


def assert_all_agree(criterion: AdaptiveLabelLoss, kernel: Any, *batch: Any, **tolerance: Any) -> None:
    expected = results(criterion, "plain", kernel, *batch)
    for way in ("kernel", "torch"):
        found = results(criterion, way, kernel, *batch)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(
                found[name].to(value.dtype), value, **tolerance, msg=lambda m, w=f"{way}, {name}": f"{w}: {m}"
            )


OPTIONS = st.fixed_dictionaries(
    {
        "label_smoothing": st.sampled_from([0.0, 0.1, 0.3]),
        "reduction": st.sampled_from(["mean", "sum", "none"]),
        "residual_weight": st.sampled_from(["running", "waiting", 0.0, 0.7]),
        "attraction": st.sampled_from([1.0, 0.0, -1.5, 2.0]),
        "update": st.sampled_from(["self", "optimizer", "frozen"]),
    }
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_all_ways_agree(compiled: kernels.Kernel, data: st.DataObject) -> None:
    options, form = data.draw(OPTIONS), data.draw(st.sampled_from(FORMS))
    classes, samples = data.draw(st.integers(2, 9)), data.draw(st.sampled_from([0, 1, 2, 5, 20]))
    torch.manual_seed(data.draw(st.integers(0, 10**6)))
    target = target_of(form, samples, classes)
    if form in ("index", "pair") and data.draw(st.booleans()):
        options["ignore_index"] = 1
    if data.draw(st.booleans()):
        options["weight"] = torch.rand(classes) * (torch.rand(classes) > 0.2)
    criterion = make(classes, data.draw(st.sampled_from([None, None, 2])), **options)
    z = data.draw(st.sampled_from([0.1, 1.0, 40.0])) * torch.randn(samples, classes, dtype=torch.float64)
    weights = [torch.rand(samples) * (torch.rand(samples) > 0.2)] if data.draw(st.booleans()) else []
    assert_all_agree(criterion, compiled, z, target, *weights, **EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("samples", "classes"), [(300, 3), (40, 700), (200, 257), (3, 5000)])
@pytest.mark.parametrize("form", ["index", "pair"])
def test_large_batches_with_threads(
    compiled: kernels.Kernel, samples: int, classes: int, dtype: torch.dtype, form: str
) -> None:
    """Several blocks and threads, odd sizes, many samples of a class."""
    torch.set_num_threads(2)
    try:
        criterion = make(classes, None, dtype, label_smoothing=0.1, attraction=-1.0)
        z, target = 3 * torch.randn(samples, classes, dtype=dtype), target_of(form, samples, min(classes, 20))
        exact, close = {"rtol": 1e-9, "atol": 1e-10}, {"rtol": 2e-4, "atol": 2e-6}
        expected = results(criterion, "torch", None, z, target)
        for name, found in results(criterion, "kernel", compiled, z, target).items():
            torch.testing.assert_close(found, expected[name], **(exact if dtype == torch.float64 else close))
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["kernel", "torch"])
def test_gradcheck(compiled: kernels.Kernel, monkeypatch: pytest.MonkeyPatch, form: str, way: str) -> None:
    monkeypatch.setattr(kernels, "find", lambda: (compiled if way == "kernel" else None, ""))
    criterion = make(6, None, label_smoothing=0.1, residual_weight=0.7, update="frozen")
    z = (torch.arange(24).double().reshape(4, 6) * 5 % 7 / 3).requires_grad_()  # no ties within a row
    target = target_of(form, 4, 6)
    assert torch.autograd.gradcheck(lambda z: criterion(z, target), (z,))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["kernel", "torch"])
def test_p_res_keeps_its_digits_when_p_y_is_one(compiled: kernels.Kernel, form: str, way: str) -> None:
    """In float32, with p_y = 1 to the last bit, and with others of probability 1e-4 and below."""
    for size in (0.1, 20.0, 90.0, 200.0):
        z = torch.randn(8, 5).double()
        target = target_of(form, 8, 5)
        largest = target if form == "index" else target[0] if form == "pair" else target.argmax(1)
        z.scatter_add_(1, largest.unsqueeze(1), torch.full((8, 1), size).double())
        criterion = make(5, None, residual_weight=1.0)
        expected = results(criterion, "plain", None, z, target)
        found = results(criterion.float(), way, compiled, z.float(), target)
        for name in ("logits", "residual_logits", "loss"):
            torch.testing.assert_close(found[name].double(), expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size", [100.0, 1e4, 1e30])
@pytest.mark.parametrize("form", ["index", "pair", "dense"])
def test_extreme_logits(compiled: kernels.Kernel, size: float, form: str) -> None:
    z = torch.tensor([[1.0, 0, 0, 0, 0], [0, 1, 0, 0, -1], [-1, -1, -1, -1, 0], [0, 0, 0, 0, 0]]) * size
    for way in ("kernel", "torch"):
        found = results(make(5, None, torch.float32, label_smoothing=0.1), way, compiled, z, target_of(form, 4, 5))
        assert all(bool(value.isfinite().all()) for value in found.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast(compiled: kernels.Kernel, dtype: torch.dtype) -> None:
    criterion = make(6, None, torch.float32)
    z, target = torch.randn(8, 6).to(dtype), target_of("index", 8, 6)
    expected = results(criterion, "torch", None, z.float(), target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for way in ("kernel", "torch", "plain"):
            found = results(criterion, way, compiled, z, target)
            assert found["loss"].dtype == torch.float32
            assert found["logits"].dtype == dtype
            torch.testing.assert_close(found["loss"], expected["loss"])


def test_layouts_and_shapes(compiled: kernels.Kernel) -> None:
    """Transposed logits, strided targets of another integer type, dense predictions, a single sample."""
    criterion = make(5, None)
    labels = torch.randint(5, (24,), dtype=torch.int32)[::2]
    assert_all_agree(criterion, compiled, torch.randn(5, 12, dtype=torch.float64).T, labels, **EXACT)
    dense = torch.randn(2, 5, 3, 4, dtype=torch.float64)
    assert_all_agree(criterion, compiled, dense, torch.randint(5, (2, 3, 4)), **EXACT)
    pair = (torch.randint(5, (2, 3, 4)), torch.randint(5, (2, 3, 4)), torch.rand(2))
    assert_all_agree(criterion, compiled, dense, pair, **EXACT)
    assert_all_agree(criterion, compiled, torch.randn(5, dtype=torch.float64), torch.tensor(3), **EXACT)


def test_a_graph_can_be_kept_and_losses_be_added() -> None:
    """S moves once for each loss, however often it is differentiated."""
    z, y = torch.randn(6, 4, dtype=torch.float64, requires_grad=True), torch.randint(4, (6,))
    once, twice = make(4, None), None
    twice = copy.deepcopy(once)
    once(z, y).backward()
    first = z.grad.clone()
    loss = twice(z, y)
    loss.backward(retain_graph=True)
    loss.backward()
    torch.testing.assert_close(z.grad, 3 * first)
    assert torch.equal(once.residual_logits, twice.residual_logits)
    assert torch.equal(once.accuracy.pending_counts, twice.accuracy.pending_counts)
    (twice(z, y) + twice(z, y)).backward()
    assert twice.accuracy.pending_counts[1] == 12


def test_the_functions_have_second_derivatives_and_the_criterion_says_that_it_has_none() -> None:
    z, y = torch.randn(6, 4, dtype=torch.float64, requires_grad=True), torch.randint(4, (6,))
    criterion = make(4, None)
    (gradient,) = torch.autograd.grad(criterion(z, y), z, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.square().sum().backward()
    plain = make(4, None, update="frozen", residual_weight=0.7)
    Plain(plain)
    assert torch.autograd.gradgradcheck(lambda z: plain(z, y), (z,))


@pytest.mark.parametrize("form", FORMS)
def test_how_many_operations_are_launched_without_the_kernel(form: str) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            views = ("view", "unsqueeze", "squeeze", "select", "slice", "t.", "detach", "expand", "as_strided", "alias")
            self.count += not any(word in str(func) for word in views)
            return func(*args, **(kwargs or {}))

    criterion, z, target = make(10, None), torch.randn(8, 10).double().requires_grad_(), target_of(form, 8, 10)
    with kernels.switched_off(), Counter() as counter:
        criterion(z, target).backward()
    assert counter.count <= (70 if form == "index" else 140)


def test_one_processors_and_compilers_are_like_others(
    compiled: kernels.Kernel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without AVX2, with that and no more, and without OpenMP."""
    criterion = make(300, None, torch.float32, label_smoothing=0.1)
    z, y = torch.randn(120, 300), torch.randint(9, (120,))
    expected = results(criterion, "kernel", compiled, z, y)
    for flags in (["-DADAPTIVE_LABELS_PORTABLE"], ["-DADAPTIVE_LABELS_AVX2"], ["-fno-openmp"]):
        kernel = kernels.load(build(tmp_path_factory.mktemp("other"), flags))
        for name, found in results(criterion, "kernel", kernel, z, y).items():
            torch.testing.assert_close(found, expected[name], rtol=2e-4, atol=2e-6)


class Sharded(Tensor):
    """A kind of tensor whose address is not that of its values, as a DTensor's."""

    def data_ptr(self) -> int:
        raise AssertionError("this ends the process")


def test_the_kernel_never_reads_a_subclass_of_tensor(compiled: kernels.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "find", lambda: (compiled, ""))
    for update in ("self", "optimizer"):
        criterion = AdaptiveLabelLoss(3, update=update)
        shards = criterion.residual_logits.detach().as_subclass(Sharded)
        criterion.residual_logits = nn.Parameter(shards) if update == "optimizer" else shards
        criterion(torch.randn(2, 3, requires_grad=True), torch.tensor([0, 1])).backward()


def test_a_criterion_can_be_copied_and_pickled_after_a_step() -> None:
    for criterion in (make(4, None), make(4, 2), make(4, None, update="optimizer")):
        criterion(torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.tensor([0, 1, 2])).backward()
        for copied in (copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
            assert copied.parts == criterion.parts


def test_find_names_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Any, compiled: kernels.Kernel) -> None:
    monkeypatch.setattr(kernels, "FOLDER", tmp_path)
    find = kernels._built.__wrapped__  # without its cache
    assert find() == (None, f"the kernel has not been built; `{kernels.BUILD}` does it where there is a C compiler")
    import importlib.machinery

    library = tmp_path / (kernels.NAME + importlib.machinery.EXTENSION_SUFFIXES[0])
    library.write_bytes(b"not a library")
    assert find()[1].startswith("the kernel does not load")
    library.unlink()
    monkeypatch.undo()
    build(tmp_path)
    monkeypatch.setattr(kernels, "FOLDER", tmp_path)
    assert find()[0] is not None
    monkeypatch.setattr(kernels, "INTERFACE", kernels.INTERFACE + 1)
    assert find() == (None, f"the kernel was built from other sources; build it again with `{kernels.BUILD}`")
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ValueError, match="there is no C compiler 'no-such-compiler'"):
        build(tmp_path)
