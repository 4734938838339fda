"""`digits`: the 1,797 handwritten digits, 8×8 pixels, that come with scikit-learn."""

from pathlib import Path

import numpy as np
import torch

from adaptive_labels.lab.data.dataset import DataError, Examples
from adaptive_labels.lab.data.sources import register_dataset
from adaptive_labels.lab.data.splits import RawDataset

_LARGEST_VALUE = 16  # the pixels count how many of 4×4 points were inked


@register_dataset("digits", "handwritten digits, 8×8 greyscale, 1,797 images (scikit-learn)")
def read_digits(data_dir: Path | None = None) -> RawDataset:
    """Greyscale digits 0 to 9 as uint8 images (N, 1, 8, 8), their ink scaled to 0…255."""
    try:
        from sklearn.datasets import load_digits as load_from_sklearn
    except ImportError as error:
        raise DataError(
            'The data set digits needs the package scikit-learn: pip install "adaptive-labels[digits]".'
        ) from error
    bunch = load_from_sklearn()
    pixels = np.rint(bunch.images * (255 / _LARGEST_VALUE)).astype(np.uint8)[:, None]  # (N, 1, 8, 8)
    examples = Examples(torch.from_numpy(pixels), torch.from_numpy(bunch.target.astype(np.int64)))
    return RawDataset("digits", "image", list(map(str, bunch.target_names)), {"train": examples})
