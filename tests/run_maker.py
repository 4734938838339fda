"""Run folders as training would leave them, made with numpy from a classifier whose mistakes are known."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_labels.lab.config import DataConfig, MethodConfig, ModelConfig, RunConfig, TrainingConfig
from adaptive_labels.lab.files import file_hash
from adaptive_labels.lab.runs import RunFolder, integrity, run_path

EPOCHS = 4


def sealed_again(folder: Path, **changes: Any) -> None:
    """Make what a test put into a finished run's folder count as written by the run; the result may change as well."""
    path = folder / "result.json"
    result = {**json.loads(path.read_text()), **changes}
    hashes = {name: file_hash(folder / name) for name in result.pop("seal")["files"]}
    path.write_text(json.dumps(integrity.seal(result, hashes)))


def _metrics(logits: Any, labels: Any) -> dict[str, float]:
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    place = (logits > np.take_along_axis(logits, labels[:, None], axis=1)).sum(axis=1)
    found = {"top1": np.mean(place < 1), "nll": -np.mean(log_p[np.arange(len(labels)), labels])}
    if logits.shape[1] > 5:
        found["top5"] = np.mean(place < 5)
    return {
        **{key: float(value) for key, value in found.items()},
        "ece": 0.08,
        "ece_scaled": 0.02,
        "aurc": 0.11,
        "temperature": 1.3,
    }


class Maker:
    """Makes runs under one folder; class i is mistaken for class i ^ 1, more often the other way round."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def config(self, method: str, seed: int, **changes: Any) -> RunConfig:
        data, model = DataConfig(changes.pop("dataset", "towns")), ModelConfig(changes.pop("model", "fasttext"))
        its_method = MethodConfig(method, changes.pop("options", {}))
        training = TrainingConfig(**{"epochs": EPOCHS, "lr": 0.5, "device": "cpu", **changes})
        return RunConfig(data, model, its_method, training, seed)

    def create(self, method: str, seed: int, **changes: Any) -> RunFolder:
        """A run that has only begun."""
        config = self.config(method, seed, **changes)
        return RunFolder.create(run_path(self.out, config), config)

    def figures(
        self, method: str, seed: int, test: float, validation: float | None = None, **changes: Any
    ) -> RunFolder:
        """A finished run with these accuracies and nothing else."""
        metrics: dict[str, Any] = {"test": {"top1": test}}
        if validation is not None:
            metrics["validation"] = {"top1": validation}
        return self.finish(self.create(method, seed, **changes), metrics)

    def finish(self, run: RunFolder, metrics: dict[str, Any], **more: Any) -> RunFolder:
        config = run.config
        run.finish(
            {
                "dataset": config.data.name,
                "model": config.model.name,
                "method": config.method.name,
                "seed": config.seed,
                "epochs": EPOCHS,
                "parameters": {"network": 1000, "criterion": 0},
                "metrics": metrics,
                "seconds": 2.5,
                **more,
            }
        )
        return run

    def whole(
        self, method: str, seed: int, *, classes: list[str], skill: float = 2.0, examples: int = 600, **changes: Any
    ) -> RunFolder:
        """A finished run with every file, drawn from a classifier of the given skill."""
        run = self.create(method, seed, **changes)
        run.write_environment(["alr", "train", "towns", "--method", method])
        size = len(classes)
        generator = np.random.default_rng(seed)
        partner = np.minimum(np.arange(size) ^ 1, size - 1)

        def split(extra: float) -> tuple[Any, Any]:
            labels = generator.integers(0, size, examples)
            logits = generator.normal(size=(examples, size))
            logits[np.arange(examples), labels] += skill + extra
            logits[np.arange(examples), partner[labels]] += 1.0 + 0.8 * (labels % 2)
            return logits, labels

        test, validation = split(0.0), split(0.0)
        for epoch in range(1, EPOCHS + 1):
            accuracy = _metrics(*split(-skill * 0.7**epoch))["top1"]
            run.append_history(
                {
                    "epoch": epoch,
                    "train_loss": 2.0 / epoch,
                    "train_accuracy": accuracy,
                    "validation_accuracy": accuracy,
                    "validation_loss": 2.1 / epoch,
                    "learning_rate": 0.1,
                    "seconds": 0.5,
                    "parts": {"hard": 1.0, "residual": 0.2, "update": 0.3, "weight": 1 - accuracy}
                    if method.startswith("alr")
                    else {},
                }
            )
        if method.startswith("alr"):
            labels = np.full((size, size), 0.2 / (size - 1)) + generator.random((size, size)) * 0.02
            labels[np.arange(size), partner] += 0.4 + 0.3 * (np.arange(size) % 2)
            np.fill_diagonal(labels, 0.0)
            labels /= np.maximum(labels.sum(axis=1, keepdims=True), 1e-9)
            uniform = (1 - np.eye(size)) / (size - 1)
            middle = 0.5 * uniform + 0.5 * labels
            run.save_residual_labels([1, 2, EPOCHS], np.stack([uniform, middle, labels]), classes)
        run.save_predictions(
            test_logits=test[0],
            test_labels=test[1],
            validation_logits=validation[0],
            validation_labels=validation[1],
            classes=classes,
        )
        run.write_json("examples.json", self.examples(classes, *test))
        run.write_bytes("model.safetensors", b"weights")
        return self.finish(run, {"test": _metrics(*test), "validation": _metrics(*validation)})

    def examples(self, classes: list[str], logits: Any, labels: Any) -> dict[str, Any]:
        """The first mistakes of every pair, as texts that name their place."""
        predicted = logits.argmax(axis=1)
        pairs: dict[tuple[int, int], list[int]] = {}
        for i in np.flatnonzero(predicted != labels):
            pairs.setdefault((int(labels[i]), int(predicted[i])), []).append(int(i))
        return {
            "kind": "text",
            "split": "test",
            "pairs": [
                {
                    "true": classes[true],
                    "predicted": classes[taken],
                    "count": len(members),
                    "of": int((labels == true).sum()),
                    "examples": [{"text": f"<b>input</b> {i} & more", "confidence": 0.9} for i in members[:2]],
                }
                for (true, taken), members in sorted(pairs.items(), key=lambda item: -len(item[1]))[:20]
            ],
        }

    def diverged(self, method: str, seed: int, reason: str, **changes: Any) -> RunFolder:
        """A run that ended with a reason and without figures."""
        run = self.create(method, seed, **changes)
        return self.finish(run, {}, status="diverged", reason=reason)


ODD_CLASSES = ["AT", "DE", "BE", "NL", "<script>alert(1)</script>", "C & A", "MX", "AR"]


def three_methods(maker: Maker, classes: list[str] | None = None, seeds: int = 3) -> list[RunFolder]:
    """Three methods by as many seeds, whole; one class is called ``<script>…``."""
    skills = {"baseline": 2.0, "slr": 2.1, "alr": 2.4}
    return [
        maker.whole(method, seed, classes=classes or ODD_CLASSES, skill=skill)
        for method, skill in skills.items()
        for seed in range(seeds)
    ]
