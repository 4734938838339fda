"""Several processes that train one run: each computes its slice of every batch, and the first one writes.

Each process runs the network on its slice. Then the logits of all processes are gathered, and every process computes
the same loss of the whole batch. So methods need not know about processes, and their state is the same everywhere.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from adaptive_labels.errors import UserError
from adaptive_labels.lab.config import ConfigError
from adaptive_labels.lab.machine import launched

T = TypeVar("T")
# A killed process is noticed by its closed connection. Only the first one may work long while the others wait.
PATIENCE = timedelta(days=1)


class LostProcessError(UserError):
    """Another process of the run has ended; the sentence says how to go on."""


def start() -> None:
    """Join the processes that were started with this one, if there are any."""
    if launched()[1] > 1 and not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        store, rank, world = next(rendezvous("env://"))
        store = _of_this_attempt(store, rank, world)
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)


def _of_this_attempt(store: Store, rank: int, world: int) -> Store:
    """A store without what processes left in it that torchrun has restarted: dead addresses, to which gloo connects.

    The first process names the attempt, and greets every name that is new, until all have answered. Torchrun counts
    restarts, but on each machine by itself.
    """
    attempt = uuid.uuid4().hex
    if rank > 0:
        store.set(f"alr/hello/{rank}", attempt)
        attempt = store.get(f"alr/welcome/{attempt}").decode()
        store.set(f"alr/joined/{attempt}/{rank}", "")
    others = range(1, world) if rank == 0 else ()
    while not all(store.check([f"alr/joined/{attempt}/{other}"]) for other in others):
        for other in others:
            if store.check([f"alr/hello/{other}"]):
                store.set(f"alr/welcome/{store.get(f'alr/hello/{other}').decode()}", attempt)
        time.sleep(0.02)
    return PrefixStore(attempt, store)


def stop() -> None:
    if world() > 1:
        dist.destroy_process_group()


def world() -> int:
    """How many processes train a run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if world() > 1 else 0


def from_first(make: Callable[[], T]) -> T:
    """Call ``make`` in the first process, and return its result in all of them; an error there is raised in all."""
    if world() == 1:
        return make()
    box: list[Any] = [None]
    if rank() == 0:
        try:
            box = [(make(), None)]
        except Exception as error:
            box = [(None, error)]
    _together(dist.broadcast_object_list, box, src=0)
    value, problem = box[0]
    if problem is not None:
        problem.everywhere = True
        raise problem
    made: T = value
    return made


def is_everywhere(error: BaseException) -> bool:
    """Whether all processes have met this error, so that they can go on together."""
    return bool(getattr(error, "everywhere", False))


def gather(rows: Tensor, sizes: Sequence[int]) -> Tensor:
    """The rows of all processes in their order, as many of each as ``sizes`` says. Only its own have gradients."""
    mine = rows[: sizes[rank()]]
    if len(sizes) == 1:
        return mine
    sent = mine.new_zeros(max(sizes), *mine.shape[1:])
    sent[: len(mine)] = mine.detach()
    received = [torch.empty_like(sent) for _ in sizes]
    _together(dist.all_gather, received, sent)
    parts = [part[:size] for part, size in zip(received, sizes, strict=True)]
    parts[rank()] = mine
    return torch.cat(parts)


def share_state(tensors: Iterable[Tensor]) -> None:
    for tensor in tensors:
        sent = tensor.contiguous()
        _together(dist.broadcast, sent, src=0)
        if sent is not tensor:
            tensor.copy_(sent)


@torch.no_grad()
def sum_gradients(parameters: Sequence[Tensor], sparse: set[Tensor], notices: Sequence[float]) -> list[float]:
    """Add up the gradients of all processes in one message, and in two more for each sparse one.

    Returns the sums of ``notices``, a few numbers that travel along.
    """
    dense = [parameter for parameter in parameters if parameter not in sparse]
    given = [float(parameter.grad is not None) for parameter in dense]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in dense]
    extra = torch.tensor([*given, *notices], device=parameters[0].device)
    flat = torch.cat([*(gradient.reshape(-1) for gradient in gradients), extra])
    _together(dist.all_reduce, flat)
    sizes = [gradient.numel() for gradient in gradients]
    *sums, ends = flat.split([*sizes, len(extra)])  # type: ignore[no-untyped-call]
    totals: list[float] = ends.tolist()
    for parameter, gradient, added, count in zip(dense, gradients, sums, totals, strict=False):
        # A parameter that no process has used keeps no gradient, so that the optimizer leaves it alone.
        parameter.grad = gradient.copy_(added.view_as(gradient)) if count else None
    for parameter in parameters:
        if parameter in sparse:
            parameter.grad = _summed_rows(parameter)
    return totals[len(given) :]


def _summed_rows(parameter: Tensor) -> Tensor:
    """The sum of a sparse gradient over the processes: the rows of all of them."""
    mine = parameter.grad.coalesce() if parameter.grad is not None else None
    numbers = parameter.new_zeros(0, dtype=torch.long) if mine is None else mine.indices()[0]
    values = parameter.new_zeros(0, *parameter.shape[1:]) if mine is None else mine.values()
    counts = [torch.zeros((), dtype=torch.long) for _ in range(world())]
    _together(dist.all_gather, counts, torch.tensor(len(numbers)))
    sizes = [int(count) for count in counts]
    rows = gather(numbers, sizes).unsqueeze(0)
    return torch.sparse_coo_tensor(rows, gather(values, sizes), parameter.shape).coalesce()


class _Sum(torch.autograd.Function):
    """A sum over the processes; so is its gradient."""

    @staticmethod
    def forward(ctx: Any, mine: Tensor) -> Tensor:
        whole = mine.clone()
        _together(dist.all_reduce, whole)
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _Sum.forward(ctx, gradients[0].contiguous())


class WholeBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm that in training takes mean and variance of the inputs of all processes.

    rows: how many of this process's next inputs count; a process without examples computes some of another's.
    """

    def __init__(self, norm: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        self._parameters, self._buffers = norm._parameters, norm._buffers  # shared, under the same names
        self.train(norm.training)
        self.rows = 0

    def _check_input_dim(self, input: Tensor) -> None:
        """Any (N, C, …)."""

    def forward(self, x: Tensor) -> Tensor:
        """x (N, C, …), normalised per channel."""
        if not self.training:
            return super().forward(x)
        wide, (channels, dims) = x.float(), (x.shape[1], [0, *range(2, x.dim())])
        mine, shape = wide[: self.rows], (1, channels, *[1] * (x.dim() - 2))
        sums: Any = _Sum.apply(torch.cat([mine.sum(dims), mine.new_tensor([mine.numel() / channels])]))  # type: ignore[no-untyped-call]
        count, mean = sums[-1].detach(), sums[:-1] / sums[-1].detach()
        squares: Any = _Sum.apply((mine - mean.view(shape)).square().sum(dims))  # type: ignore[no-untyped-call]
        variance = squares / count
        if self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            step = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
            assert self.running_mean is not None
            assert self.running_var is not None
            self.running_mean.lerp_(mean.detach(), step)
            self.running_var.lerp_(variance.detach() * (count / (count - 1).clamp_min(1)), step)
        normal = (wide - mean.view(shape)) * (variance.view(shape) + self.eps).rsqrt()
        if self.weight is not None:
            normal = normal * self.weight.view(shape)
        if self.bias is not None:
            normal = normal + self.bias.view(shape)
        done: Tensor = normal.to(x.dtype)
        return done


def share_batch_norm(network: nn.Module) -> list[WholeBatchNorm]:
    """Put batch norms over all processes in the place of a network's own; a `ConfigError` if it has special ones."""
    kind = nn.modules.batchnorm._BatchNorm
    shared = []
    for parent in list(network.modules()):
        for name, norm in parent.named_children():
            if not isinstance(norm, kind):
                continue
            if type(norm).forward is not kind.forward:
                raise ConfigError(f"training.sync_batchnorm is true, but {type(norm).__name__} is of a kind of its own")
            shared.append(WholeBatchNorm(norm))
            setattr(parent, name, shared[-1])
    return shared


def _together(collective: Callable[..., Any], *given: Any, **options: Any) -> None:
    """Call something that all processes call; the error says so if one of them has ended."""
    try:
        collective(*given, **options)
    except RuntimeError as error:
        raise LostProcessError(
            "another process of this run has ended, or cannot be reached any more: the same command goes on from the "
            "last checkpoint"
        ) from error
