"""`alr export`: a finished run → a network with its preprocessing inside → files, checked on real inputs.

The folder is filled beside its place and moved there at the end: it is whole or not there.
"""

import secrets
import shutil
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
from adaptive_labels.lab.experiments.export.classifier import Classifier, is_export, load_export
from adaptive_labels.lab.experiments.export.formats import FORMAT, FORMATS, VERSION, Exported
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
    if is_export(path):
        raise UserError(f"{path} is an export already: give the folder of a run")
    for name in formats:
        FORMATS[name].check()
    run = finished_run(path, "export")
    classifier = load_run(path)
    dataset = build.data_of_run(run)
    with _new_folder(out) as folder:
        network, encoder, _ = whole_network(run)
        exported = _exported(run, network, encoder, classifier, logits, folder)
        for name in formats:
            FORMATS[name].write(exported, folder / FORMATS[name].file)
        inputs = some_inputs(dataset)
        expected, differences = classifier.probabilities(inputs), dict[str, float]()
        for name in formats:
            found = load_export(folder, name).probabilities(inputs)
            differences[name] = float(np.abs(found - expected).max())
            if not differences[name] <= LARGEST_DIFFERENCE:  # NaN is refused, too
                raise UserError(
                    f"{path} was not exported: on {len(inputs)} validation inputs its probabilities as {name} differ "
                    f"by up to {differences[name]:.2g} from those of `alr predict`; allowed is {LARGEST_DIFFERENCE:g}"
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
    settings, pretrained = encoder.to_dict(), isinstance(encoder, Pretrained)
    kind = "images" if classifier.reads == "image" else encoder.kind if encoder.kind in DYNAMIC else "tokens"
    temperature = (run.result or {})["metrics"]["test"].get("temperature", 1.0)

    write_json(folder / "preprocessing.json", {"kind": kind, "settings": settings})
    write_bytes(folder / "encode.py", Path(portable.__file__).read_bytes())
    if isinstance(encoder, Pretrained) and kind == "tokens":
        shutil.copyfile(encoder.backbone.tokenizer(), folder / "tokenizer.json")
    arrays = _write_golden(portable.Encoder.load(folder), kind, settings, folder)
    options = build.network_options(run.config, encoder.sizes)
    pixels = {name: settings.get(name) for name in ("mean", "std", "size", "input_size")} if kind == "images" else None
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
            "options": {**options, "tune": False} if pretrained else options,
            "encoder": encoder.kind if pretrained else None,
            "pixels": pixels,
        },
        "made_by": {"adaptive_labels": __version__, "torch": torch.__version__},
    }
    write_json(folder / "config.json", config)
    whole = PortableNetwork(network, temperature, logits, None if pixels is None else Pixels(pixels))
    return Exported(whole, config, kind, arrays, settings.get("max_tokens"))


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
    folder = out.absolute().with_name(f".{out.name}.{secrets.token_hex(8)}.tmp")
    try:
        folder.mkdir(parents=True)
        yield folder
        folder.replace(out)
    except OSError as error:
        raise write_error(out, error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
