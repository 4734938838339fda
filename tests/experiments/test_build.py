"""What a configuration becomes when it meets the data: which run it is does not hang on how a path is spelt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptive_labels.lab.config import ConfigError, RunConfig, from_dict
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.resolve import resolve_for
from adaptive_labels.lab.files import write_npz
from adaptive_labels.lab.runs import run_id
from adaptive_labels.lab.runs.arrays import save_residual_labels


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def resolved(path: str | Path, **sections: Any) -> RunConfig:
    values = {"data": {"name": str(path), **sections.pop("data", {})}, **sections}
    values.setdefault("model", {"options": {"buckets": 64, "dim": 4}})
    config = from_dict(values)
    return resolve_for(config, build.load_data(config.data))[0]


def test_every_spelling_of_a_path_is_the_same_run(table: Path, tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(table)
    folder = tmp_path / "data" / "folder"
    folder.mkdir()
    (folder / "train.csv").write_bytes(table.read_bytes())
    expected = run_id(resolved(table))
    for spelling in ("../data/texts.csv", "./../data/./texts.csv", "../link.csv"):
        config = resolved(spelling)
        assert config.data.name == str(table)
        assert run_id(config) == expected
    assert run_id(resolved("texts.csv", data={"data_dir": str(tmp_path / "data")})) == expected
    assert run_id(resolved(table, data={"text_column": "1"})) == expected
    spellings = (folder, "../data/folder/", "../data/../data/folder")
    folders = {run_id(resolved(spelling)) for spelling in spellings}
    assert len(folders) == 1
    assert folders.pop().startswith("folder-fasttext-")


@pytest.mark.parametrize(("key", "most"), [("cutout", 8), ("translate", 7)])
def test_augmentation_beyond_the_images_is_refused_before_training(key: str, most: int) -> None:
    network = {"name": "preact-resnet18-w4"}
    resolved("digits", model=network, training={key: most})
    with pytest.raises(ConfigError, match=f"training.{key} is {most + 1}: for images of 8 pixels at most {most} is"):
        resolved("digits", model=network, training={key: most + 1})


def test_other_content_at_the_same_path_is_another_run(table: Path) -> None:
    before = run_id(resolved(table))
    table.write_text(table.read_text().replace("bread 0", "bread 99"))
    assert run_id(resolved(table)) != before


def test_initial_labels_of_a_run_with_many_classes_are_read(tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).dirichlet(np.full(300, 0.01), size=300).astype(np.float32)
    path = tmp_path / "residual_labels.npz"
    save_residual_labels(path, [1], matrix[None], [str(label) for label in range(300)])
    read = build._read_labels(str(path)).numpy()
    assert (read.argmax(1) == matrix.argmax(1)).all()  # of so many classes a run keeps the largest of each row
    assert read.max() == matrix.max()


def test_initial_labels_count_by_their_content(table: Path, tmp_path: Path) -> None:
    def with_labels(path: Path) -> RunConfig:
        return resolved(table, method={"name": "alr", "options": {"initial_labels": str(path)}})

    first, moved = tmp_path / "labels.npz", tmp_path / "moved.npz"
    labels = np.full((3, 3), 0.5, np.float32) - 0.5 * np.eye(3, dtype=np.float32)
    write_npz(first, labels=labels)
    config = with_labels(first)
    first.rename(moved)
    assert run_id(with_labels(moved)) == run_id(config)
    labels[0] = [0, 0.9, 0.1]
    write_npz(first, labels=labels)
    assert run_id(with_labels(first)) != run_id(config)
    with pytest.raises(ConfigError, match=r"labels\.npz has changed: its content is not what method"):
        build.make_criterion(config, build.load_data(config.data))
    with pytest.raises(ConfigError, match=r"method\.options\.initial_labels: .*nowhere\.npz cannot be read"):
        with_labels(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("reduction", ["sum", "none"])
def test_a_run_trains_the_mean(table: Path, reduction: str) -> None:
    with pytest.raises(ConfigError, match=f"method.options.reduction is '{reduction}': a run trains the mean"):
        resolved(table, method={"name": "alr", "options": {"reduction": reduction}})
