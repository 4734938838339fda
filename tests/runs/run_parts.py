"""A configuration and a result for tests of run folders."""

from pathlib import Path
from typing import Any

from adaptive_labels.lab.config import RunConfig, from_dict
from adaptive_labels.lab.runs import RunFolder, run_path

CONFIG = from_dict(
    {
        "data": {"name": "own/reviews.csv", "fingerprint": "f00"},
        "model": {"name": "fasttext", "options": {"dim": 16}, "weights": "a/start.safetensors", "weights_hash": "b0"},
        "method": {"name": "kd", "options": {"teacher": "runs/t", "teacher_hash": "c0"}},
        "training": {"epochs": 2, "lr": 0.1},
        "seed": 3,
    }
)
RESULT: dict[str, Any] = {
    "dataset": "reviews",
    "model": "fasttext",
    "method": "kd",
    "seed": 3,
    "epochs": 2,
    "parameters": {"network": 10, "criterion": 2},
    "metrics": {"test": {"top1": 0.5}, "validation": {"top1": 0.5}},
    "seconds": 1.5,
}


def begun(out: Path, config: RunConfig = CONFIG) -> RunFolder:
    return RunFolder.create(run_path(out, config), config)


def finished(out: Path, config: RunConfig = CONFIG) -> RunFolder:
    run = begun(out, config)
    run.write_environment("alr train")
    for epoch in (1, 2):
        run.append_history({"epoch": epoch})
    run.write_bytes("model.safetensors", b"weights")
    run.finish(RESULT)
    return run
