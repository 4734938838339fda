"""The command `alr`. Commands import torch and numpy inside, so that `alr --help` is fast."""

from importlib import import_module
from pkgutil import iter_modules

from adaptive_labels.lab.cli.app import app, main

__all__ = ["app", "main"]

# A command is the file of its name. The help lists these in this order, and others after them.
_FIRST = (
    *("list", "train", "compare", "tune", "table", "report", "confusions", "mistakes", "suspects", "predict", "export"),
    *("runs", "data", "study", "reproduce"),
)
for _name in dict.fromkeys((*_FIRST, *(module.name for module in iter_modules(__path__)))):
    import_module(f"adaptive_labels.lab.cli.{_name}")
