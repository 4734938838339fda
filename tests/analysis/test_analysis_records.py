from typing import Any

from adaptive_labels.lab.analysis.records import describe_settings, flatten, group_records, read_run_records
from adaptive_labels.lab.config import changed
from adaptive_labels.lab.runs import RunFolder, run_path
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
    assert group.counted[0].metrics == {"test_top1": 0.5, "seconds": 2.5}


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
        config = changed(maker.config("baseline", 0, dataset=name), "data", fingerprint=letter * 64)
        runs.append(maker.finish(RunFolder.create(run_path(maker.out, config), config), {"test": {"top1": 0.5}}))
    titles = [group.title for group in group_records(read_run_records(runs))]
    shown = [f"towns, fasttext (fingerprint={letter * 8})" for letter in "ab"]
    assert titles == ["digits, fasttext", *shown]


def test_runs_that_cannot_be_counted_say_why(maker: Any) -> None:
    runs = [
        maker.figures("baseline", 0, 0.5),
        Maker(maker.out.parent / "other").figures("baseline", 0, 0.5, device="cuda"),
        maker.diverged("alr", 0, "the loss was NaN in epoch 3"),
        maker.create("slr", 0),
        maker.figures("ols", 0, 0.5),
        maker.finish(maker.create("dml", 0), {"test": {"nll": 1.0}}),
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
