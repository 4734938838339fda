"""The methods in other trainers: one file and one extra per trainer, and a module of model and criterion for all.

No trainer is imported here.
"""

from adaptive_labels.adapters.module import ModelAndCriterion

__all__ = ["ModelAndCriterion"]
