import json
from typing import Any

import pytest

from adaptive_labels.lab.analysis.records import describe_settings, flatten, group_records, read_run_records
from adaptive_labels.lab.analysis.verdict import verdict
from adaptive_labels.lab.runs import RunFolder, RunLock
from run_maker import Maker


def only_group(runs: list[RunFolder]) -> Any:
    (group,) = group_records(read_run_records(runs))
    return group


def test_methods_come_in_a_fixed_order_and_share_a_group(maker: Any) -> None:
    runs = [maker.figures(m, s, 0.5) for m in ("tf-kd", "alr-s", "alr", "baseline", "dml", "slr") for s in (1, 0)]
    group = only_group(runs)
    assert list(group.by_label()) == ["baseline", "slr", "alr", "alr-s", "dml", "tf-kd"]
    assert [record.seed for record in group.by_label()["alr"]] == [0, 1]
    assert group.title == "towns, fasttext"
    assert group.counted[0].value("test", "top1") == 0.5
    assert group.counted[0].value("validation", "top1") is None


def test_options_that_differ_are_in_the_label_and_keep_the_group(maker: Any) -> None:
    runs = [
        maker.figures("baseline", 0, 0.5),
        maker.figures("alr", 0, 0.6, options={"attraction": 1.0, "update": "self"}),
        maker.figures("alr", 0, 0.6, options={"attraction": 0.5, "update": "self"}),
    ]
    assert list(only_group(runs).by_label()) == ["baseline", "alr (attraction=0.5)", "alr (attraction=1.0)"]


def test_another_recipe_is_another_group_and_another_device_is_not(maker: Any) -> None:
    runs = [
        maker.figures("baseline", 0, 0.5),
        maker.figures("alr", 0, 0.5, device="cuda"),
        maker.figures("baseline", 0, 0.5, lr=0.1),
        maker.figures("baseline", 0, 0.5, model="charcnn"),
    ]
    groups = group_records(read_run_records(runs))
    assert [group.title for group in groups] == [
        "towns, charcnn",
        "towns, fasttext (lr=0.1)",
        "towns, fasttext (lr=0.5)",
    ]
    assert list(groups[2].by_label()) == ["baseline", "alr"]


def test_the_title_of_a_group_has_no_settings_of_other_data_and_little_of_a_fingerprint(maker: Any) -> None:
    runs = []
    for name, letter in (("towns", "a"), ("towns", "b"), ("digits", "c")):
        config = maker.config("baseline", 0, dataset=name)
        config["data"]["fingerprint"] = letter * 64
        runs.append(maker.finish(RunFolder.create(maker.out, config), {"test": {"top1": 0.5}}))
    titles = [group.title for group in group_records(read_run_records(runs))]
    shown = [f"towns, fasttext (fingerprint={letter * 8})" for letter in "ab"]
    assert titles == ["digits, fasttext", *shown]


def test_runs_that_cannot_be_counted_say_why(maker: Any) -> None:
    runs = [
        maker.figures("baseline", 0, 0.5),
        Maker(maker.out.parent / "other").figures("baseline", 0, 0.5, device="cuda"),
        maker.diverged("alr", 0, "the loss was NaN in epoch 3"),
        RunFolder.create(maker.out, maker.config("slr", 0)),
        maker.figures("ols", 0, 0.5),
        maker.finish(RunFolder.create(maker.out, maker.config("dml", 0)), {"test": {"nll": 1.0}}),
    ]
    (runs[4].path / "result.json").write_text("{")
    group = only_group(runs)
    assert [record.method for record in group.counted] == ["baseline"]
    reasons = {(record.method, record.status): record.reason for record in group.left_out}
    assert reasons[("alr", "diverged")] == "the loss was NaN in epoch 3"
    assert reasons[("slr", "unfinished")].startswith("has no result yet")
    assert "is not valid JSON" in reasons[("ols", "unreadable")]
    assert reasons[("dml", "unreadable")] == "result.json has no test top1"
    assert reasons[("baseline", "duplicate")].startswith("the same configuration and seed as")


def test_a_student_of_another_teacher_is_not_said_to_be_the_same_run(maker: Any) -> None:
    first, other = (maker.figures("kd", 0, 0.5, options={"teacher_hash": letter * 64}) for letter in "ab")
    (left,) = only_group([first, other]).left_out
    assert left.status == "duplicate"
    assert str(left.reason).endswith(", with another teacher; give the runs of one teacher only")


def test_flatten_and_describe() -> None:
    flat = flatten({"a": {"b": 1.5, "c": {"d": "x"}}, "e": [1, 2], "f": {}, "g": None})
    assert flat == {"a.b": 1.5, "a.c.d": "x", "e": [1, 2], "g": None}
    assert (
        describe_settings(flat, ["a.b", "a.c.d", "e", "g", "missing"]) == "b=1.5, d=x, e=[1, 2], g=none, missing=none"
    )


def figures(maker: Any, **by_method: tuple[list[float], float | None]) -> str:
    runs = [
        maker.figures(method.replace("_", "-"), seed, value, validation)
        for method, (values, validation) in by_method.items()
        for seed, value in enumerate(values)
    ]
    return verdict(only_group(runs))


def test_the_verdict_of_a_clear_gain(maker: Any) -> None:
    sentence = figures(maker, baseline=([0.550, 0.555, 0.552], 0.5), alr=([0.571, 0.576, 0.574], 0.6))
    # Differences 2.1, 2.1, 2.2 points: mean 2.133, std 0.0577, t = 64, interval ± 4.3027 · 0.0577 / √3 = 0.143.
    assert sentence == (
        "alr reaches 57.4 ± 0.3% on the test split (3 seeds), 2.1 points above baseline "
        "(95% interval 2.0 to 2.3, p < 0.001): more than noise. Chosen by validation accuracy out of 2 methods. "
        "3 seeds are few: a sign-flip test, which assumes no normal distribution, could not give less than p = 0.25."
    )


def test_the_verdict_compares_with_label_smoothing_too(maker: Any) -> None:
    sentence = figures(
        maker,
        baseline=([0.550, 0.555, 0.552], 0.5),
        slr=([0.560, 0.551, 0.565], 0.55),
        alr=([0.571, 0.576, 0.574], 0.6),
    )
    # Differences 1.1, 2.5, 0.9 points: mean 1.5, std 0.872, interval ± 4.3027 · 0.872 / √3 = 2.165.
    assert (
        " It is 1.5 points above slr (95% interval of the difference −0.7 to +3.7, p = 0.097): not more than noise can "
        "explain. Chosen by" in sentence
    )


def test_the_verdict_warns_of_a_class_that_is_never_found_and_of_two_classes(maker: Any) -> None:
    runs = []
    for method, top1 in (("baseline", 0.8), ("alr", 0.9)):
        run = RunFolder.create(maker.out, maker.config(method, 0))
        metrics = {"test": {"top1": top1, "worst_class": 0.0}, "validation": {"top1": top1}}
        runs.append(maker.finish(run, metrics, parameters={"network": 1000, "criterion": 2}))
    (group,) = group_records(read_run_records(runs))
    assert "alr never finds at least one of the classes." in verdict(group)
    assert "With two classes ALR is its L_hard" in verdict(group)


def test_a_class_that_is_never_found_is_warned_of_in_a_tie_and_where_the_baseline_is_best(maker: Any) -> None:
    for validation in (0.8, 0.7):
        runs = []
        for method, there in (("baseline", 0.8), ("alr", validation)):
            run = RunFolder.create(maker.out / str(validation), maker.config(method, 0))
            metrics = {"test": {"top1": 0.8, "worst_class": 0.0}, "validation": {"top1": there}}
            runs.append(maker.finish(run, metrics))
        words = verdict(only_group(runs))
        assert "baseline never finds at least one of the classes." in words
        assert words.startswith("A tie") == (validation == 0.8)
        assert ("Nothing is gained over baseline by that measure." in words) == (validation == 0.8)


def test_methods_of_a_tie_stand_beside_the_baseline(maker: Any) -> None:
    words = figures(maker, baseline=([0.5], 0.5), slr=([0.6], 0.6), alr=([0.4], 0.6))
    assert "slr is 10.0 points above baseline (one seed: no test possible)." in words
    assert "alr is 10.0 points below baseline (one seed: no test possible)." in words


def test_the_verdict_is_chosen_on_validation_alone(maker: Any) -> None:
    sentence = figures(
        maker, baseline=([0.50, 0.52, 0.51], 0.5), slr=([0.9, 0.91, 0.92], 0.6), alr=([0.51, 0.50, 0.53], 0.7)
    )
    assert sentence.startswith("alr reaches 51.3 ± 1.5% on the test split (3 seeds), 0.3 points above baseline (95% ")
    assert "interval of the difference −4.8 to +5.5, Holm-corrected p = 0.81): not more than noise can" in sentence


def test_a_significant_loss_is_called_worse(maker: Any) -> None:
    sentence = figures(maker, baseline=([0.571, 0.576, 0.574], 0.5), alr=([0.550, 0.555, 0.552], 0.6))
    assert "2.1 points below baseline (95% interval 2.0 to 2.3, p < 0.001): worse, by more than noise." in sentence


@pytest.mark.parametrize(
    ("by_method", "words"),
    [
        ({}, "No run has finished yet, so there is nothing to compare."),
        ({"alr": ([0.5], 0.5)}, "alr reaches 50.0% on the test split (1 seed); there is no other method to compare"),
        ({"slr": ([0.5], 0.5), "alr": ([0.6], 0.6)}, "best of 2 methods by validation accuracy; without runs of the"),
        ({"baseline": ([0.5], 0.5), "alr": ([0.6], 0.6)}, "10.0 points above baseline (one seed: no test possible)."),
        ({"baseline": ([0.5], 0.5), "alr": ([0.5], 0.6)}, "seed), level with baseline (one seed: no test possible)."),
        ({"baseline": ([0.5], 0.7), "alr": ([0.6], 0.65)}, "no other method is ahead of it by validation accuracy: the "
         "nearest, alr, is 5.00 points behind there."),
        ({"baseline": ([0.5], 0.7), "alr": ([0.6], 0.7)}, "A tie: baseline and alr have the same validation accuracy "
         "(70.0%), so none is named best; on the test split they reach baseline 50.0% and alr 60.0%."),
        ({"baseline": ([0.5], None), "alr": ([0.6], 0.7)}, "No method is named best: baseline has no validation acc"),
        ({"baseline": ([0.5, 0.6], 0.5), "alr": ([0.6, 0.7, 0.9], 0.6)}, "10.0 points above baseline on the 2 seeds "
         "both have (the same difference on every seed: no t test possible)."),
    ],
)  # fmt: skip
def test_the_verdict_of_every_other_case(maker: Any, by_method: Any, words: str) -> None:
    if by_method:
        assert words in figures(maker, **by_method)
    else:
        run = RunFolder.create(maker.out, maker.config("alr", 0))
        with RunLock(run.path):
            assert verdict(only_group([run])) == words


def test_no_verdict_prints_nan(maker: Any) -> None:
    sentence = figures(maker, baseline=([0.5, 0.5], 0.5), alr=([0.5, 0.5], 0.6))
    assert "level with baseline (95% interval of the difference 0.00 to 0.00, p = 1.00)" in sentence
    assert "nan" not in json.dumps(sentence).lower()
