"""Label refinery: cross entropy with the probabilities of the generation before."""

from adaptive_labels.losses.cross_entropy import CrossEntropy
from adaptive_labels.losses.registry import register_method

register_method("label-refinery", "labels refined by the generation before", learns_from="generations")(CrossEntropy)
