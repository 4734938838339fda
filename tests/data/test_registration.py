"""A reader, a data set or an encoder of one's own joins by one decorated function or class."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from adaptive_labels.errors import UserError
from adaptive_labels.lab.data import (
    DATASETS,
    READERS,
    DataError,
    Examples,
    encode_split,
    encoder_from_dict,
    encoder_options,
    encoder_to_dict,
    fit_encoder,
    load_dataset,
    register_dataset,
    register_encoder,
    register_reader,
)
from adaptive_labels.lab.data.encoders import ENCODERS, Encoder
from adaptive_labels.lab.data.encoders.embeddings import Vectors
from adaptive_labels.lab.data.splits import RawDataset


def raw(texts: list[str]) -> RawDataset:
    labels = torch.tensor([len(text) % 2 for text in texts])
    return RawDataset("own", "text", ["even", "odd"], {"train": Examples(texts, labels)})


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [(registry, registry.copy()) for registry in (DATASETS, ENCODERS)]
    readers = READERS.copy()
    yield
    for registry, content in before:
        registry.clear()
        registry.update(content)
    READERS[:] = readers


@pytest.mark.usefixtures("registries")
def test_a_format(tmp_path):
    @register_reader("file of lines", lambda path: path.suffix == ".lines")
    def read(path: Path, *, text_column: str | None = None) -> RawDataset:
        return raw([f"{text_column} {line}" for line in path.read_text().splitlines()])

    (tmp_path / "x.lines").write_text("\n".join("x" * n for n in range(40)))
    dataset = load_dataset(str(tmp_path / "x.lines"), text_column="t", split_seed=1)
    assert sorted(map(len, (dataset.train, dataset.validation, dataset.test))) == [3, 8, 29]
    with pytest.raises(DataError, match=r"The file of lines .*x\.lines takes no label_column \(given: 'b'\)"):
        load_dataset(str(tmp_path / "x.lines"), label_column="b")


@pytest.mark.usefixtures("registries")
def test_a_data_set(tmp_path):
    @register_dataset("own", "words of one letter")
    def read(data_dir: Path | None) -> RawDataset:
        return raw([f"{data_dir.name} " + "x" * n for n in range(40)])

    assert load_dataset("own", data_dir=tmp_path).name == "own"
    with pytest.raises(DataError, match="The data set own takes no image_size"):
        load_dataset("own", data_dir=tmp_path, image_size=3)


@pytest.mark.usefixtures("registries")
def test_an_encoder():
    @register_encoder("lengths")
    @dataclasses.dataclass(frozen=True)
    class Lengths(Encoder):
        options: ClassVar[frozenset[str]] = frozenset({"factor"})
        factor: float = 1.0

        @classmethod
        def fit(cls, inputs: list[str], **options: Any) -> Lengths:
            return cls(**options)

        def encode(self, inputs: list[str]) -> Vectors:
            lengths = torch.tensor([[self.factor * len(text)] for text in inputs])
            return Vectors(lengths, torch.arange(len(inputs)))

    examples = Examples(["a", "abc"], torch.tensor([0, 1]))
    encoder = fit_encoder("lengths", examples, {"factor": 2.0})
    assert encoder_options("lengths") == {"factor"}
    assert encode_split(encoder, examples).batch(torch.tensor([1])).tolist() == [[6.0]]
    assert encoder_from_dict(encoder_to_dict(encoder)) == encoder
    with pytest.raises(UserError, match=r"no encoder makes 'lenghts', only .*; did you mean lengths"):
        encoder_options("lenghts")
