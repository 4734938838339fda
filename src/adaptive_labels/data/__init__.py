"""Data sets by name, and the user's own by path: texts in tables, images in folders."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from adaptive_labels.data.dataset import DataError, Dataset, Examples
from adaptive_labels.data.fingerprint import fingerprint
from adaptive_labels.data.noise import inject_noise
from adaptive_labels.data.readers.cifar import CIFAR10, CIFAR100
from adaptive_labels.data.readers.digits import load_digits
from adaptive_labels.data.readers.imagenet import load_imagenet
from adaptive_labels.data.readers.images import count_class_folders, is_image, load_images
from adaptive_labels.data.readers.tables import TABLE_SUFFIXES, is_table
from adaptive_labels.data.readers.texts import load_texts
from adaptive_labels.data.readers.towns import load_towns
from adaptive_labels.data.readers.zhang import AG_NEWS, YAHOO_ANSWERS, YELP_FULL

__all__ = ["DATASETS", "DataError", "Dataset", "Examples", "fingerprint", "inject_noise", "load_dataset"]


class _Splitting(TypedDict):
    split_seed: int
    train_fraction: float


Loader = Callable[..., Dataset]
"""Loads a data set that has a name: called with `split_seed`, `train_fraction` and `data_dir`."""


@dataclass(frozen=True)
class NamedDataset:
    """A data set that has a name: what it is, in a line, and its loader.

    `fetch` downloads it to a folder where it has to be downloaded (see `bundle.fetch`); nothing else ever does.
    `any_size` says that its images can be had in any size: the loader then takes `image_size`, too.
    """

    description: str
    load: Loader
    fetch: Callable[[Path, Callable[[int, int | None], None]], list[str]] | None = None
    any_size: bool = False


DATASETS: Mapping[str, NamedDataset] = {
    "towns": NamedDataset("a town's name → its country: 30 countries, balanced (GeoNames)", load_towns),
    "digits": NamedDataset("handwritten digits, 8×8 greyscale, 1,797 images (scikit-learn)", load_digits),
    "cifar10": NamedDataset("photographs, 32×32 RGB, 10 classes, 60,000 images", CIFAR10.load, CIFAR10.fetch),
    "cifar100": NamedDataset("photographs, 32×32 RGB, 100 classes, 60,000 images", CIFAR100.load, CIFAR100.fetch),
    "imagenet": NamedDataset(
        "photographs of any size, 1,000 classes, 1.3 million images (folders train/ and val/)",
        load_imagenet,
        any_size=True,
    ),
    "ag_news": NamedDataset("news, title and text, 4 classes, 127,600 texts", AG_NEWS.load, AG_NEWS.fetch),
    "yahoo_answers": NamedDataset(
        "questions with their best answer, 10 classes, 1.46 million texts", YAHOO_ANSWERS.load, YAHOO_ANSWERS.fetch
    ),
    "yelp_full": NamedDataset("reviews, 1 to 5 stars, 700,000 texts", YELP_FULL.load, YELP_FULL.fetch),
}


def load_dataset(
    name_or_path: str,
    *,
    split_seed: int = 0,
    train_fraction: float = 1.0,
    data_dir: Path | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    image_size: int | None = None,
    skip_unreadable: bool = False,
) -> Dataset:
    """Load a data set by its name in `DATASETS`, or the user's own by its path.

    Args:
        name_or_path: a name; or a CSV, TSV, JSON Lines, Parquet or TREC's .label file; or a folder with such files
            named train.*, perhaps val.* and test.*; or a folder with one folder of images a class, perhaps under
            train/, val/, test/. A name wins over a file of the same name; write ./towns for the file.
        split_seed: of the splits that have to be made.
        train_fraction: the share of each class that stays in train once the other splits are made, at least 1 example.
        data_dir: where a path is looked for if it does not exist as it is given, and the files of a named data set.
        text_column: the column of the text: its name, or its number from 1; several, to be joined, with commas between.
        label_column: the column of the label: its name, or its number from 1.
        image_size: width and height of the images; chosen by the data if None.
        skip_unreadable: whether images that cannot be read are left out, and counted, instead of refused.

    Returns:
        The data set, with notes on what was guessed, made and counted.
    """
    if not 0 < train_fraction <= 1:
        raise DataError(f"train_fraction must be above 0 and at most 1, not {train_fraction}.")
    named = DATASETS.get(name_or_path)
    columns = {"text_column": text_column, "label_column": label_column}
    splitting: _Splitting = {"split_seed": split_seed, "train_fraction": train_fraction}
    try:
        if named is not None:
            if named.any_size:
                _refuse_options(f"The data set {name_or_path}", columns)
                return named.load(**splitting, data_dir=data_dir, **_checked_size(image_size))
            _refuse_options(f"The data set {name_or_path}", columns | {"image_size": image_size})
            return named.load(**splitting, data_dir=data_dir)
        path = _find_path(name_or_path, data_dir)
        if path.is_dir() and _is_image_folder(path):
            _refuse_options(f"The image folder {path}", columns)
            return load_images(path, **splitting, image_size=image_size, skip_unreadable=skip_unreadable)
        _refuse_options(f"The text data {path}", {"image_size": image_size})
        return load_texts(path, **splitting, text_column=text_column, label_column=label_column)
    except OSError as error:
        raise DataError(f"{error.filename or name_or_path} cannot be read: {error.strerror or error}.") from error


def _find_path(name_or_path: str, data_dir: Path | None) -> Path:
    candidates = [Path(name_or_path).expanduser()]
    if data_dir is not None:
        candidates.append(data_dir / name_or_path)
    for path in candidates:
        if name_or_path and path.exists():
            return path
    close = difflib.get_close_matches(name_or_path.lower(), DATASETS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"the names are {', '.join(DATASETS)}."
    where = f" here or in {data_dir}" if data_dir is not None else ""
    raise DataError(f"{name_or_path!r} is no data set's name, and no such path exists{where}; {hint}")


def _is_image_folder(folder: Path) -> bool:
    """Whether a folder is to be read as images; two or more class folders of images win over tables beside them."""
    paths = list(folder.iterdir())
    classes = count_class_folders(folder)
    has_tables = any(path.is_file() and is_table(path) for path in paths)
    if classes >= 2 or (classes == 1 and not has_tables):
        return True
    if has_tables:
        return False
    if not paths:
        raise DataError(f"The folder {folder} is empty.")
    if any(is_image(path) for path in paths):
        raise DataError(
            f"{folder} holds images but no class folders; give the images of each class a folder of their own."
        )
    raise DataError(
        f"{folder} holds neither a table ({', '.join(TABLE_SUFFIXES)}) nor class folders with images in them."
    )


def _checked_size(image_size: int | None) -> dict[str, int]:
    if image_size is not None and image_size < 1:
        raise DataError(f"image_size must be 1 or more, not {image_size}.")
    return {} if image_size is None else {"image_size": image_size}


def _refuse_options(what: str, options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value is not None:
            raise DataError(f"{what} takes no {name} (given: {value!r}).")
