"""The augmentation of whole batches of training images."""

import torch
from torch import Tensor

from adaptive_labels.config import RunConfig
from adaptive_labels.data import Dataset
from adaptive_labels.data.augment import alternating_flip, random_crop, random_cutout, random_flip
from adaptive_labels.experiments import build
from adaptive_labels.objectives import Inputs
from adaptive_labels.training.batches import Augment, Share


def make_augment(config: RunConfig, dataset: Dataset) -> Augment | None:
    """Flips of whole image batches where they are in colour, shifts and cutouts; or None.

    Grey images are mostly writing, and a mirrored character is another one. Images that stay files are cropped and
    flipped one by one as they are read (see `data.encoders.images`), not here.
    """
    training, images = config.training, dataset.train.inputs
    sees_pixels = build.reads(config) == "pixels" or config.model.options.get("tune")
    if not training.augment or not isinstance(images, Tensor) or not sees_pixels:
        return None
    flip = training.flip if images.shape[1] == 3 else "none"
    reflect = training.translate is not None
    padding = max(1, images.shape[3] // 8) if training.translate is None else training.translate
    first = torch.rand(len(images), generator=torch.Generator().manual_seed(config.seed)) < 0.5

    def augment(inputs: Inputs, generator: torch.Generator, epoch: int, share: Share) -> Inputs:
        assert isinstance(inputs, Tensor)
        among = share.begin, len(share.piece)
        if flip == "random":
            inputs = random_flip(inputs, generator, among)
        elif flip == "alternating":
            inputs = alternating_flip(inputs, first[share.indices], epoch)
        if padding:
            inputs = random_crop(inputs, padding, generator, among, reflect=reflect)
        return random_cutout(inputs, training.cutout, generator, among) if training.cutout else inputs

    return augment
