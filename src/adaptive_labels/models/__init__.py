"""Models by name: `create_model(name, num_classes, **options)` builds any of them, inputs → logits (N, K).

A model may have a method `fit_inputs(inputs)`. Before training it is called once with encoded training inputs, the same
for every seed; what it sets must be in the model's `state_dict`.
"""

import importlib
import pkgutil

from adaptive_labels.models.registry import (
    LIBRARIES,
    MODELS,
    ModelEntry,
    create_model,
    find_model,
    register_model,
    shapes_only,
)
from adaptive_labels.models.weights import WeightsError, file_hash, load_weights, match_weights

__all__ = [
    "LIBRARIES",
    "MODELS",
    "ModelEntry",
    "WeightsError",
    "create_model",
    "file_hash",
    "find_model",
    "load_weights",
    "match_weights",
    "register_model",
    "shapes_only",
]

# The modules enter their models in the registry when they are imported.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
