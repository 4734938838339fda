"""Two runs compared on the same test examples."""

import numpy as np
from numpy.typing import NDArray

from adaptive_labels.analysis.statistics import Bootstrap, bootstrap_difference
from adaptive_labels.runs import RunError, RunFolder


def bootstrap_runs(method: RunFolder, baseline: RunFolder, *, repeats: int = 2000, seed: int = 0) -> Bootstrap:
    """Difference in test accuracy of two runs, with a 95% interval over resampled test examples.

    This is the noise of the test split for these two trained networks; the noise between seeds comes on top of it.
    """
    (first, first_labels), (second, second_labels) = _right(method), _right(baseline)
    if not np.array_equal(first_labels, second_labels):
        raise RunError(f"{method.path} and {baseline.path} were tested on different examples; they cannot be paired.")
    return bootstrap_difference(first, second, repeats=repeats, seed=seed)


def _right(run: RunFolder) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    predictions = run.load_predictions()
    if predictions is None:
        raise RunError(f"{run.path} has no predictions.npz to compare examples by.")
    return predictions.test_logits.argmax(axis=1) == predictions.test_labels, predictions.test_labels
