"""Networks that others have trained: weights are found in installed packages and checked; no package is imported."""

from adaptive_labels.lab.models.pretrained.packages import PackageError as PackageError, packaged_file as packaged_file
