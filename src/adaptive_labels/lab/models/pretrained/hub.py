"""Encoders of Transformers, from a folder or the Hugging Face hub, and networks of timm with their weights.

Both libraries are imported only if a network of theirs is asked for. Weights are opened as safetensors, and code that
comes with them is never run.

Shapes: n inputs of a batch, L tokens of its longest text, D features, S pixels.
"""

import functools
import hashlib
import importlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adaptive_labels.errors import UserError
from adaptive_labels.lab.files import expanded, file_hash
from adaptive_labels.lab.models.pretrained.backbones import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    MOST_TOKENS,
    ImageBackbone,
    TextBackbone,
)
from adaptive_labels.lab.words import first_line

_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")  # what is downloaded: settings, weights, vocabularies
_UNKNOWN = "What {} was trained on is not known here: if it has seen this data, the figures flatter it."


class _Mean(nn.Module):
    """The mean of a network's outputs over the tokens of each text, or over the places of each image."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return (n, D) for images (n, 3, S, S), or for token numbers (n, L), the first `lengths` (n,) of each row."""
        hidden: Tensor
        if lengths is None:
            hidden = self.model(pixel_values=inputs).last_hidden_state  # (n, places, D) or (n, D, height, width)
            return hidden.mean((2, 3)) if hidden.ndim == 4 else hidden.mean(1)
        mask = (torch.arange(inputs.shape[1], device=inputs.device) < lengths[:, None]).long()  # (n, L)
        hidden = self.model(input_ids=inputs, attention_mask=mask).last_hidden_state  # (n, L, D)
        return (hidden * mask[:, :, None]).sum(1) / lengths[:, None]


def kind_of(name: str) -> str:
    """What an encoder of Transformers reads: "text" or "image"."""
    settings = _settings(name)
    if hasattr(settings, "vocab_size"):
        return "text"
    if hasattr(settings, "num_channels"):
        return "image"
    kind = settings.model_type
    raise UserError(f"'hf:{name}' reads neither texts nor images alone ({kind}); give an encoder that does")


@functools.lru_cache(maxsize=2)
def text_backbone(name: str) -> TextBackbone:
    """Return a text encoder of Transformers, its tokenizer included."""
    folder, settings = _folder(name), _settings(name)
    with _said(name):
        tokenizer = _transformers(name).AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    longest = min(tokenizer.model_max_length, getattr(settings, "max_position_embeddings", MOST_TOKENS), MOST_TOKENS)

    def tokenize(texts: Sequence[str], most: int) -> list[list[int]]:
        readable = [text.encode("utf-8", "replace").decode() for text in texts]
        ids = tokenizer(readable, truncation=True, max_length=most)["input_ids"] if readable else []
        return [numbers or [0] for numbers in ids]

    load = functools.partial(_load, name)
    width = load()(torch.zeros(1, 2, dtype=torch.int64), torch.tensor([2])).shape[1]
    note = _UNKNOWN.format(f"hf:{name}")
    file = folder / "tokenizer.json"
    return TextBackbone(
        _hash(folder), width, load, note, tokenize=tokenize, most_tokens=longest, tokenizer=lambda: file
    )


@functools.lru_cache(maxsize=2)
def image_backbone(name: str) -> ImageBackbone:
    """Return an image encoder of Transformers; how pixels are normalised is in its preprocessor_config.json."""
    folder, settings = _folder(name), _settings(name)
    try:
        given = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        given = {}
    mean, std = tuple(given.get("image_mean") or IMAGENET_MEAN), tuple(given.get("image_std") or IMAGENET_STD)
    size = getattr(settings, "image_size", None)
    only = size if isinstance(size, int) else size[0] if size else None
    load = functools.partial(_load, name)
    width = load()(torch.zeros(1, 3, only or 64, only or 64)).shape[1]
    note = _UNKNOWN.format(f"hf:{name}")
    size, small = only or 224, only or 160
    return ImageBackbone(_hash(folder), width, load, note, mean=mean, std=std, large=size, small=small, only=only)


def timm_backbone(name: str) -> ImageBackbone:
    """Return a network of timm with its pretrained weights."""
    model, weights = _load_timm(name)
    given = model.pretrained_cfg
    size = int(given["input_size"][1])
    only = size if given.get("fixed_input_size") else None
    note = (
        f"timm:{name} comes with weights that were trained on other images, mostly those of ImageNet: on data that it "
        "has seen, the figures flatter it."
    )
    mean, std = tuple(given["mean"]), tuple(given["std"])
    width, small = int(model.num_features), only or min(size, 160)
    return ImageBackbone(weights, width, lambda: model, note, mean=mean, std=std, large=size, small=small, only=only)


@functools.lru_cache(maxsize=2)
def _load_timm(name: str) -> tuple[Any, str]:
    timm = import_library("timm", f"timm:{name}")
    try:
        model = timm.create_model(name, pretrained=True, num_classes=0)
    except Exception as error:  # no network, no weights of that name, …
        raise UserError(
            f"the pretrained weights of 'timm:{name}' cannot be had ({_why(error)}); they are downloaded from "
            "the Hugging Face hub, once"
        ) from error
    digest = hashlib.sha256()
    for key, tensor in model.state_dict().items():
        digest.update(key.encode() + tensor.numpy().tobytes())
    return model.requires_grad_(False).eval(), digest.hexdigest()


def import_library(library: str, needed_by: str) -> Any:
    """Import a library of networks; a sentence says what is missing, or what cannot be imported."""
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        missing = (error.name or library).partition(".")[0]
        wanted = library if missing == library else f"{missing}, which {library} uses"
        raise UserError(f"{needed_by!r} needs {wanted}, and it is not installed: pip install {missing}") from error
    except Exception as error:  # torchvision beside another build of torch: RuntimeError, ImportError, OSError, …
        raise UserError(
            f"{needed_by!r} needs {library}, which is installed but cannot be imported ({_why(error)}); "
            "torchvision must be of the same release and build as torch"
        ) from error


def _transformers(name: str) -> Any:
    return import_library("transformers", f"hf:{name}")


@functools.lru_cache(maxsize=4)
def _settings(name: str) -> Any:
    with _said(name):
        return _transformers(name).AutoConfig.from_pretrained(_folder(name), trust_remote_code=False)


@functools.lru_cache(maxsize=4)
def _load(name: str) -> nn.Module:
    """The network of a folder, without a head; all weights that count must be there."""
    folder = _folder(name)
    with _said(name):
        model, loading = _transformers(name).AutoModel.from_pretrained(
            folder, trust_remote_code=False, use_safetensors=True, output_loading_info=True, dtype=torch.float32
        )
    lacking = sorted(key for key in loading["missing_keys"] if "pooler" not in key)
    if lacking:
        raise UserError(f"'hf:{name}': the weights in {folder} lack {len(lacking)} tensors, such as {lacking[0]}")
    encoder = model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model
    return _Mean(encoder).requires_grad_(False).eval()


@functools.lru_cache(maxsize=4)
def _folder(name: str) -> Path:
    """Where an encoder's files are: the folder of this name, or what the hub has under it."""
    folder = expanded(name)
    if not folder.is_dir():
        hub = import_library("huggingface_hub", f"hf:{name}")
        try:
            folder = Path(hub.snapshot_download(name, allow_patterns=list(_FILES)))
        except Exception as error:  # no network, no such name, no right to it, …
            raise UserError(
                f"'hf:{name}' is no folder here, and cannot be downloaded ({_why(error)}): download "
                f"config.json, model.safetensors and the tokenizer's files of https://huggingface.co/{name} elsewhere, "
                "put them into a folder, and name that: hf:FOLDER"
            ) from error
    if not any(folder.glob("*.safetensors")):
        raise UserError(f"'hf:{name}': {folder} has no weights as safetensors, and no other kind of file is opened")
    return folder


def _hash(folder: Path) -> str:
    """A hash of all that decides the features: settings, weights, vocabularies."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in _FILES for path in folder.glob(pattern)):
        digest.update(path.name.encode() + bytes.fromhex(file_hash(path)))
    return digest.hexdigest()


@contextmanager
def _said(name: str) -> Iterator[None]:
    """A context in which what Transformers refuses becomes a sentence."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # a broken file, an architecture that only comes as code, …
        raise UserError(f"'hf:{name}' cannot be read as an encoder of Transformers ({_why(error)})") from error


def _why(error: Exception) -> str:
    return first_line(error).rstrip(".: ")
