import doctest
import importlib
import pkgutil

import pytest

from adaptive_labels.lab import data

MODULES = [
    "adaptive_labels.lab.data",
    *(found.name for found in pkgutil.walk_packages(data.__path__, data.__name__ + ".")),
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    assert doctest.testmod(importlib.import_module(name), raise_on_error=False).failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) > 15
