"""`digits`: the 1,797 handwritten digits, 8×8 pixels, that come with scikit-learn."""

from pathlib import Path

import numpy as np
import torch

from adaptive_labels.data.assemble import Part, assemble
from adaptive_labels.data.dataset import DataError, Dataset, Examples
from adaptive_labels.data.splits import content_digest

_LARGEST_VALUE = 16  # the pixels count how many of 4×4 points were inked


def load_digits(*, split_seed: int = 0, train_fraction: float = 1.0, data_dir: Path | None = None) -> Dataset:
    """Greyscale digits 0 to 9 as uint8 images (N, 1, 8, 8), their ink scaled to 0…255."""
    try:
        from sklearn.datasets import load_digits as load_from_sklearn
    except ImportError as error:
        raise DataError(
            'The data set digits needs the package scikit-learn: pip install "adaptive-labels[digits]".'
        ) from error
    bunch = load_from_sklearn()
    pixels = np.rint(bunch.images * (255 / _LARGEST_VALUE)).astype(np.uint8)[:, None]  # (N, 1, 8, 8)
    part = Part(
        Examples(torch.from_numpy(pixels), torch.from_numpy(bunch.target.astype(np.int64))),
        [content_digest(image.tobytes()) for image in pixels],
        of_pixels=True,
    )
    classes = [str(name) for name in bunch.target_names]
    return assemble(
        "digits", "image", classes, part, None, None, notes=[], split_seed=split_seed, train_fraction=train_fraction
    )
