"""What training at scale is made of, measured in small: bytes, milliseconds and messages; docs/scale.md does the sums.

    python benchmarks/scale.py [examples|messages|classes|rows|runs]

Times are of the processor, of one thread, so that other work on the machine counts little.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adaptive_labels.lab.config import TrainingConfig
from adaptive_labels.lab.models import create_model
from adaptive_labels.lab.objectives import Distilled, Mutual, Supervised
from adaptive_labels.lab.training import processes
from adaptive_labels.lab.training.checkpoints import write_checkpoint
from adaptive_labels.losses import METHODS, create_loss
from measure import peak_memory


def milliseconds(work: Callable[[], Any], rounds: int = 3) -> float:
    """The least processor time of a few rounds."""
    found = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        found.append(1000 * (time.process_time() - began))
    return min(found)


def examples() -> None:
    """An image of ImageNet's size from its file to a gradient, and a checkpoint of the network."""
    from PIL import Image

    from adaptive_labels.lab.data.pixels import read_random_view

    draw = np.random.default_rng(0)
    smooth = Image.fromarray(draw.integers(0, 255, (24, 32, 3), dtype=np.uint8)).resize((500, 375), Image.BICUBIC)
    noisy = np.clip(np.asarray(smooth) + draw.normal(0, 8, (375, 500, 3)), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(noisy).save(file, "JPEG", quality=90)
    data = file.getvalue()
    view = milliseconds(lambda: [read_random_view(data, 224, np.random.default_rng(i)) for i in range(20)]) / 20
    print(f"a JPEG of 500 x 375, {len(data) / 1000:.0f} kB, to a view of 224 x 224: {view:.2f} ms")
    network, criterion = create_model("resnet50", 1000), create_loss("alr-s", 1000)
    batch, labels = torch.randn(8, 3, 224, 224), torch.randint(1000, (8,))

    def step() -> None:
        criterion(network(batch), labels).backward()

    parameters = sum(p.numel() for p in network.parameters())
    print(f"resnet50: {parameters / 1e6:.1f} M parameters, gradients {4 * parameters / 1e6:.0f} MB")
    print(f"resnet50, forward and backward: {milliseconds(step, 2) / 8:.0f} ms an image on one core")
    momentum = {f"momentum/{name}": parameter.clone() for name, parameter in network.named_parameters()}
    tensors = {**network.state_dict(), **momentum}
    with tempfile.TemporaryDirectory() as folder:
        spent = milliseconds(lambda: write_checkpoint(Path(folder), 1, tensors, {}), 2)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    print(f"a checkpoint of it with momentum: {size / 1e6:.0f} MB, {spent:.0f} ms of the processor (hash and copies)")


WORKER = "import sys; sys.path.insert(0, {here!r}); import scale; scale.count_messages(int(sys.argv[1]), sys.argv[2])"


def count_messages(rank: int, meeting: str) -> None:
    """One of two processes: what each method sends in a step."""
    import torch.distributed as dist

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "training"))
    from training_parts import Memory, Rows

    from adaptive_labels.lab.training.loop import fit
    from adaptive_labels.lab.training.progress import Reporter

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    plain, sent = processes._together, []

    def counting(collective: Any, *given: Any, **options: Any) -> None:
        sent.append((collective.__name__, given[-1].nbytes if isinstance(given[-1], torch.Tensor) else 0))
        plain(collective, *given, **options)

    processes._together = counting
    classes, rows, labels = 100, torch.randn(64, 32), torch.arange(64) % 100
    cases = {"baseline": {}, "alr": {}, "dml": {}, "kd": {}, "alr, 4 pieces": {"accumulate": 4}}
    cases |= {"alr, synchronised batch norm": {"sync_batchnorm": True}}

    def network() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, classes))

    for case, changes in cases.items():
        counts = []
        for epochs in (1, 2):
            method = case.partition(",")[0]
            criterion, learns_from = create_loss(method, classes), METHODS[method].learns_from
            objective = Supervised(network(), criterion)
            if learns_from is not None:
                objective = Mutual([network(), network()], criterion) if learns_from == "peers" else None
                objective = objective or Distilled(network(), criterion, network())
            settings = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "schedule": "constant", "device": "cpu"}
            config = TrainingConfig(epochs=epochs, batch_size=32, augment=False, **settings, **changes)
            sent.clear()
            held_out = Rows(rows[:8]), labels[:8]
            fit(objective, Rows(rows), labels, held_out, config, 0, recorder=Memory(), reporter=Reporter())
            counts.append(list(sent))
        steps = [entry for entry in counts[1][len(counts[0]) :] if entry[0] in ("all_reduce", "all_gather")]
        steps = steps[: len(steps) - 1]  # without the one of the evaluation
        if rank == 0:
            print(f"{case}: {len(steps) / 2:.0f} messages a step, {sum(size for _, size in steps) / 2e3:.1f} kB")
    if rank == 0:
        print(f"(gradients of the network: {4 * sum(p.numel() for p in network().parameters()) / 1e3:.1f} kB)")
    flat = torch.ones(25_557_032)
    dist.all_reduce(flat)
    began = time.perf_counter()
    for _ in range(3):
        dist.all_reduce(flat)
    if rank == 0:
        print(f"all-reduce of 102 MB between two processes here (gloo): {(time.perf_counter() - began) / 3:.2f} s")
    dist.destroy_process_group()


def messages() -> None:
    """What two processes send each other in a step, by method."""
    script = WORKER.format(here=str(Path(__file__).parent))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", script]
        started = [subprocess.Popen([*command, str(rank), f"{folder}/meeting"]) for rank in range(2)]
        assert [process.wait() for process in started] == [0, 0]


def classes() -> None:
    """The criterion alone, forward and backward on 64 examples, by classes and rank."""
    for count, rank in [(1_000, None), (10_000, None), (1_000, 32), (10_000, 32), (100_000, 32), (100_000, 8)]:
        criterion = create_loss("alr", count, rank=rank, update="self")
        logits, labels = torch.randn(64, count, requires_grad=True), torch.randint(count, (64,))

        def step(criterion: Any = criterion, logits: torch.Tensor = logits, labels: torch.Tensor = labels) -> None:
            criterion(logits, labels).backward()

        spent, most = milliseconds(step), peak_memory(step)
        size = sum(4 * p.numel() for p in criterion.parameters())
        shown = f"K = {count:,}, {'dense' if rank is None else f'rank {rank}'}: S {size / 1e6:,.1f} MB"
        print(f"{shown}, logits {logits.nbytes / 1e6:.1f} MB, a step {spent:,.1f} ms and {most / 1e6:,.1f} MB more")


def rows() -> None:
    """Short texts from a table to what a network reads, and the order of an epoch."""
    from adaptive_labels.lab.data.encoders.ngrams import HashedNgrams
    from adaptive_labels.lab.training.batches import batches, slice_of

    texts = [f"word{i % 977} other{i % 131} some{i % 17} thing number{i % 7919}" for i in range(20_000)]
    fitted = HashedNgrams.fit(texts)
    spent = milliseconds(lambda: fitted.encode(texts), 2)
    encoded = fitted.encode(texts)
    held = sum(t.nbytes for t in vars(encoded).values() if isinstance(t, torch.Tensor | np.ndarray))
    mean = sum(map(len, texts)) / len(texts)
    print(f"texts of {mean:.0f} characters: {1000 * spent / len(texts):.1f} us and {held / len(texts):.0f} bytes each")
    for count in (1_000_000, 10_000_000):
        spent = milliseconds(lambda n=count: torch.randperm(n), 2)
        cut = milliseconds(lambda n=count: [slice_of(b, 1, 0) for b in batches(torch.arange(n), 512)], 2)
        print(
            f"the order of {count:,} rows: {spent:,.0f} ms, {8e-6 * count:,.0f} MB; into batches of 512: {cut:,.0f} ms"
        )


def runs() -> None:
    """What a run costs beside its training: a folder, its bytes, and reading it again."""
    import adaptive_labels
    from adaptive_labels.lab.analysis import read_run_records
    from adaptive_labels.lab.runs import list_runs

    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "texts.csv"
        table.write_text("text,label\n" + "".join(f"word{i % 7} kind{i % 3},c{i % 3}\n" for i in range(300)))
        quick = {"training": {"epochs": 1, "threads": 1}, "model": {"options": {"buckets": 512, "dim": 16}}}
        counts, times = (1, 13), []
        for seeds in counts:
            began = time.process_time()
            adaptive_labels.compare(table, ["alr"], seeds, out=Path(folder) / f"runs{seeds}", settings=quick, workers=1)
            times.append(time.process_time() - began)
        each = (times[1] - times[0]) / (counts[1] - counts[0])
        found = list_runs(Path(folder) / "runs13")
        size = sum(path.stat().st_size for run in found for path in run.path.iterdir()) / len(found)
        read = milliseconds(lambda: read_run_records(list_runs(Path(folder) / "runs13"))) / len(found)
        print(f"a run of 300 texts, 1 epoch: {1000 * each:.0f} ms of the processor, {size / 1000:.0f} kB")
        print(f"read again for a table: {read:.1f} ms")


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    parts = {part.__name__: part for part in (examples, messages, classes, rows, runs)}
    for name in sys.argv[1:] or parts:
        print(f"\n{name}: {parts[name].__doc__}")
        parts[name]()
    print(json.dumps({"torch": torch.__version__, "cores": os.cpu_count()}))
