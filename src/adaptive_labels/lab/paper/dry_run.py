"""Check that a cell's recipe can be run: resolve and build it without its data, on the meta device."""

import torch

from adaptive_labels.lab.analysis.format import parameters
from adaptive_labels.lab.config import RunConfig
from adaptive_labels.lab.data import Dataset, Examples
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.studies.runner import with_variant
from adaptive_labels.lab.experiments.studies.study import Variant

# Classes; and channels and pixels of an image, or None for texts.
SHAPES: dict[str, tuple[int, tuple[int, int] | None]] = {
    "cifar10": (10, (3, 32)),
    "cifar100": (100, (3, 32)),
    "imagenet": (1000, (3, 224)),
    "digits": (10, (1, 8)),
    "towns": (30, None),
    "ag_news": (4, None),
    "yahoo_answers": (10, None),
    "yelp_full": (5, None),
}
WORDS = 40_000


def check_cell(config: RunConfig, variant: Variant) -> str:
    """Resolve the recipe with a method and build its network's shapes; returns its size and the recipe in words.

    A ConfigError says what is wrong with it.
    """
    dataset = blank_data(config.data.name)
    resolved, _ = build.resolve_for(with_variant(config, variant), dataset)
    sizes = build.make_encoder(resolved, dataset).sizes
    with build.shapes_only():
        model = build.make_model(resolved, dataset.num_classes, sizes)
    criterion = build.make_criterion(resolved, dataset)
    counts = {"network": build.count_parameters(model), "criterion": build.count_parameters(criterion)}
    return f"{parameters(counts)} parameters; {build.describe(resolved)}"


def blank_data(name: str) -> Dataset:
    """Two blank images or some made-up texts in every split, of as many classes as the data set has.

    The texts have enough different words to fill a vocabulary, so that networks have the size that they will have.

    >>> found = blank_data("cifar100")
    >>> found.num_classes, tuple(found.train.inputs.shape)
    (100, (2, 3, 32, 32))
    """
    classes, image = SHAPES[name]
    inputs: list[str] | torch.Tensor
    if image is None:
        texts = [" ".join(f"w{i}" for i in range(start, start + 400)) for start in range(0, WORDS, 400)]
        inputs = 2 * texts  # a word counts from its second occurrence on
    else:
        inputs = torch.zeros(2, image[0], image[1], image[1], dtype=torch.uint8)
    labels = torch.tensor([0, classes - 1]).repeat(len(inputs) // 2)
    every = Examples(inputs, labels)
    names = tuple(f"class {number}" for number in range(classes))
    return Dataset(name, "text" if image is None else "image", names, every, every, every, notes=(), fingerprint="")
