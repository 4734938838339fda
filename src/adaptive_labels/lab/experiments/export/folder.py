"""`alr export`: a finished run → a network with its preprocessing inside → files, checked on real inputs.

The folder is filled beside its place and moved there at the end: it is whole or not there.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adaptive_labels import __version__
from adaptive_labels.errors import UserError, did_you_mean
from adaptive_labels.lab.data import Dataset, Encoder, Pretrained, TableRows
from adaptive_labels.lab.data.dataset import ImageFiles
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.export import card, encode as portable
from adaptive_labels.lab.experiments.export.classifier import FORMATS, Classifier, load_export
from adaptive_labels.lab.experiments.export.exported import FORMAT, VERSION, Exported
from adaptive_labels.lab.experiments.export.network import DYNAMIC, Pixels, PortableNetwork
from adaptive_labels.lab.experiments.prediction import load_run, whole_network
from adaptive_labels.lab.experiments.teachers import finished_run
from adaptive_labels.lab.files import write_bytes, write_error, write_json
from adaptive_labels.lab.runs import RunFolder

CHECKED, LARGEST_DIFFERENCE = 100, 1e-4
_TEXTS = [
    "A small town.",
    "",
    "Crème brûlée, ﬁve ＡＢＣ!",
    "東京 is not Kyōto",
    "one two two three three three",
    "x" * 50,
]


def parse_formats(text: str) -> list[str]:
    """Formats by their names, with commas between."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in FORMATS:
            raise UserError(f"format is {name!r}; it must be of {', '.join(FORMATS)}{did_you_mean(name, FORMATS)}")
    return names or ["onnx"]


def export_run(path: Path, out: Path, formats: Sequence[str], logits: bool = False) -> tuple[int, dict[str, float]]:
    """Write what a run has trained; on how many inputs it was checked, and the largest difference for each format.

    ``logits`` leaves temperature and softmax to whoever runs the network.
    """
    for name in formats:
        FORMATS[name].check()
    run = finished_run(path, "export")
    classifier = load_run(path)
    dataset = build.data_of_run(run)
    with _new_folder(out) as folder:
        network, encoder, _ = whole_network(run)
        exported = _exported(run, network, encoder, classifier, logits, folder)
        for name in formats:
            FORMATS[name].write(exported, folder / FORMATS[name].FILE)
        inputs = some_inputs(dataset)
        expected = classifier.probabilities(inputs)
        differences = {
            name: float(np.abs(load_export(folder, name).probabilities(inputs) - expected).max()) for name in formats
        }
        for name, difference in differences.items():
            if not difference <= LARGEST_DIFFERENCE:
                raise UserError(
                    f"{path} was not exported: on {len(inputs)} validation inputs its probabilities as {name} differ "
                    f"by up to {difference:.2g} from those of `alr predict`; at most {LARGEST_DIFFERENCE:g} is allowed"
                )
        card.write_card(run, dataset, encoder, exported.settings, differences, len(inputs), folder)
    return len(inputs), differences


def some_inputs(dataset: Dataset, count: int = CHECKED) -> list[Any]:
    """Inputs of the validation split, evenly spread over it, as `Classifier.probabilities` takes them."""
    every = dataset.validation.inputs
    chosen = np.unique(np.linspace(0, len(every) - 1, min(count, len(every))).round().astype(np.int64))
    if isinstance(every, Tensor):
        return [image.permute(1, 2, 0).numpy() for image in every[torch.from_numpy(chosen)]]
    if isinstance(every, ImageFiles):
        return [every.path(index) for index in chosen.tolist()]
    if isinstance(every, TableRows):
        return [dict(zip(every.names, cells, strict=True)) for cells in every.cells[chosen]]
    return [every[index] for index in chosen.tolist()]


def _exported(
    run: RunFolder, network: nn.Module, encoder: Encoder, classifier: Classifier, logits: bool, folder: Path
) -> Exported:
    """The network, with the files of its preprocessing written into a folder."""
    settings, kind = encoder.to_dict(), _kind_of(encoder, classifier.reads)
    pretrained = encoder if isinstance(encoder, Pretrained) else None
    temperature = (run.result or {})["metrics"]["test"].get("temperature", 1.0)
    pixels = Pixels(settings) if kind == "images" else None
    whole = PortableNetwork(network, temperature, logits, pixels)

    write_json(folder / "preprocessing.json", {"kind": kind, "settings": settings})
    write_bytes(folder / "encode.py", Path(portable.__file__).read_bytes())
    if kind == "tokens":
        assert pretrained is not None
        shutil.copyfile(pretrained.backbone.tokenizer(), folder / "tokenizer.json")
    arrays = _write_golden(portable.Encoder.load(folder), kind, settings, folder)
    own = build.network_options(run.config, encoder.sizes)
    config = {
        "format": FORMAT,
        "format_version": VERSION,
        "id2label": {str(place): name for place, name in enumerate(classifier.classes)},
        "label2id": {name: place for place, name in enumerate(classifier.classes)},
        "output": "logits" if logits else "probabilities",
        "temperature": temperature,
        "inputs": list(DYNAMIC[kind]),
        "reads": classifier.reads,
        "text_columns": list(classifier.text_columns),
        "network": {
            "name": run.config.model.name,
            "options": own if pretrained is None else {**own, "tune": False},
            "encoder": None if pretrained is None else pretrained.kind,
            "pixels": None if pixels is None else {name: settings[name] for name in settings if name in _PIXELS},
        },
        "made_by": {"adaptive_labels": __version__, "torch": torch.__version__},
    }
    write_json(folder / "config.json", config)
    return Exported(whole, config, kind, arrays)


_PIXELS = ("mean", "std", "size", "input_size")


def _kind_of(encoder: Encoder, reads: str) -> str:
    """How inputs are read, in the words of `encode.py`."""
    if reads == "image":
        return "images"
    return encoder.kind if encoder.kind in DYNAMIC else "tokens"


def _write_golden(encode: portable.Encoder, kind: str, settings: Mapping[str, Any], folder: Path) -> portable.Arrays:
    """Write inputs that are nobody's with what the network reads of them; the arrays, to trace the network with."""
    if kind == "images":  # arrays are given as they are, and there is nothing to compare
        shape = (3, *settings["size"], settings["channels"])
        return {"pixels": np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)}
    inputs: list[Any] = _TEXTS
    if kind == "columns":
        full = {
            column["name"]: column.get("categories", [str(column.get("mean"))])[0] for column in settings["columns"]
        }
        inputs = [full, {}, dict.fromkeys(full, "12.5"), {**full, next(iter(full)): "1e9"}]
    arrays = encode(inputs)
    write_json(folder / "golden.json", {"inputs": inputs, "arrays": arrays})
    if "offsets" in arrays:  # as many lines as texts would count as the same number
        return portable.lines([[0] * 40, [], [0]], [[1.0] * 40, [], [1.0]] if "weights" in arrays else None)
    return arrays


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill beside ``out``, which takes its place in the end; removed if anything fails."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is not an empty folder: give another one with -o")
    try:
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.absolute().parent))
    except OSError as error:
        raise write_error(out, error) from error
    try:
        yield folder
        folder.chmod(0o777 & ~_umask())
        folder.replace(out)
    except OSError as error:
        raise write_error(out, error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
