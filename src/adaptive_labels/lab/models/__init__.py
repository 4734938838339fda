"""Models by name: `create_model(name, num_classes, **options)` builds any of them, inputs → logits (N, K).

Every model takes `num_classes`, the number of logits K, and one for images `in_channels`: 1 for grey, 3 for colour. It
may have a method `fit_inputs(inputs)`. Before training it is called once with encoded training inputs, the same
for every seed; what it sets must be in the model's `state_dict`.
"""

import importlib
import pkgutil

from adaptive_labels.lab.models.registry import (
    LIBRARIES as LIBRARIES,
    MODELS as MODELS,
    ModelEntry as ModelEntry,
    create_model as create_model,
    find_model as find_model,
    register_model as register_model,
    shapes_only as shapes_only,
)
from adaptive_labels.lab.models.weights import (
    WeightsError as WeightsError,
    load_weights as load_weights,
    match_weights as match_weights,
)

# The modules enter their models in the registry when they are imported.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
