"""Which other networks and runs a configuration needs."""

from __future__ import annotations

import dataclasses

import pytest

from adaptive_labels.lab.config import ConfigError, MethodConfig, ModelConfig, RunConfig, with_settings
from adaptive_labels.lab.experiments.teachers import (
    criterion_options,
    describe_networks,
    needed_run,
    needed_runs,
    networks,
    resolve_networks,
    teacher_model,
)
from adaptive_labels.lab.runs import run_id

TEXTS = ModelConfig("fasttext", {"buckets": 512, "dim": 16, "word_ngrams": 2})


def config(method: str, model: ModelConfig = TEXTS, **options) -> RunConfig:
    return RunConfig(model=model, method=MethodConfig(method, options), seed=3)


def test_most_methods_need_nothing():
    plain = config("alr", attraction=-2.0)
    assert resolve_networks(plain) == plain
    assert (networks(plain), needed_runs(plain), teacher_model(plain), describe_networks(plain)) == (
        (TEXTS,),
        (),
        None,
        None,
    )
    assert criterion_options(plain) == {"attraction": -2.0}


def test_there_may_be_more_generations_than_python_has_frames():
    last = config("label-refinery", generations=2000)
    assert len(needed_runs(last)) == 2000
    assert needed_runs(last)[0] == config("baseline")


def test_a_teacher_is_the_baseline_of_the_same_seed_and_recipe():
    student = resolve_networks(config("kd", alpha=0.9))
    assert student.method.options == {"alpha": 0.9, "teacher_model": "fasttext", "teacher_options": TEXTS.options}
    assert needed_run(student) == config("baseline")
    assert criterion_options(student) == {"alpha": 0.9}
    assert resolve_networks(student) == student


def test_another_network_may_teach_that_reads_the_same_inputs():
    larger = resolve_networks(config("kd", teacher_options={"dim": 64}))
    assert teacher_model(larger) == ModelConfig("fasttext", {**TEXTS.options, "dim": 64})
    images = ModelConfig("preact-resnet18-w4", {"stem_stride": 2})
    other = resolve_networks(
        config("kd", images, teacher_model="preact-resnet18-w16", teacher_options={"dropout": 0.1})
    )
    assert teacher_model(other) == ModelConfig("preact-resnet18-w16", {"stem_stride": 2, "dropout": 0.1})
    stranger = resolve_networks(config("kd", images, teacher_model="wide-resnet-28-10"))
    assert teacher_model(stranger) == ModelConfig("wide-resnet-28-10", {})
    narrow = ModelConfig("preact-resnet18", {"width": 4, "stem_stride": 2})
    wider = resolve_networks(config("kd", narrow, teacher_model="preact-resnet18-w16"))
    assert teacher_model(wider) == ModelConfig("preact-resnet18-w16", {"stem_stride": 2})
    assert teacher_model(resolve_networks(config("kd", narrow, teacher_model="preact-resnet18"))) == narrow
    with pytest.raises(
        ConfigError, match=r"teacher_options\.buckets is how inputs are read, which teacher and student"
    ):
        resolve_networks(config("kd", teacher_options={"buckets": 64}))


def test_generations_follow_each_other_from_the_baseline_on():
    last = resolve_networks(config("label-refinery"))
    runs = needed_runs(last)
    assert [(run.method.name, run.method.options) for run in runs] == [
        ("baseline", {}),
        ("label-refinery", {"generations": 1}),
    ]
    assert last.method.options == {"generations": 2}
    assert {run.seed for run in runs} == {3}
    assert len(needed_runs(resolve_networks(config("label-refinery", generations=4)))) == 4


def test_peers_are_of_the_same_kind_unless_named():
    assert networks(resolve_networks(config("dml"))) == (TEXTS, TEXTS)
    assert len(networks(resolve_networks(config("dml", peers=4)))) == 4
    images = ModelConfig("preact-resnet18-w4", {"stem_stride": 2})
    pair = resolve_networks(config("dml", images, peer_models=["preact-resnet18-w8"]))
    assert networks(pair) == (images, ModelConfig("preact-resnet18-w8", {"stem_stride": 2}))
    assert pair.method.options["peers"] == 2
    assert needed_runs(pair) == ()


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("dml", {"peers": 1}, "method.options.peers is 1: allowed is a whole number of at least 2"),
        ("dml", {"peers": True}, "method.options.peers is True: allowed"),
        ("dml", {"peers": 3, "peer_models": ["mlp"]}, "peers is 3, but peer_models names 1 besides the run's own"),
        ("dml", {"peer_models": "a"}, "method.options.peer_models is 'a': allowed is a list of models' names"),
        ("dml", {"peer_models": [3]}, r"method.options.peer_models\[0\] is 3: allowed is a name"),
        ("dml", {"peer_models": ["fastext"]}, r"method.options.peer_models\[0\]: there is no model 'fastext'"),
        ("label-refinery", {"generations": 0}, "method.options.generations is 0: allowed is a whole number of at lea"),
        ("kd", {"teacher": "", "alpha": 1}, "method.options.teacher is '': allowed is a name"),
        (
            "kd",
            {"teacher": "x", "teacher_model": "y"},
            "teacher_model is of a teacher to be trained, but teacher names",
        ),
        ("kd", {"teacher_hash": "x"}, "method.options.teacher_hash is written down by the run itself; give teacher="),
        ("kd", {"teacher_model": 3}, "method.options.teacher_model is 3: allowed is a name"),
        ("kd", {"teacher_model": "fastext"}, "method.options.teacher_model: there is no model 'fastext'; there are"),
        ("kd", {"teacher_options": 3}, "method.options.teacher_options is 3: allowed is a table"),
    ],
)
def test_what_makes_no_sense_is_refused(method, options, words):
    with pytest.raises(ConfigError, match=words):
        resolve_networks(config(method, **options))


def test_a_run_is_known_by_its_teacher_and_not_by_where_that_lies():
    def identity(**options) -> str:
        return run_id(config("kd", **options))

    assert identity(teacher="a", teacher_hash="x") == identity(teacher="b/c", teacher_hash="x")
    assert identity(teacher="a", teacher_hash="x") != identity(teacher="a", teacher_hash="y")
    assert identity(teacher="a") != identity(teacher="b")  # before it is known which run that is


def test_options_of_the_teacher_can_be_set_from_a_shell():
    given = with_settings(RunConfig(), ["method.options.teacher_options.dim=64", "method.options.peer_models=[a, b]"])
    assert given.method.options == {"teacher_options": {"dim": 64}, "peer_models": ["a", "b"]}
    with pytest.raises(ConfigError, match="leads into alpha, which is 1 and no table"):
        with_settings(given, ["method.options.alpha=1", "method.options.alpha.beta=2"])


def test_seeds_have_teachers_of_their_own():
    student = resolve_networks(config("kd"))
    other = dataclasses.replace(student, seed=4)
    assert needed_run(other).seed == 4
