import json
import pickle
from dataclasses import FrozenInstanceError, fields, replace

import pytest
from hypothesis import given, strategies as st

from adaptive_labels.lab.config import (
    ConfigError,
    DataConfig,
    MethodConfig,
    ModelConfig,
    RunConfig,
    TrainingConfig,
    from_dict,
    resolve,
    to_dict,
    unresolved,
    with_settings,
)

positive = st.floats(min_value=1e-12, max_value=1e12)
below_one = st.floats(min_value=0, max_value=1, exclude_max=True)
names = st.text(min_size=1).filter(lambda name: name.strip())
optional_text = st.none() | st.text()
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
options = st.dictionaries(st.text(), plain, max_size=3)
seeds = st.integers(min_value=0, max_value=2**63 - 1)

trainings = st.builds(
    TrainingConfig,
    epochs=st.none() | st.integers(min_value=4, max_value=10**6),
    batch_size=st.none() | st.integers(min_value=1, max_value=10**6),
    optimizer=st.sampled_from([None, "sgd", "adam", "adamw"]),
    lr=st.none() | positive,
    betas=st.tuples(below_one, below_one),
    schedule=st.sampled_from([None, "constant", "step", "cosine", "one-cycle", "linear"]),
    warmup=st.floats(min_value=0, max_value=3),
    milestones=st.lists(positive, min_size=1, max_size=4, unique=True).map(lambda values: tuple(sorted(values))),
    ema=st.none() | below_one,
    precision=st.sampled_from(["32", "bf16-mixed", "16-mixed"]),
    device=st.sampled_from(["auto", "cpu", "cuda", "cuda:3", "mps"]),
    augment=st.none() | st.booleans(),
    bias_lr=positive,
    flip=st.sampled_from(["random", "alternating", "none"]),
    translate=st.none() | st.integers(min_value=0, max_value=9),
    cutout=st.integers(min_value=0, max_value=9),
    sync_batchnorm=st.booleans(),
    checkpoint_seconds=st.floats(min_value=0, max_value=1e6),
    threads=st.none() | st.integers(min_value=1, max_value=99),
)
configs = st.builds(
    RunConfig,
    data=st.builds(
        DataConfig,
        name=names,
        data_dir=optional_text,
        split_seed=seeds,
        train_fraction=st.floats(min_value=0, max_value=1, exclude_min=True),
        text_column=optional_text,
        label_noise=below_one,
    ),
    model=st.builds(ModelConfig, name=st.none() | names, options=options),
    method=st.builds(MethodConfig, name=names, options=options),
    training=trainings,
    seed=seeds,
)


@given(configs)
def test_a_configuration_survives_json(config: RunConfig) -> None:
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


@given(configs)
def test_a_configuration_survives_pickle(config: RunConfig) -> None:
    assert pickle.loads(pickle.dumps(config)) == config


@given(trainings)
def test_every_training_setting_survives_the_shell(training: TrainingConfig) -> None:
    def written(value: object) -> str:
        return ",".join(map(repr, value)) if isinstance(value, tuple) else str(value)

    settings = [f"training.{item.name}={written(getattr(training, item.name))}" for item in fields(training)]
    assert with_settings(RunConfig(), settings).training == training


def test_to_dict_holds_every_field() -> None:
    values = to_dict(RunConfig())
    assert set(values) == {"data", "model", "method", "training", "seed", "plugin_hash"}
    assert values["training"]["betas"] == [0.9, 0.999]
    assert set(values["training"]) == {item.name for item in fields(TrainingConfig)}
    assert set(values["data"]) == {item.name for item in fields(DataConfig)}


def test_configurations_are_frozen_and_own_their_options() -> None:
    given_options = {"sizes": [1, 2]}
    config = MethodConfig(options=given_options)
    given_options["sizes"].append(3)
    assert config.options == {"sizes": [1, 2]}
    with pytest.raises(FrozenInstanceError):
        config.name = "alr"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data": {"train_fraction": 0}}, "data.train_fraction is 0.0: allowed is a number above 0 and at most 1"),
        ({"data": {"train_fraction": 1.01}}, "data.train_fraction is 1.01: allowed is a number above 0 and at most 1"),
        ({"sede": 1}, "unknown setting sede; did you mean seed?"),
        ({"training": {"epoch": 3}}, "unknown setting training.epoch; did you mean training.epochs?"),
        ({"zzz": 1}, "unknown setting zzz"),
        ({"training": 3}, "training is 3: allowed is a table of settings"),
        ({"seed": "1"}, "seed is '1': allowed is a whole number"),
        ({"seed": True}, "seed is True: allowed is a whole number"),
        ({"seed": -1}, "seed is -1: allowed is a whole number from 0 to 2**63 - 1"),
        ({"training": {"epochs": 1.5}}, "training.epochs is 1.5: allowed is a whole number or none"),
        ({"training": {"epochs": 0}}, "training.epochs is 0: allowed is a whole number of at least 1"),
        (
            {"training": {"threads": 10**11}},
            "training.threads is 100000000000: allowed is a whole number from 1 to 10000",
        ),
        ({"training": {"lr": 0}}, "training.lr is 0.0: allowed is a finite number above 0"),
        ({"training": {"lr": float("nan")}}, "training.lr is nan: allowed is a finite number above 0"),
        ({"training": {"lr": float("inf")}}, "training.lr is inf: allowed is a finite number above 0"),
        ({"training": {"lr": True}}, "training.lr is True: allowed is a number or none"),
        ({"training": {"nesterov": 1}}, "training.nesterov is 1: allowed is true or false"),
        (
            {"training": {"optimizer": "adamww"}},
            "training.optimizer is 'adamww': allowed is sgd, adam, adamw or none; did you mean adamw?",
        ),
        ({"training": {"precision": 32}}, "training.precision is 32: allowed is 32, bf16-mixed, 16-mixed"),
        ({"training": {"betas": [0.9]}}, "training.betas is [0.9]: allowed is a list of 2 numbers"),
        ({"training": {"betas": [0.9, 1]}}, "training.betas is (0.9, 1.0): allowed is two numbers of at least 0"),
        ({"training": {"milestones": [3, 2]}}, "training.milestones is (3.0, 2.0): allowed is increasing finite"),
        ({"training": {"device": "gpu"}}, "training.device is 'gpu': allowed is auto, cpu, mps, cuda or cuda:N"),
        ({"training": {"ema": 1.0}}, "training.ema is 1.0: allowed is a number of at least 0 and below 1"),
        ({"training": {"schedule": "step"}}, "training.schedule is 'step', which needs training.milestones"),
        ({"training": {"epochs": 2, "warmup": 2}}, "training.warmup is 2.0: it must be below training.epochs (2)"),
        ({"data": {"label_noise": 2}}, "data.label_noise is 2.0: allowed is a number from 0 to 1"),
        ({"data": {"name": " "}}, "data.name is ' ': allowed is a name or a path"),
        ({"method": {"options": {"a": {1}}}}, "method.options.a is {1}: allowed are texts, finite numbers"),
        ({"method": {"options": {3: 1}}}, "method.options has the key 3: allowed is a text"),
        ({"method": {"options": 3}}, "method.options is 3: allowed is a table of settings"),
    ],
)
def test_what_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        from_dict(values)
    assert str(refused.value).startswith(message)
    assert isinstance(refused.value, ValueError)


def test_direct_construction_is_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"training\.batch_size is 0"):
        TrainingConfig(batch_size=0)
    with pytest.raises(ConfigError, match=r"data is 3: allowed is a table of settings"):
        RunConfig(data=3)  # type: ignore[arg-type]


def test_settings_use_the_types_of_the_fields() -> None:
    config = with_settings(
        RunConfig(),
        [
            "lr=1e-1",
            "epochs=3",
            "skip_unreadable=yes",
            "compile=TRUE",
            "milestones=[60, 120]",
            "clip_norm=5",
            "seed=7",
            "text_column='none'",
            "method.name = alr-s",
            "method.options.label_smoothing=0.1",
            "method.options.sizes=[1, 2.5, x]",
            "method.options.fused=none",
            "method.options.frozen=no",
            "model.options.sparse=On",
            "model.options.word='no'",
            "model.options.dim=64",
            "model.options.note='64'",
        ],
    )
    assert config.training.lr == 0.1
    assert config.training.epochs == 3
    assert config.training.compile is True
    assert config.data.skip_unreadable is True
    assert config.training.milestones == (60.0, 120.0)
    assert config.training.clip_norm == 5.0
    assert config.seed == 7
    assert config.data.text_column == "none"
    options = {"label_smoothing": 0.1, "sizes": [1, 2.5, "x"], "fused": None, "frozen": False}
    assert config.method == MethodConfig("alr-s", options)
    assert config.model.options == {"sparse": True, "word": "no", "dim": 64, "note": "64"}
    assert with_settings(config, ["clip_norm=none", "milestones="]).training.clip_norm is None


def test_milestones_choose_the_schedule_that_uses_them() -> None:
    choices = dict.fromkeys(unresolved(RunConfig()), 1) | {
        "data.fingerprint": "x",
        "model.name": "mlp",
        "training.optimizer": "sgd",
        "training.schedule": "linear",
        "training.augment": False,
    }
    config = with_settings(RunConfig(), ["milestones=2,4"])
    assert resolve(config, choices).training.schedule == "step"
    assert resolve(with_settings(config, ["schedule=cosine"]), choices).training.schedule == "cosine"
    assert resolve(RunConfig(), choices).training.schedule == "linear"


def test_settings_that_need_each_other_are_applied_together() -> None:
    config = with_settings(RunConfig(), ["schedule=step", "milestones=2,4"])
    assert config.training.milestones == (2.0, 4.0)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("lr", "the setting 'lr' is not of the form key=value"),
        ("=3", "the setting '=3' is not of the form key=value"),
        ("learning_rat=1", "unknown setting learning_rat"),
        ("epoch=1", "unknown setting epoch; did you mean epochs?"),
        ("training.epoch=1", "unknown setting training.epoch; did you mean training.epochs?"),
        ("name=x", "the setting name could be data.name or model.name or method.name: give the whole key"),
        ("lr=fast", "training.lr is 'fast': allowed is a number or none"),
        ("epochs=1.5", "training.epochs is '1.5': allowed is a whole number or none"),
        ("nesterov=perhaps", "training.nesterov is 'perhaps': allowed is true or false"),
        ("nesterov=none", "training.nesterov is 'none': allowed is true or false"),
        ("betas=0.9,x", "training.betas is 'x': allowed is a number"),
        ("method.options=3", "method.options is a table of settings: give one of them, as in method.options.NAME=3"),
    ],
)
def test_settings_that_are_refused(setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        with_settings(RunConfig(), [setting])
    assert str(refused.value).startswith(message)


def test_what_the_data_chooses() -> None:
    config = with_settings(RunConfig(), ["lr=0.5", "augment=false"])
    missing = unresolved(config)
    assert "training.lr" not in missing
    assert "training.augment" not in missing
    assert {"model.name", "training.epochs", "training.weight_decay"} <= set(missing)
    choices = {
        "data.fingerprint": "ab12",
        "model.name": "fasttext",
        "training.epochs": 10,
        "training.batch_size": 128,
        "training.optimizer": "adam",
        "training.lr": 99.0,
        "training.weight_decay": 0,
        "training.schedule": "linear",
        "training.residual_lr": 30.0,
    }
    done = resolve(config, choices)
    assert unresolved(done) == ()
    assert done.training == replace(
        config.training,
        epochs=10,
        batch_size=128,
        optimizer="adam",
        weight_decay=0.0,
        schedule="linear",
        residual_lr=30.0,
    )
    assert done.training.lr == 0.5
    del choices["training.epochs"]
    with pytest.raises(ConfigError, match=r"training\.epochs is not given, and there is no default for this data"):
        resolve(config, choices)
