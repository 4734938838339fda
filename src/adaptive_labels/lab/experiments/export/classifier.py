"""A trained classifier at work: a finished run, or what `alr export` wrote; an export needs torch and numpy alone."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.errors import UserError
from adaptive_labels.lab.experiments.export.encode import Encoder
from adaptive_labels.lab.experiments.export.formats import FORMAT, FORMATS, VERSION


@dataclass(frozen=True)
class Classifier:
    """Texts, images or rows of a table → classes with probabilities, at the temperature fitted on validation.

    Args:
        classes: their names, K.
        reads: "text", "image" or "row".
        settings: how inputs are read, as the encoder has it.
        infer: some inputs → probabilities (N, K).
        text_column: the column of the text that training was told, if it was.
        text_columns: the columns of texts that training read.
    """

    classes: tuple[str, ...]
    reads: str
    settings: Mapping[str, Any]
    infer: Callable[[Sequence[Any]], NDArray[np.float64]]
    text_column: str | None = None
    text_columns: tuple[str, ...] = ()

    def probabilities(self, inputs: Any) -> NDArray[np.float64]:
        """The probability of every class for each input, (N, K).

        Inputs are texts; for rows, a dict each; for images, arrays (height, width, channels) of uint8 or their files.
        One input may stand alone.
        """
        if isinstance(inputs, str | Path | Mapping):
            inputs = [inputs]
        return self.infer(inputs) if len(inputs) else np.zeros((0, len(self.classes)))

    def predict(self, inputs: Any, top: int = 3) -> list[list[tuple[str, float]]]:
        """The ``top`` classes of each input with their probabilities, largest first; see `probabilities`."""
        probabilities = self.probabilities(inputs)
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
        return [
            [(self.classes[place], float(row[place])) for place in places]
            for row, places in zip(probabilities, order.tolist(), strict=True)
        ]


def load(path: str | Path) -> Classifier:
    """The classifier in a folder: a finished run's, or what `alr export` wrote."""
    folder = Path(path)
    if is_export(folder):
        return load_export(folder)
    try:
        from adaptive_labels.lab.experiments.prediction import load_run
    except ModuleNotFoundError as error:
        raise ImportError(f"a run needs {error.name}: pip install 'adaptive-labels[lab]'") from error
    return load_run(folder)


def is_export(folder: Path) -> bool:
    """Whether a folder is what `alr export` wrote."""
    return (folder / "preprocessing.json").is_file()


def load_export(folder: Path, format: str | None = None) -> Classifier:
    """The classifier that `alr export` wrote, by the first of its formats that needs least, or by one of them."""
    settings = _read_settings(folder)
    choice = [FORMATS[name] for name in ([format] if format else ["safetensors", "pt2", "onnx"])]
    chosen = next((one for one in choice if (folder / one.file).is_file()), None)
    if chosen is None:
        raise UserError(f"{folder} has no file of a network, {', '.join(one.file for one in FORMATS.values())}")
    try:
        encoder = Encoder.load(folder)
    except ModuleNotFoundError as error:
        raise UserError(f"{folder} needs {error.name}: pip install {error.name}") from error
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / 'preprocessing.json'} does not say how inputs are read") from error
    run = chosen.read(folder / chosen.file, settings)

    def infer(inputs: Sequence[Any]) -> NDArray[np.float64]:
        output = run(encoder(inputs)).astype(np.float64)
        return output if settings["output"] == "probabilities" else _softmax(output / settings["temperature"])

    classes, columns = tuple(settings["id2label"].values()), tuple(settings["text_columns"])
    return Classifier(classes, settings["reads"], encoder.settings, infer, text_columns=columns)


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    powers: NDArray[np.float64] = np.exp(logits - logits.max(1, keepdims=True))
    powers /= powers.sum(1, keepdims=True)
    return powers


def _read_settings(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if settings["format"] == FORMAT and settings["format_version"] == VERSION:
            return settings
        problem = f"is of format {settings['format_version']}, and this version reads {VERSION}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"is not that of an export ({type(error).__name__})"
    raise UserError(f"{path} {problem}")
