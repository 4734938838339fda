"""Time the image encoder beside onnxruntime: the same weights, images and batches, one thread each, in turns.

python benchmarks/encoders.py [--size 160] [--batch 16] [--rounds 15]

Needs the extra `encoders`, onnx and onnxruntime. A ratio above 1: ours is faster. It is the median over rounds
in which each variant takes one turn, of processor time, so that a busy machine does not count. "as trained" is the
network before norms are taken into the convolutions, and without the channels_last layout.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from adaptive_labels.lab.models.pretrained.efficientnet_lite import load_efficientnet_lite0, read_efficientnet_lite0


def onnx_session(images: torch.Tensor) -> onnxruntime.InferenceSession:
    """Our folded network, exported and opened with all of onnxruntime's optimisations."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        torch.onnx.export(load_efficientnet_lite0(), (images,), str(path), dynamo=False, opset_version=17)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images = torch.randn(given.batch, 3, given.size, given.size)
    ours, trained, session = load_efficientnet_lite0(), read_efficientnet_lite0(), onnx_session(images)
    name, array = session.get_inputs()[0].name, images.numpy()
    variants: dict[str, Callable[[], object]] = {
        "ours": lambda: ours(images),
        "as trained": lambda: trained.features(images),
        "onnxruntime": lambda: session.run(None, {name: array})[0],
    }
    with torch.inference_mode():
        found = {key: np.asarray(run()) for key, run in variants.items()}  # a first turn, not counted
        for key, features in found.items():
            assert np.allclose(features, found["ours"], atol=1e-3), key
        seconds: dict[str, list[float]] = {key: [] for key in variants}
        for _ in range(given.rounds):
            for key, run in variants.items():
                began = time.process_time()
                run()
                seconds[key].append(time.process_time() - began)
    result = {
        "size": given.size,
        "batch": given.batch,
        "images per second": {key: round(given.batch / statistics.median(times), 1) for key, times in seconds.items()},
        "ratio": {
            key: round(statistics.median(b / a for a, b in zip(seconds["ours"], seconds[key], strict=True)), 2)
            for key in variants
            if key != "ours"
        },
        "torch": torch.__version__,
        "onnxruntime": onnxruntime.__version__,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
