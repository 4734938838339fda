"""The command `alr`. Nothing heavy is imported here: torch and numpy are, inside the commands that need them."""

from importlib import import_module

from adaptive_labels.cli.app import app, main

__all__ = ["COMMANDS", "app", "main"]

# A command is the file of its name. The help lists them in this order.
COMMANDS = (
    *("list", "train", "compare", "tune", "table", "report", "confusions", "suspects", "predict"),
    *("runs", "data", "study", "reproduce", "bench"),
)
for _name in COMMANDS:
    import_module(f"adaptive_labels.cli.{_name}")
