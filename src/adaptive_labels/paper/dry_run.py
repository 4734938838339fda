"""Whether a cell's recipe can be run: resolved and built without its data, on the meta device."""

from __future__ import annotations

from adaptive_labels.analysis.format import parameters
from adaptive_labels.config import RunConfig
from adaptive_labels.experiments import build
from adaptive_labels.experiments.studies.runner import with_variant
from adaptive_labels.experiments.studies.study import Variant
from adaptive_labels.paper.stand_in import stand_in


def check_cell(config: RunConfig, variant: Variant) -> str:
    """Resolve the recipe with a method and build its network's shapes; the network, its size and the recipe in words.

    Raises what is wrong with it, as a ConfigError.
    """
    dataset = stand_in(config.data.name)
    resolved, _ = build.resolve_for(with_variant(config, variant, None), dataset)
    sizes = build.make_encoder(resolved, dataset).sizes
    with build.shapes_only():
        model = build.make_model(resolved, dataset.num_classes, sizes)
    criterion = build.make_criterion(resolved, dataset)
    counts = {
        "network": sum(one.numel() for one in model.parameters()),
        "criterion": sum(one.numel() for one in criterion.parameters()),
    }
    return f"{parameters(counts)} parameters; {build.describe(resolved)}"
