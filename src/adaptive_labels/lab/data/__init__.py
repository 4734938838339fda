"""Data sets by name, and the user's own by path: texts in tables, images in folders."""

import inspect
from pathlib import Path
from typing import Any

from adaptive_labels.errors import did_you_mean
from adaptive_labels.lab.data.dataset import (
    DataError as DataError,
    Dataset as Dataset,
    Examples as Examples,
    ImageFiles as ImageFiles,
    fingerprint as fingerprint,
)
from adaptive_labels.lab.data.downloads import OnProgress as OnProgress
from adaptive_labels.lab.data.encoders import (
    EncodedExamples as EncodedExamples,
    Encoder as Encoder,
    encoder_from_dict as encoder_from_dict,
    encoder_options as encoder_options,
    encoder_to_dict as encoder_to_dict,
    fit_encoder as fit_encoder,
    register_encoder as register_encoder,
)
from adaptive_labels.lab.data.encoders.embeddings import (
    Pretrained as Pretrained,
    encode_split as encode_split,
    pretraining_notes as pretraining_notes,
)
from adaptive_labels.lab.data.encoders.text import length_notes as length_notes
from adaptive_labels.lab.data.frames import TABLE_SUFFIXES
from adaptive_labels.lab.data.noise import inject_noise as inject_noise
from adaptive_labels.lab.data.pixels import is_image as is_image
from adaptive_labels.lab.data.rows import TableRows as TableRows
from adaptive_labels.lab.data.sources import (
    DATASETS as DATASETS,
    READERS as READERS,
    register_dataset as register_dataset,
    register_reader as register_reader,
)
from adaptive_labels.lab.data.splits import RawDataset, assemble, input_digests as input_digests, without_rare_classes
from adaptive_labels.lab.data.stored_texts import StoredTexts as StoredTexts
from adaptive_labels.lab.files import expanded, refuse_special


def load_dataset(
    name_or_path: str,
    *,
    split_seed: int = 0,
    train_fraction: float = 1.0,
    data_dir: str | Path | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    image_size: int | None = None,
    largest_size: int | None = None,
    skip_unreadable: bool = False,
    drop_unlabelled: bool = False,
    min_per_class: int | None = None,
) -> Dataset:
    """Load a data set by its name in `DATASETS`, or the user's own by its path.

    Args:
        name_or_path: a name; or a CSV, TSV, JSON Lines, Parquet or TREC's .label file; or a folder with such files
            named train.*, perhaps val.* and test.*; or a folder with one folder of images per class, perhaps under
            train/, val/, test/. A name wins over a file of the same name; write ./towns for the file.
        split_seed: of the splits that have to be made.
        train_fraction: the share of each class that stays in train once the other splits are made, at least 1 example.
        data_dir: where a path is looked for if it does not exist as it is given, and the files of a named data set.
        text_column: the column of the text: its name, or its number from 1; several, to be joined, with commas between.
        label_column: the column of the label: its name, or its number from 1.
        image_size: width and height of the images; chosen by the data if None.
        largest_size: for a network that reads large images: unless `image_size` is given, those of a folder are as
            large as most of them are, up to so many pixels.
        skip_unreadable: whether images that cannot be read are left out, and counted, instead of refused.
        drop_unlabelled: whether rows without a label are left out, and counted, instead of refused.
        min_per_class: classes with fewer training examples are left out of all splits, and counted.

    Returns:
        The data set, with notes on what was chosen, made and counted.
    """
    if not 0 < train_fraction <= 1:
        raise DataError(f"train_fraction must be above 0 and at most 1, not {train_fraction}.")
    if image_size is not None and image_size < 1:
        raise DataError(f"image_size must be 1 or more, not {image_size}.")
    data_dir = None if data_dir is None else Path(data_dir)
    options = {
        "text_column": text_column,
        "label_column": label_column,
        "image_size": image_size,
        "largest_size": largest_size,
        "skip_unreadable": skip_unreadable,
        "drop_unlabelled": drop_unlabelled,
    }
    try:
        raw = _read(name_or_path, data_dir, options)
        if min_per_class is not None:
            raw = without_rare_classes(raw, min_per_class)
        return assemble(raw, split_seed=split_seed, train_fraction=train_fraction)
    except OSError as error:
        raise DataError(f"{error.filename or name_or_path} cannot be read: {error.strerror or error}.") from error


def _read(name_or_path: str, data_dir: Path | None, options: dict[str, Any]) -> RawDataset:
    """Find the reader, and call it with those options that it has; refuse some if they are given and it lacks them."""
    named = DATASETS.get(name_or_path)
    if named is not None:
        what, given, read = f"The data set {name_or_path}", data_dir, named.read
    else:
        given = _find_path(name_or_path, data_dir)
        reader = next((reader for reader in READERS if reader.can_read(given)), None)
        if reader is None:
            raise DataError(_why_unreadable(given))
        what, read = f"The {reader.what} {given}", reader.read
    known = inspect.signature(read).parameters
    for name in options:
        if name not in known and name != "largest_size" and options[name] not in (None, False):
            raise DataError(f"{what} takes no {name} (given: {options[name]!r}).")
    return read(given, **{name: value for name, value in options.items() if name in known})


def _find_path(name_or_path: str, data_dir: Path | None) -> Path:
    for path in (expanded(name_or_path), (data_dir or Path()) / name_or_path):
        if name_or_path and path.exists():
            refuse_special(path)
            return path
    where = f" here or in {data_dir}" if data_dir is not None else ""
    hint = did_you_mean(name_or_path.lower(), DATASETS) or f"; the names are {', '.join(DATASETS)}."
    raise DataError(f"{name_or_path!r} is no data set's name, and no such path exists{where}{hint}")


def _why_unreadable(path: Path) -> str:
    if path.is_file():
        if path.suffix.lower() in (".xls", ".xlsx", ".xlsb", ".ods", ".numbers"):
            return f"{path} is a spreadsheet; save its sheet as CSV UTF-8."
        return f"{path} is no table that can be read; its name must end in {', '.join(TABLE_SUFFIXES)}."
    paths = list(path.iterdir())
    if not paths:
        return f"The folder {path} is empty."
    if any(map(is_image, paths)):
        return f"{path} holds images but no class folders; give the images of each class a folder of their own."
    return f"{path} holds neither a table ({', '.join(TABLE_SUFFIXES)}) nor class folders with images in them."
