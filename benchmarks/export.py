"""Time exported networks beside the evaluation of training, on up to 1,000 validation inputs of runs.

python benchmarks/export.py --threads 1 --cpu-time RUN [RUN …]

Needs the extra `export`. "evaluation" encodes the inputs as training does and computes the logits; "encode.py" and
"onnxruntime" are the two halves of what an export does. The rows "bag: …" are ways to write a bag of n-grams for
onnxruntime, on made-up ids; exports have "bag: lines".
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn
from torch.export import Dim, export
from torch.nn import functional as F

from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.export.encode import Encoder, lines, padded
from adaptive_labels.lab.experiments.export.folder import export_run, some_inputs
from adaptive_labels.lab.experiments.export.network import Bag
from adaptive_labels.lab.experiments.prediction import whole_network
from adaptive_labels.lab.runs import RunFolder
from adaptive_labels.lab.training.evaluation import predict_logits
from measure import Row, Step, described, make_parser, measure, ratio_row, turns

EVALUATION, ENCODE, RUNTIME, LINES = "evaluation", "encode.py", "onnxruntime", "bag: lines"
INPUTS, BATCH = 1_000, 64


def session_of(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def steps_of_run(path: Path, folder: Path) -> tuple[int, dict[str, Step]]:
    """How many inputs there are, and what is timed on them."""
    run = RunFolder(path)
    export_run(path, folder, ["onnx"])
    network, encoder, _ = whole_network(run)
    dataset, session, encode = build.data_of_run(run), session_of(folder / "model.onnx"), Encoder.load(folder)
    inputs = some_inputs(dataset, INPUTS)
    given: Any = dataset.validation.inputs
    chosen = np.unique(np.linspace(0, len(given) - 1, len(inputs)).round().astype(np.int64))
    given = [given[i] for i in chosen.tolist()] if isinstance(given, list) else given[chosen]
    batches = [encode(inputs[start : start + BATCH]) for start in range(0, len(inputs), BATCH)]
    return len(inputs), {
        EVALUATION: lambda: predict_logits(network, encoder.encode(given), batch_size=BATCH),
        ENCODE: lambda: [encode(inputs[start : start + BATCH]) for start in range(0, len(inputs), BATCH)],
        RUNTIME: lambda: [session.run(None, arrays) for arrays in batches],
    }


class Padded(nn.Module):
    """Means of embeddings for ids that are padded with 0."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        inside = (torch.arange(ids.shape[1]) < lengths[:, None]).to(self.weight.dtype) / lengths[:, None]
        means: Tensor = (inside[:, None, :] @ F.embedding(ids, self.weight))[:, 0]
        return means


def steps_of_bags(folder: Path, texts: int = 256, buckets: int = 2**16, dim: int = 64) -> dict[str, Step]:
    """The forms of a bag, on texts of 60 to 300 ids."""
    draw, weight = np.random.default_rng(0), torch.randn(buckets, dim)
    lists = [draw.integers(0, buckets, length).tolist() for length in draw.integers(60, 300, texts)]
    wide = list(padded(lists).values())
    flat = [np.concatenate(lists), np.cumsum([0, *map(len, lists[:-1])])]
    ids, rows, some = Dim("ids"), Dim("texts"), Dim("longest")
    loop = nn.EmbeddingBag(buckets, dim, mode="mean", _weight=weight)
    forms: dict[str, tuple[nn.Module, list[Any], Any]] = {
        LINES: (Bag(weight), list(lines(lists).values()), ({0: ids}, {0: rows})),
        "bag: padded": (Padded(weight), wide, ({0: rows, 1: some}, {0: rows})),
        "bag: loop": (loop, flat, ({0: ids}, {0: rows})),
    }
    steps: dict[str, Step] = {}
    for name, (module, arrays, shapes) in forms.items():
        program = export(module.eval(), tuple(map(torch.from_numpy, arrays)), dynamic_shapes=shapes)
        written = torch.onnx.export(program, dynamo=True, verbose=False)
        assert written is not None
        written.save(folder / "bag.onnx")
        session = session_of(folder / "bag.onnx")
        feeds = {entry.name: array for entry, array in zip(session.get_inputs(), arrays, strict=True)}
        steps[name] = lambda session=session, feeds=feeds: session.run(None, feeds)
    found = [np.asarray(step()) for step in steps.values()]
    assert all(np.allclose(found[0][0], other[0], atol=1e-5) for other in found)
    return steps


def bench_export(runs: list[Path], seconds: float, cpu_time: bool = False) -> dict[str, Any]:
    """Rows for the forms of a bag, then for each run."""
    import time

    clock = time.process_time if cpu_time else time.perf_counter
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        every = {"a bag of n-grams": (256, LINES, steps_of_bags(Path(name)))}
        for place, path in enumerate(runs):
            examples, steps = steps_of_run(path, Path(name) / str(place))
            every[path.name.rpartition("-")[0]] = examples, EVALUATION, steps
        for what, (examples, beside, steps) in every.items():
            times = turns(steps, seconds / len(every), warm_up=1, clock=clock)
            for step in steps:
                row = ratio_row(times, step, None if step == beside else beside)
                about = {"run": what, "step": step, "examples": examples}
                rows.append({**about, "examples_per_second": examples / row["seconds"], **row})
    return described(rows, name="step", group="run", unit="all inputs", clock=clock.__name__)


if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    measure(bench_export, parser.parse_args())
