"""The paper's heat maps: residual labels over the epochs, their pairs, and how early they reach their final form.

Shapes: E epochs shown, K classes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.lab.analysis.residual_labels import Consistency, consistency, row_entropy, top_confusions
from adaptive_labels.lab.config import changed
from adaptive_labels.lab.files import write_npz
from adaptive_labels.lab.jobs import Listener
from adaptive_labels.lab.paper.recipes import PaperFigure, Reproduction, paper_figure
from adaptive_labels.lab.paper.runner import StudyOptions, run_variant
from adaptive_labels.lab.paper.study import Records, Study, StudyError, Variant
from adaptive_labels.lab.report.charts import panels
from adaptive_labels.lab.report.figures import Figures, standalone
from adaptive_labels.lab.report.heatmap import heat_map
from adaptive_labels.lab.runs import RunFolder
from adaptive_labels.lab.runs.arrays import ResidualLabels, load_residual_labels
from adaptive_labels.lab.words import plural

NETWORK = "preact-resnet18"  # ours: the paper does not say which network its heat maps are of
METHOD = "alr"  # ours as well: ALR or ALR-S
# Classes that people would pair: the paper names cat and dog; the others are ours.
PAIRS = (
    *(("cat", "dog"), ("automobile", "truck")),  # of CIFAR-10
    *(("maple_tree", "oak_tree"), ("boy", "girl"), ("bed", "couch")),  # of CIFAR-100
)


@dataclass(frozen=True)
class Pair:
    """Two classes, and for each epoch shown whether each is the other's top confusion."""

    first: str
    second: str
    first_to_second: tuple[bool, ...]
    second_to_first: tuple[bool, ...]

    @property
    def holds_at_the_end(self) -> bool:
        """Whether each is the other's top confusion at the last epoch."""
        return self.first_to_second[-1] and self.second_to_first[-1]


@dataclass(frozen=True)
class HeatMaps:
    """Residual labels (E, K, K) at some epochs of a run, the training accuracy of each epoch, and what they say."""

    data: str
    run_epochs: int
    epochs: tuple[int, ...]
    labels: NDArray[np.float64]
    classes: tuple[str, ...]
    train_accuracy: tuple[float, ...]
    pairs: tuple[Pair, ...]
    consistency: Consistency
    entropy: tuple[float, ...]

    @property
    def mean_consistency(self) -> float:
        """The share of classes with the last epoch's top confusion, mean over the earlier epochs shown."""
        earlier = self.consistency.top_share[:-1]
        return float(earlier.mean()) if len(earlier) else 1.0


def find_task(reproduction: Reproduction, data: str | None) -> str:
    """The task that the maps are made on: the network's column of the CIFAR table, by data set.

    A path to other images has CIFAR-10's.
    """
    study = reproduction.study
    columns = [task for task in study.tasks if study.column(task).endswith(f"/{NETWORK}")]
    found = {study.config(task).data.name: task for task in columns}
    if data is None or (data not in found and "cifar10" in found and Path(data).exists()):
        return found.get("cifar10") or columns[0]
    if data not in found:
        raise StudyError(f"data is {data!r}; at the scale {reproduction.scale} there is {' or '.join(found)}")
    return found[data]


def train(
    reproduction: Reproduction, task: str, options: StudyOptions, listener: Listener, data: str | None = None
) -> RunFolder:
    """The ALR run of a task, trained unless it is there already: the same as that cell of the CIFAR table.

    `data` is a path to other images that its recipe is to be used on.
    """
    config = options.config(reproduction.study, task)
    if data is not None:
        config = changed(config, "data", name=data)
    run = run_variant(config, _variant(reproduction.study), options.out, listener)
    result = run.result or {}
    if result.get("status") == "diverged":
        raise StudyError(f"the run {run.path} diverged: {result['reason']}")
    return run


def _variant(study: Study) -> Variant:
    return next(variant for variant in study.variant if variant.name == METHOD)


def read_heat_maps(run: RunFolder, paper: PaperFigure) -> HeatMaps:
    """What a run has kept: the paper's epochs where it has them, else those that stand for them."""
    stored = run.load_residual_labels()
    if stored is None:
        raise StudyError(f"{run.path} has no residual labels")
    accuracies = {record["epoch"]: record["train_accuracy"] for record in run.history()}
    return _heat_maps(stored, accuracies, Path(run.config.data.name).name, paper)  # of the user's own images the folder


def _heat_maps(stored: ResidualLabels, accuracies: Mapping[int, float], data: str, paper: PaperFigure) -> HeatMaps:
    kept = [int(epoch) for epoch in stored.epochs]
    epochs = choose_epochs(kept, paper.epochs)
    labels = np.stack([stored.matrix(kept.index(epoch)) for epoch in epochs]).astype(np.float64)
    names = list(stored.classes)
    return HeatMaps(
        data=data,
        run_epochs=max(accuracies),
        epochs=epochs,
        labels=labels,
        classes=tuple(names),
        train_accuracy=tuple(accuracies[epoch] for epoch in epochs),
        pairs=tuple(_pair(labels, names, *pair) for pair in PAIRS if set(pair) <= set(names)),
        consistency=consistency(labels),
        entropy=tuple(row_entropy(labels, normalised=True).mean(axis=1).tolist()),
    )


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


def _pair(labels: NDArray[np.float64], names: list[str], first: str, second: str) -> Pair:
    top = top_confusions(labels)[0][..., 0]  # (E, K)
    i, j = names.index(first), names.index(second)
    return Pair(first, second, tuple((top[:, i] == j).tolist()), tuple((top[:, j] == i).tolist()))


def draw(maps: HeatMaps) -> str:
    """All maps in one picture, each with its own scale of colours as in the paper, the epoch and μ under each."""
    captions = []
    for letter, epoch, accuracy in zip("abcdef", maps.epochs, maps.train_accuracy, strict=False):
        captions.append(f"({letter}) {plural(epoch, 'epoch')} (μ = {100 * accuracy:.2f}%)")
    drawn = [
        heat_map(labels, maps.classes, words, "Rows are the true class.")
        for labels, words in zip(maps.labels, captions, strict=True)
    ]
    title = f"Residual labels of {maps.data} over the epochs"
    return panels(drawn, title, "Each row is the residual label of a class.", width=320.0, captions=captions)


def write_picture(maps: HeatMaps, folder: Path, name: str) -> tuple[list[Path], str | None]:
    """Write the picture as SVG and, where that can be done, PNG; the files, and why there is no PNG or None."""
    figures = Figures()
    figures.chart(name, draw(maps))
    return figures.write(folder)


def keep_labels(maps: HeatMaps, results: Path, task: str) -> None:
    """Keep the labels shown beside the records, so that `draw_kept` can draw them without the run."""
    file = _kept_file(results, task)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_npz(file, epochs=maps.epochs, classes=maps.classes, labels=maps.labels.astype(np.float16))


def draw_kept(results: Path, study: Study, records: Records) -> dict[str, str]:
    """The pictures, by file name, of a study's tasks whose labels were kept and whose run has a record."""
    found = {}
    for task in study.tasks:
        record, file = records.get((task, _variant(study).key, 0), {}), _kept_file(results, task)
        if "course" in record and file.exists():
            accuracies = dict(enumerate(record["course"]["train_accuracy"], start=1))
            maps = _heat_maps(load_residual_labels(file), accuracies, study.config(task).data.name, paper_figure())
            found[f"figure-{task}.svg"] = standalone(draw(maps))
    return found


def _kept_file(results: Path, task: str) -> Path:
    return results / "labels" / f"{task}.npz"


def sentences(maps: HeatMaps, paper: PaperFigure) -> list[str]:
    """What the maps say, beside what the paper says of its own."""
    found = []
    if maps.epochs != paper.epochs:
        found.append(
            f"A run of {maps.run_epochs} epochs on {maps.data}: its epochs {_listed(maps.epochs)} stand for the "
            f"paper's {_listed(paper.epochs)}."
        )
    accuracies = _listed([100 * share for share in maps.train_accuracy], ".2f")
    found.append(
        f"μ, the accuracy on the augmented training images during the epoch: {accuracies}% "
        f"(the paper: {_listed(paper.train_accuracy, '.2f')}%)."
    )
    found += [_pair_sentence(pair, maps.epochs) for pair in maps.pairs]
    if not maps.pairs:
        found.append(f"Cat and dog cannot be checked: {maps.data} does not have them.")
    shares, chance = _listed(100 * maps.consistency.top_share, ".0f"), f"{100 * maps.consistency.chance:.0f}%"
    found.append(
        f"Consistency: {100 * maps.mean_consistency:.0f}% of the classes have the top confusion of the last epoch, "
        f"mean over the earlier ones (by epoch: {shares}%; by chance {chance}); rank correlation of "
        f"the rows with the last ones: {_listed(maps.consistency.correlation, '.2f')}."
    )
    found.append(
        f"Softness: the mean entropy of the rows (1 is even) is {_listed(maps.entropy, '.3f')}; the paper sees its "
        "labels become softer."
    )
    return found


def _pair_sentence(pair: Pair, epochs: Sequence[int]) -> str:
    def direction(true: str, other: str, holds: Sequence[bool]) -> str:
        where = [epoch for epoch, held in zip(epochs, holds, strict=True) if held]
        when = "at every epoch shown" if all(holds) else f"at epochs {_listed(where)}" if where else "at none"
        return f"{other} is the top confusion of {true} {when}"

    answer = "yes" if pair.holds_at_the_end else "no"
    first = direction(pair.first, pair.second, pair.first_to_second)
    second = direction(pair.second, pair.first, pair.second_to_first)
    return f"{pair.first} ↔ {pair.second} at the end: {answer} ({first}; {second})."


def _listed(numbers: Iterable[float], form: str = "") -> str:
    return ", ".join(format(number, form) for number in numbers)


def to_plain(maps: HeatMaps) -> dict[str, Any]:
    """The maps and what they say as plain data; labels with five decimals."""
    pairs = []
    for pair in maps.pairs:
        holds = {"first_to_second": pair.first_to_second, "second_to_first": pair.second_to_first}
        pairs.append({"pair": [pair.first, pair.second], **holds, "holds_at_the_end": pair.holds_at_the_end})
    similar = {key: value for key, value in vars(maps.consistency).items() if key != "classes"}
    consistency = {"mean": maps.mean_consistency, **similar}
    return {**vars(maps), "pairs": pairs, "consistency": consistency, "labels": np.round(maps.labels, 5)}
