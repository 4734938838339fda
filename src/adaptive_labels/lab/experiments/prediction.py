"""A finished run as a classifier: texts, image files or rows of a table in, classes with probabilities out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TextIO

import numpy as np
import torch
from torch import Tensor, nn

from adaptive_labels.lab.data import Pretrained, Progress, TableRows
from adaptive_labels.lab.data.encoders.columns import ColumnEncoder
from adaptive_labels.lab.data.encoders.images import ImageEncoder
from adaptive_labels.lab.data.frames import is_table
from adaptive_labels.lab.data.pixels import is_image, read_middle, why_unreadable
from adaptive_labels.lab.data.sources.tables import read_rows, read_texts
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.teachers import finished_run
from adaptive_labels.lab.files import read_bytes, read_text
from adaptive_labels.lab.runs import RunError
from adaptive_labels.lab.training.evaluation import predict_logits
from adaptive_labels.lab.words import listed

_FILE_SUFFIXES = {".txt", ".csv", ".tsv", ".json", ".jsonl", ".png", ".jpg", ".jpeg"}


@dataclass(frozen=True)
class Predictor:
    """A trained network with what it needs to read its inputs.

    Probabilities are at the temperature that was fitted on the validation split.
    """

    model: nn.Module
    encoder: build.Encoder
    classes: tuple[str, ...]
    temperature: float
    text_column: str | None = None
    trained_on: tuple[str, ...] = ()  # the columns of text of the training table

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The classifier of the finished run in ``path``."""
        run = finished_run(Path(path), "predict with")
        temperature = (run.result or {})["metrics"]["test"].get("temperature", 1.0)
        network = build.load_network(run)
        columns = (run.result or {}).get("text_columns")
        trained_on = tuple(map(str, columns)) if isinstance(columns, list) else ()
        return cls(*network, temperature, run.config.data.text_column, trained_on)

    def read(self, inputs: Sequence[str], standard_input: TextIO) -> tuple[list[str], list[str] | Tensor | TableRows]:
        """What command-line inputs stand for: names to show, and the texts, images or rows themselves.

        Of a table each row is an input, empty texts included; of any other text file each line that is not empty.
        """
        if isinstance(self.encoder, ColumnEncoder):
            return self._read_rows(inputs, self.encoder)
        if isinstance(self.encoder, ImageEncoder):
            return self._read_images(inputs)
        texts: list[str] = []
        for given in inputs:
            if given == "-":
                texts += [line.rstrip("\n") for line in standard_input if line.strip()]
            elif _is_file(given):
                if is_image(Path(given)):
                    raise RunError(f"{given} is an image, but this run classifies texts")
                path = Path(given)
                columns = self.text_column, self.trained_on
                texts += read_texts(path, *columns) if is_table(path) else _lines_of(path)
            elif _is_file_name(given):
                raise RunError(
                    f"there is no file {given}; if that is the text itself, pipe it into `alr predict RUN -`"
                )
            else:
                texts.append(given)
        return texts, texts

    def _read_rows(self, inputs: Sequence[str], encoder: ColumnEncoder) -> tuple[list[str], TableRows]:
        names: list[str] = []
        cells = []
        for given in inputs:
            if not _is_file(given) or not is_table(Path(given)):
                columns = listed(map(repr, encoder.names), 5)
                raise RunError(f"{given} is no table; this run classifies the rows of one, with the columns {columns}")
            rows, sources = read_rows(Path(given), encoder.names, encoder.numeric)
            names += sources
            cells.append(rows.cells)
        return names, TableRows(tuple(encoder.names), tuple(encoder.numeric), np.concatenate(cells))

    def _read_images(self, inputs: Sequence[str]) -> tuple[list[str], Tensor]:
        assert isinstance(self.encoder, ImageEncoder)
        height, width = self.encoder.size
        decoded = []
        for given in inputs:
            if not _is_file(given):
                raise RunError(f"{given} is no file; this run classifies image files")
            try:
                pixels = read_middle(read_bytes(given), (width, height), self.encoder.zoom)  # (H, W, 3)
            except Exception as error:  # Pillow's decoders raise nearly anything on a broken file
                raise RunError(f"the image {given} cannot be read ({why_unreadable(error)})") from error
            decoded.append(torch.from_numpy(pixels.copy()).permute(2, 0, 1))
        images = torch.stack(decoded)
        if self.encoder.channels == 1:
            grey = torch.tensor([0.299, 0.587, 0.114]).reshape(1, 3, 1, 1)
            images = (images * grey).sum(1, keepdim=True).round().to(torch.uint8)
        return list(inputs), images

    def probabilities(self, inputs: Any, progress: Progress | None = None) -> Tensor:
        """The probability of every class for each input, (N, K): texts, a tensor of images, or a dict for each row.

        One text or one dict is one input. ``progress`` hears how far a pretrained encoder is.
        """
        if isinstance(inputs, str | Mapping):
            inputs = [inputs]
        if len(inputs) == 0:
            return torch.zeros(0, len(self.classes), dtype=torch.float64)
        if isinstance(self.encoder, ColumnEncoder) and not isinstance(inputs, TableRows):
            inputs = TableRows.of_records(self.encoder.names, self.encoder.numeric, inputs)
        given = inputs if isinstance(inputs, Tensor | TableRows) else list(inputs)
        told = (progress,) if isinstance(self.encoder, Pretrained) else ()
        encoded = self.encoder.encode(given, *told)
        return (predict_logits(self.model, encoded).double() / self.temperature).softmax(1)

    def predict(self, inputs: Any, top: int = 3) -> list[list[tuple[str, float]]]:
        """The ``top`` classes of each input with their probabilities, largest first; see `probabilities`."""
        return self.largest(self.probabilities(inputs), top)

    def largest(self, probabilities: Tensor, top: int) -> list[list[tuple[str, float]]]:
        """The ``top`` classes of each row of probabilities (N, K), largest first."""
        values, indices = probabilities.topk(min(top, len(self.classes)), dim=1)
        return [
            [(self.classes[int(index)], float(value)) for value, index in zip(*row, strict=True)]
            for row in zip(values, indices, strict=True)
        ]


def _lines_of(file: Path) -> list[str]:
    try:
        # Not splitlines(), which also breaks at characters that may stand inside a text.
        return [line for line in read_text(file, "utf-8-sig").split("\n") if line.strip()]
    except UnicodeDecodeError as error:
        raise RunError(f"{file} is not UTF-8 text ({error.reason} at byte {error.start})") from error


def _is_file_name(given: str) -> bool:
    """Whether a text is a single word that ends as the names of text and image files do: a mistyped path, surely."""
    return not any(map(str.isspace, given)) and Path(given).suffix.lower() in _FILE_SUFFIXES


def _is_file(given: str) -> bool:
    try:
        return Path(given).exists() and not Path(given).is_dir()
    except OSError:  # a text too long for a file name
        return False
