"""Models by name: `create_model(name, num_classes, **options)` builds any of them, inputs → logits (N, K).

A model may have a method `fit_inputs(inputs)`. Before training it is called once with encoded training inputs, the same
for every seed; what it sets must be in the model's `state_dict`.
"""

from adaptive_labels.models.registry import MODELS, ModelEntry, create_model, register_model

# The modules enter their models in the registry when they are imported.
from adaptive_labels.models import airbench, charcnn, fasttext, preact_resnet, resnet, textrnn, transformer  # isort: skip

__all__ = [
    "MODELS",
    "ModelEntry",
    "airbench",
    "charcnn",
    "create_model",
    "fasttext",
    "preact_resnet",
    "register_model",
    "resnet",
    "textrnn",
    "transformer",
]
