"""Do residual labels hold what people confuse? `docs/human-confusions.md` has the answer.

python benchmarks/human_confusions.py --data DIR [--cache DIR] [--picture FILE.svg] > FILE.csv

Confusions of people: CIFAR-10H on the test images of CIFAR-10, and CIFAR-100N on the training images of CIFAR-100.
With them are compared, each learned from the clean labels of the first 10,000 training images (frozen EfficientNet
features at 128 pixels, one hidden layer), for each epoch and seed: the residual labels S; of the same network trained
with cross entropy the mean probabilities and the confusion matrix per class of the first 5,000 test images. Without
training: the cosine similarity of the classes' mean features. And S of the published runs, trained from scratch.

Two figures: the mean over the classes of the rank correlation (Spearman) of the K − 1 other classes, and the share of
the classes whose most frequent confusion of people is among the first five (K = 100).
"""

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

from adaptive_labels.lab.report import charts
from adaptive_labels.lab.report.figures import standalone
from adaptive_labels.losses import create_loss
from label_issues import cifar_images, cifar_labels, embedded, head_epochs

SEEDS, EPOCHS, EXAMPLES, TESTED, FIRST = 3, 10, 10_000, 5_000, 5
PUBLISHED = Path(__file__).parent.parent / "evidence" / "labels"
SOURCES = ("residual labels", "mean probabilities", "confusion matrix", "similarity of features")


def agreement(rows: np.ndarray, people: np.ndarray) -> tuple[float, float]:
    """Mean rank correlation of the rows (K, K) without their diagonals, and the share of first confusions found."""
    correlations, hits = [], 0
    for k in range(len(people)):
        ours, theirs = np.delete(rows[k], k), np.delete(people[k], k)
        correlations.append(0.0 if np.ptp(ours) == 0 else spearmanr(ours, theirs).statistic)
        hits += theirs.argmax() in np.argsort(-ours, kind="stable")[:FIRST]
    return float(np.mean(correlations)), hits / len(people)


def by_class(values: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """(K, K) the mean of values (N, K) over the examples of each class."""
    return np.stack([values[labels == k].mean(0) for k in range(classes)])


def people_of(name: str, data: Path) -> dict[str, np.ndarray]:
    """(K, K) how often people take the examples of each class for each other class; the first is the reference."""
    if name == "cifar100":
        given, true = cifar_labels("cifar100n", data)
        return {"CIFAR-100N": by_class(np.eye(100)[given], true, 100)}
    counts = np.load(data / "cifar-n" / "cifar10h.npz")["counts"]
    (given, true), labels = cifar_labels("cifar10n-random1", data), cifar_images("cifar10", "test", data)[1]
    shares = counts / counts.sum(1, keepdims=True)
    return {"CIFAR-10H": by_class(shares, labels, 10), "CIFAR-10N": by_class(np.eye(10)[given], true, 10)}


def measured(name: str, data: Path, cache: Path) -> Iterator[tuple[str, int, int | str, float, float]]:
    """(source, epoch, seed, rank correlation, share of first confusions) of everything that is compared."""
    people = people_of(name, data)
    reference, *others = people
    for other in others:
        yield other, 0, "", *agreement(people[other], people[reference])
    published = np.load(next(PUBLISHED.glob(f"{name}-*.npz")))
    for epoch, labels in zip(published["epochs"], published["labels"], strict=True):
        yield "residual labels, from scratch", int(epoch), "published", *agreement(labels, people[reference])
    images, labels = cifar_images(name, "train", data)
    x = embedded(name, images[:EXAMPLES], "efficientnet-lite0", cache, input_size=128)
    images, test_labels = cifar_images(name, "test", data)
    images, test_labels = images[:TESTED], test_labels[:TESTED]
    test = torch.from_numpy(embedded(f"{name}test", images, "efficientnet-lite0", cache, input_size=128))
    y, classes = labels[:EXAMPLES], int(labels.max()) + 1
    means = by_class((x - x.mean(0)) / x.std(0).clip(1e-6), y, classes)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    yield "similarity of features", 0, "", *agreement(means @ means.T, people[reference])
    features, given, rows = torch.from_numpy(x), torch.from_numpy(y), np.arange(EXAMPLES)
    for seed in range(SEEDS):
        loss = create_loss("alr", classes)
        for epoch, _ in enumerate(head_epochs(features, given, classes, rows, EPOCHS, loss, seed), start=1):
            yield "residual labels", epoch, seed, *agreement(loss.residual_labels().numpy(), people[reference])
        loss = create_loss("baseline", classes)
        for epoch, head in enumerate(head_epochs(features, given, classes, rows, EPOCHS, loss, seed), start=1):
            with torch.no_grad():
                probs = head(test).softmax(1).double().numpy()
            found = by_class(probs, test_labels, classes)
            yield "mean probabilities", epoch, seed, *agreement(found, people[reference])
            found = by_class(np.eye(classes)[probs.argmax(1)], test_labels, classes)
            yield "confusion matrix", epoch, seed, *agreement(found, people[reference])


def drawn(rows: list[tuple[str, str, int, int | str, float, float]]) -> str:
    """The rank correlation along the epochs, a panel for each data set."""
    panels, names = [], dict(zip(SOURCES, (2, 1, 0, 3), strict=True))
    epochs = np.arange(1.0, EPOCHS + 1)
    for data_set in ("cifar10", "cifar100"):
        values: dict[str, dict[int | str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
        for name, source, epoch, seed, correlation, _ in rows:
            if name == data_set and source in SOURCES:
                values[source][seed][epoch] = correlation
        lines = {}
        for source in SOURCES:
            runs = [[run.get(int(e), run.get(0, 0.0)) for e in epochs] for run in values[source].values()]
            lines[source] = charts.over_runs(epochs, np.array(runs))
        y = charts.Axis("rank correlation with people's confusions")
        panels.append(charts.line_chart(lines, data_set, charts.EPOCHS, y, styles=names, with_legend=False))
    captions = ["CIFAR-10, people: CIFAR-10H", "CIFAR-100, people: CIFAR-100N"]
    title = "What people confuse, and what a network learns"
    return charts.chart_grid(panels, title, "; ".join(captions), columns=2, captions=captions, names=names)


def main() -> None:
    """Measure both sets, print a row for each figure, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("label-issues-cache"))
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    writer, rows = csv.writer(sys.stdout), []
    writer.writerow(["set", "source", "epoch", "seed", "rank correlation", "first in five"])
    for name in ("cifar10", "cifar100"):
        for row in measured(name, given.data, given.cache):
            rows.append((name, *row))
            writer.writerow([name, *row[:3], f"{row[3]:.4f}", f"{row[4]:.3f}"])
            sys.stdout.flush()
    if given.picture is not None:
        given.picture.write_text(standalone(drawn(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
