"""Adaptive label regularisation: train classifiers on better labels.

>>> from adaptive_labels import AdaptiveLabelLoss
>>> criterion = AdaptiveLabelLoss(num_classes=10)
"""

from __future__ import annotations

# Not imported from `typing`: nothing can answer Ctrl-C with a sentence before `__main__` is imported, so that is quick.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from adaptive_labels.lab.experiments.comparison import compare as compare
    from adaptive_labels.lab.experiments.export.classifier import load as load
    from adaptive_labels.losses import AdaptiveLabelLoss as AdaptiveLabelLoss

__version__ = "0.1.0"
__all__ = ["AdaptiveLabelLoss", "__version__", "compare", "load"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    # torch takes seconds to import: `alr --help` and the analysis of finished runs do without it.
    if name == "AdaptiveLabelLoss":
        from adaptive_labels.losses import AdaptiveLabelLoss

        return AdaptiveLabelLoss
    if name == "compare":
        try:
            from adaptive_labels.lab.experiments.comparison import compare
        except ModuleNotFoundError as error:
            raise ImportError(f"compare needs {error.name}: pip install 'adaptive-labels[lab]'") from error
        return compare
    if name == "load":
        from adaptive_labels.lab.experiments.export.classifier import load  # torch and numpy are all that it needs

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
