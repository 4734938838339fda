"""Readers: the user's own files by path, and one file for each data set (or family) that has a name."""

import importlib
import pkgutil

from adaptive_labels.data.readers.registry import (
    DATASETS as DATASETS,
    READERS as READERS,
    register_dataset as register_dataset,
    register_reader as register_reader,
)

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
