"""Whether a cell's recipe can be run: resolved and built without its data, on no device."""

from __future__ import annotations

import torch

from adaptive_labels import build
from adaptive_labels.config import RunConfig
from adaptive_labels.reproduction.beside import parameter_words
from adaptive_labels.reproduction.stand_in import stand_in
from adaptive_labels.studies.conduct import with_variant
from adaptive_labels.studies.study import Variant


def check_cell(config: RunConfig, variant: Variant) -> str:
    """Resolve the recipe with a method and build its network's shapes; the network, its size and the recipe in words.

    Raises what is wrong with it, as a ConfigError.
    """
    dataset = stand_in(config.data.name)
    resolved, _ = build.resolve_for(with_variant(config, variant, None), dataset)
    with torch.device("meta"):
        objective = build.make_objective(resolved, dataset)
    parameters = {
        "network": sum(p.numel() for p in objective.model.parameters()),
        "criterion": sum(p.numel() for p in objective.criterion.parameters()),
    }
    return f"{parameter_words(parameters)} parameters; {build.describe(resolved)}"
