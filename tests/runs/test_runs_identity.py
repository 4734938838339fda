import json
from typing import Any

import pytest
from run_parts import CONFIG

from adaptive_labels.lab.config import DataConfig, MethodConfig, ModelConfig, RunConfig, from_dict, to_dict
from adaptive_labels.lab.runs import identity_settings, recipe_hash, run_id


def changed(key: str, value: Any) -> RunConfig:
    values: Any = to_dict(CONFIG)
    *sections, last = key.split(".")
    table = values
    for section in sections:
        table = table[section]
    table[last] = value
    return from_dict(values)


def test_a_run_is_named_readably() -> None:
    name, _, digits = run_id(CONFIG).rpartition("-")
    assert (name, len(digits)) == ("reviews-fasttext-kd-s3", 8)
    odd = RunConfig(DataConfig("../own data/täg.csv.gz"), ModelConfig("hf:org/bert"), MethodConfig("ls++"))
    assert run_id(odd).startswith("t-g-bert-ls++-s0-")
    assert run_id(RunConfig(DataConfig("都市"), ModelConfig("fasttext"))).startswith("dataset-fasttext")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data.name", "/elsewhere/reviews.csv"),
        ("data.name", "./reviews.csv/"),
        ("data.data_dir", "/data"),
        ("data.text_column", "2"),
        ("model.weights", "b/start.safetensors"),
        ("method.options.teacher", "moved"),
        ("training.device", "cuda:1"),
        ("training.threads", 4),
        ("training.checkpoint_seconds", 0.5),
        ("training.log", ["wandb"]),
    ],
)
def test_places_and_what_only_watches_do_not_count(key: str, value: Any) -> None:
    assert run_id(changed(key, value)) == run_id(CONFIG)
    assert identity_settings(changed(key, value)) == identity_settings(CONFIG)
    assert recipe_hash(changed(key, value)) == recipe_hash(CONFIG)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data.name", "own/other.csv"),
        ("data.fingerprint", "f01"),
        ("data.split_seed", 1),
        ("model.weights_hash", "b1"),
        ("method.options.teacher_hash", "c1"),
        ("training.lr", 0.2),
        ("training.compile", True),
        ("seed", 4),
    ],
)
def test_what_decides_a_result_counts(key: str, value: Any) -> None:
    assert run_id(changed(key, value)) != run_id(CONFIG)
    same_recipe = key in ("data.name", "data.fingerprint", "seed")
    assert (recipe_hash(changed(key, value)) == recipe_hash(CONFIG)) == same_recipe


def test_every_setting_counts_unless_its_field_says_otherwise() -> None:
    """A changed default makes other runs: nothing is left out for being at its default."""
    kept = identity_settings(RunConfig())
    assert kept["training"].keys() == to_dict(RunConfig())["training"].keys() - {
        *("device", "threads", "log", "checkpoint_seconds")
    }
    assert json.loads(json.dumps(kept)) == kept
