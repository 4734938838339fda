"""The paper's heat maps: residual labels over the epochs, their pairs, and how early they reach their final form.

Shapes: E epochs shown, K classes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.lab.analysis.residual_labels import consistency, row_entropy, top_confusions
from adaptive_labels.lab.config import changed
from adaptive_labels.lab.files import write_npz
from adaptive_labels.lab.jobs import Listener
from adaptive_labels.lab.paper.recipes import PaperFigure, Reproduction
from adaptive_labels.lab.paper.runner import StudyOptions, run_variant
from adaptive_labels.lab.paper.study import Study, StudyError, Variant
from adaptive_labels.lab.report.charts import chart_grid
from adaptive_labels.lab.report.figures import Figures
from adaptive_labels.lab.report.heatmap import heat_map
from adaptive_labels.lab.runs import RunFolder
from adaptive_labels.lab.runs.arrays import ResidualLabels
from adaptive_labels.lab.words import plural

NETWORK = "preact-resnet18"  # ours: the paper does not say which network its heat maps are of
METHOD = "alr"  # ours as well: ALR or ALR-S
# Classes that people would pair: the paper names cat and dog; the others are ours.
PAIRS = (
    *(("cat", "dog"), ("automobile", "truck")),  # of CIFAR-10
    *(("maple_tree", "oak_tree"), ("boy", "girl"), ("bed", "couch")),  # of CIFAR-100
)


@dataclass(frozen=True)
class HeatMaps:
    """Residual labels (E, K, K) at some epochs of a run, and the training accuracy of each of these epochs."""

    data: str
    run_epochs: int
    epochs: tuple[int, ...]
    labels: NDArray[np.float64]
    classes: tuple[str, ...]
    train_accuracy: tuple[float, ...]


def find_task(reproduction: Reproduction, data: str | None) -> str:
    """The task that the maps are made on: the network's column of the CIFAR table, by data set.

    A path to other images has CIFAR-10's.
    """
    study = reproduction.study
    columns = [task for task in study.tasks if study.column(task).endswith(f"/{NETWORK}")]
    by_data = {study.config(task).data.name: task for task in columns}
    if data is None or (data not in by_data and "cifar10" in by_data and Path(data).exists()):
        return by_data.get("cifar10") or columns[0]
    if data not in by_data:
        raise StudyError(f"data is {data!r}; at the scale {reproduction.scale} there is {' or '.join(by_data)}")
    return by_data[data]


def train_for_figure(
    reproduction: Reproduction, task: str, options: StudyOptions, listener: Listener, data: str | None = None
) -> RunFolder:
    """The ALR run of a task, trained unless it is there already: the same as that cell of the CIFAR table.

    `data` is a path to other images that its recipe is to be used on.
    """
    config = options.config(reproduction.study, task)
    if data is not None:
        config = changed(config, "data", name=data)
    run = run_variant(config, figure_variant(reproduction.study), options.out, listener)
    result = run.result or {}
    if result.get("status") == "diverged":
        raise StudyError(f"the run {run.path} diverged: {result['reason']}")
    return run


def figure_variant(study: Study) -> Variant:
    """The variant of a study whose labels are drawn."""
    return next(variant for variant in study.variant if variant.name == METHOD)


def read_heat_maps(run: RunFolder, paper: PaperFigure) -> HeatMaps:
    """What a run has kept: the paper's epochs where it has them, else those that stand for them."""
    stored = run.load_residual_labels()
    if stored is None:
        raise StudyError(f"{run.path} has no residual labels")
    accuracies = {record["epoch"]: record["train_accuracy"] for record in run.history()}
    return heat_maps_of(stored, accuracies, Path(run.config.data.name).name, paper)


def heat_maps_of(stored: ResidualLabels, accuracies: Mapping[int, float], data: str, paper: PaperFigure) -> HeatMaps:
    """The maps of stored labels, at the paper's epochs or those that stand for them."""
    stored_epochs = [int(epoch) for epoch in stored.epochs]
    epochs = choose_epochs(stored_epochs, paper.epochs)
    labels = np.stack([stored.matrix(stored_epochs.index(epoch)) for epoch in epochs]).astype(np.float64)
    shown = tuple(accuracies[epoch] for epoch in epochs)
    return HeatMaps(data, max(accuracies), epochs, labels, tuple(stored.classes), shown)


def choose_epochs(stored: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """The wanted epochs if they are all stored; else as many stored ones, the first and the last among them.

    >>> choose_epochs([1, 2, 5, 10, 20, 50, 100, 200, 300], [1, 5, 10, 100, 200, 300])
    (1, 5, 10, 100, 200, 300)
    >>> choose_epochs([1, 2, 5, 8], [1, 5, 10, 100, 200, 300])
    (1, 2, 5, 8)
    """
    if set(wanted) <= set(stored):
        return tuple(wanted)
    places = np.unique(np.rint(np.linspace(0, len(stored) - 1, min(len(wanted), len(stored)))).astype(int))
    return tuple(stored[place] for place in places)


def draw_maps(maps: HeatMaps) -> str:
    """All maps in one picture, each with its own scale of colours as in the paper, the epoch and μ under each."""
    captions = []
    for letter, epoch, accuracy in zip("abcdef", maps.epochs, maps.train_accuracy, strict=False):
        captions.append(f"({letter}) {plural(epoch, 'epoch')} (μ = {100 * accuracy:.2f}%)")
    drawn = [
        heat_map(labels, maps.classes, caption, "Rows are the true class.")
        for labels, caption in zip(maps.labels, captions, strict=True)
    ]
    title = f"Residual labels of {maps.data} over the epochs"
    return chart_grid(drawn, title, "Each row is the residual label of a class.", width=320.0, captions=captions)


def write_picture(maps: HeatMaps, folder: Path, name: str) -> tuple[list[Path], str | None]:
    """Write the picture as SVG and, where that can be done, PNG; the files, and why there is no PNG or None."""
    figures = Figures()
    figures.chart(name, draw_maps(maps))
    return figures.write(folder)


def keep_labels(maps: HeatMaps, results: Path, task: str) -> None:
    """Keep the labels shown beside the records, so that evidence/pages.py draws them without the run."""
    file = labels_file(results, task)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_npz(file, epochs=maps.epochs, classes=maps.classes, labels=maps.labels.astype(np.float16))


def labels_file(results: Path, task: str) -> Path:
    """Where the labels of a task are kept."""
    return results / "labels" / f"{task}.npz"


def describe_maps(maps: HeatMaps, paper: PaperFigure) -> list[str]:
    """What the maps say, and what the paper says of its own."""
    sentences = []
    if maps.epochs != paper.epochs:
        sentences.append(
            f"A run of {maps.run_epochs} epochs on {maps.data}: its epochs {_listed(maps.epochs)} stand for the "
            f"paper's {_listed(paper.epochs)}."
        )
    accuracies = _listed([100 * share for share in maps.train_accuracy], ".2f")
    sentences.append(
        f"μ, the accuracy on the augmented training images during the epoch: {accuracies}% "
        f"(the paper: {_listed(paper.train_accuracy, '.2f')}%)."
    )
    pairs = [_pair_sentence(maps, *pair) for pair in PAIRS if set(pair) <= set(maps.classes)]
    sentences += pairs or [f"Cat and dog cannot be checked: {maps.data} does not have them."]
    similar, entropy = consistency(maps.labels), row_entropy(maps.labels, normalised=True).mean(axis=1)
    sentences.append(
        f"Consistency: {_listed(100 * similar.top_share, '.0f')}% of the classes have the top confusion of the last "
        f"epoch, by epoch (by chance {100 * similar.chance:.0f}%); rank correlation of the rows with the last ones: "
        f"{_listed(similar.correlation, '.2f')}."
    )
    sentences.append(
        f"Softness: the mean entropy of the rows (1 is even) is {_listed(entropy, '.3f')}; the paper sees its labels "
        "become softer."
    )
    return sentences


def _pair_sentence(maps: HeatMaps, first: str, second: str) -> str:
    """Whether each of two classes is the other's top confusion, and at which epochs."""
    top = top_confusions(maps.labels)[0][..., 0]  # (E, K)

    def direction(true: str, other: str) -> tuple[bool, str]:
        holds = top[:, maps.classes.index(true)] == maps.classes.index(other)
        where = [epoch for epoch, held in zip(maps.epochs, holds, strict=True) if held]
        when = "at every epoch shown" if holds.all() else f"at epochs {_listed(where)}" if where else "at none"
        return bool(holds[-1]), f"{other} is the top confusion of {true} {when}"

    (there, forward), (back, backward) = direction(first, second), direction(second, first)
    return f"{first} ↔ {second} at the end: {'yes' if there and back else 'no'} ({forward}; {backward})."


def _listed(numbers: Iterable[float], form: str = "") -> str:
    return ", ".join(format(number, form) for number in numbers)
