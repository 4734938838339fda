"""A finished run as a classifier, and what it classifies: texts, tables, images, read a batch at a time."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from adaptive_labels.lab.data import Pretrained, TableRows, is_image
from adaptive_labels.lab.data.columns import given_names, row_columns_of, text_columns_of
from adaptive_labels.lab.data.frames import Table, is_table, table_chunks
from adaptive_labels.lab.data.pixels import read_middle, why_unreadable
from adaptive_labels.lab.data.sources.tables import joined_texts
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.export.classifier import Classifier
from adaptive_labels.lab.experiments.export.encode import to_grey
from adaptive_labels.lab.experiments.teachers import finished_run
from adaptive_labels.lab.files import open_regular, read_bytes
from adaptive_labels.lab.limits import check_limit, limit_of
from adaptive_labels.lab.models.features import EncoderAndHead
from adaptive_labels.lab.runs import RunError, RunFolder
from adaptive_labels.lab.training.evaluation import LARGE_BATCH, predict_logits
from adaptive_labels.lab.words import listed

TEXTS, IMAGES = 1_000, 64  # of a batch
_FILE_SUFFIXES = {".txt", ".csv", ".tsv", ".json", ".jsonl", ".png", ".jpg", ".jpeg"}
T = TypeVar("T")


def load_run(path: Path) -> Classifier:
    """The classifier of the finished run in ``path``."""
    run = finished_run(path, "predict with")
    result = run.result or {}
    temperature = result["metrics"]["test"].get("temperature", 1.0)
    model, encoder, classes = whole_network(run)
    settings, reads = encoder.to_dict(), build.entry_of(run.config).kind
    prepare: dict[str, Callable[[Any], Any]] = {
        "text": list,
        "image": lambda images: _stacked(images, settings),
        "row": lambda rows: TableRows.of_records(*_columns(settings), rows),
    }

    size = IMAGES if isinstance(encoder, Pretrained) else LARGE_BATCH

    def infer(inputs: Sequence[Any]) -> NDArray[np.float64]:
        logits = predict_logits(model, encoder.encode(prepare[reads](inputs)), batch_size=size)
        probabilities: NDArray[np.float64] = (logits.double() / temperature).softmax(1).numpy()
        return probabilities

    columns = result.get("text_columns")
    trained_on = tuple(map(str, columns)) if isinstance(columns, list) else ()
    return Classifier(classes, reads, settings, infer, run.config.data.text_column, trained_on)


def whole_network(run: RunFolder) -> tuple[nn.Module, build.Encoder, tuple[str, ...]]:
    """A run's network with the pretrained encoder in front of it, if it reads the features of one.

    Features are then not rounded, as they are in the cache that training reads, and nothing is left in that cache.
    """
    network, encoder, classes = build.load_network(run)
    if isinstance(encoder, Pretrained) and not encoder.tune:
        network = EncoderAndHead(encoder.backbone.load(), network)
        encoder = dataclasses.replace(encoder, tune=True)  # type: ignore[type-var]
    return network, encoder, classes


@dataclass(frozen=True)
class InputBatch:
    """Some inputs of a command."""

    names: list[str]  # what is shown of each
    inputs: list[Any]  # as `Classifier.probabilities` takes them
    columns: dict[str, list[str]] = field(default_factory=dict)  # of the table that they are rows of


def read_batches(classifier: Classifier, inputs: Sequence[str], standard_input: IO[bytes]) -> Iterator[InputBatch]:
    """What command-line inputs stand for, in their order: texts, files, folders of images, or - for standard input.

    Of a table each row is an input, empty texts included; of any other text file each line that is not empty.
    """
    if classifier.reads == "image":
        for paths in _chunks(itertools.chain(*(_image_files(given, standard_input) for given in inputs)), IMAGES):
            yield InputBatch(paths, [_read_image(path, classifier.settings) for path in paths])
        return
    for is_loose, some in itertools.groupby(inputs, _is_loose):
        if is_loose and classifier.reads == "text":
            texts = list(some)
            yield InputBatch(texts, texts)
            continue
        for given in some:
            yield from (_read_file if classifier.reads == "text" else _read_rows)(classifier, given, standard_input)


def _read_file(classifier: Classifier, given: str, standard_input: IO[bytes]) -> Iterator[InputBatch]:
    path = Path(given)
    if given != "-" and (path.is_dir() or is_image(path)):
        raise RunError(f"{given} is {'a folder' if path.is_dir() else 'an image'}, but this classifier reads texts")
    if given == "-" or not is_table(path):
        with nullcontext(standard_input) if given == "-" else open_regular(path) as file:
            for texts in _chunks(_lines(file, given), TEXTS):
                yield InputBatch(texts, texts)
        return
    columns: Sequence[str] = ()
    known = [*given_names(classifier.text_column), *classifier.text_columns]
    for table in table_chunks(path, TEXTS, known):
        columns = columns or text_columns_of(table, classifier.text_column, classifier.text_columns)
        texts = joined_texts(table, columns)
        yield InputBatch(texts, texts, _own_columns(table))


def _read_rows(classifier: Classifier, given: str, standard_input: IO[bytes]) -> Iterator[InputBatch]:
    names, path = _columns(classifier.settings)[0], Path(given)
    if given != "-" and (_is_loose(given) or not is_table(path)):
        raise RunError(
            f"{given} is no table; this classifier reads its rows, with the columns {listed(map(repr, names), 5)}"
        )
    where, file = (Path("standard input"), standard_input) if given == "-" else (path, None)
    for table in table_chunks(where, TEXTS, names, file):
        cells = [table.texts(column) for column in row_columns_of(table, names)]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]
        yield InputBatch([f"{where.name}:{line}" for line in table.lines], rows, _own_columns(table))


def _own_columns(table: Table) -> dict[str, list[str]]:
    return {
        name: ["" if cell is None else str(cell) for cell in table.frame[name].tolist()] for name in table.frame.columns
    }


def _columns(settings: Any) -> tuple[list[str], list[bool]]:
    """The columns of rows, and whether each holds numbers."""
    return [column["name"] for column in settings["columns"]], ["mean" in column for column in settings["columns"]]


def _image_files(given: str, standard_input: IO[bytes]) -> Iterable[str]:
    """The image files that an input stands for: itself, those of a folder, or those listed on standard input."""
    if given == "-":
        return _lines(standard_input, given)
    if _is_loose(given):
        raise RunError(f"{given} is no file; this classifier reads image files")
    folder = Path(given)
    if not folder.is_dir():
        return [given]
    found = sorted(str(path) for path in folder.rglob("*") if path.is_file() and is_image(path))
    if not found:
        raise RunError(f"there is no image in the folder {given}")
    return found


def _read_image(path: str, settings: Any) -> NDArray[np.uint8]:
    """The middle of an image file as (height, width, channels)."""
    height, width = settings["size"]
    try:
        pixels = read_middle(read_bytes(path), (width, height), settings["zoom"])
    except Exception as error:  # Pillow's decoders raise nearly anything on a broken file
        raise RunError(f"the image {path} cannot be read ({why_unreadable(error)})") from error
    return pixels if settings["channels"] == 3 else to_grey(pixels)


def _stacked(images: Sequence[Any], settings: Any) -> torch.Tensor:
    """Images, or their files, as (N, C, H, W)."""
    arrays = [_read_image(str(one), settings) if isinstance(one, str | Path) else one for one in images]
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2)


def _chunks(values: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(values)
    while chunk := list(itertools.islice(rest, size)):
        yield chunk


def _lines(file: IO[bytes], given: str) -> Iterator[str]:
    """The lines that are not empty of a file, or of standard input."""
    longest, name = limit_of("field"), "standard input" if given == "-" else given
    for number, line in enumerate(iter(lambda: file.readline(longest + 1), b""), start=1):
        check_limit("field", len(line), f"{name} line {number}")
        try:
            text = line.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise RunError(f"{name} line {number} is not UTF-8 text ({error.reason})") from error
        if text.strip():
            yield text


def _is_loose(given: str) -> bool:
    """Whether an input stands for itself, as a text does, and neither for a file nor for standard input."""
    if given == "-":
        return False
    try:
        if given and Path(given).exists():
            return False
    except OSError:  # a text too long for a file name
        return True
    if not any(map(str.isspace, given)) and Path(given).suffix.lower() in _FILE_SUFFIXES:
        raise RunError(f"there is no file {given}; if that is the text itself, pipe it into `alr predict RUN -`")
    return True
