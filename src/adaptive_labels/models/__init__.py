"""Models by name: `create_model(name, num_classes, **options)` builds any of them, inputs → logits (N, K)."""

from adaptive_labels.models.registry import MODELS, ModelEntry, create_model, register_model

# The modules enter their models in the registry when they are imported.
from adaptive_labels.models import charcnn, fasttext, preact_resnet, resnet, textrnn, transformer  # isort: skip

__all__ = [
    "MODELS",
    "ModelEntry",
    "charcnn",
    "create_model",
    "fasttext",
    "preact_resnet",
    "register_model",
    "resnet",
    "textrnn",
    "transformer",
]
