"""Studies: what a file may say, what their runs leave behind, and the tables made of it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest

from adaptive_labels.errors import UserError
from adaptive_labels.lab.analysis.format import difference
from adaptive_labels.lab.analysis.residual_labels import mean_residual_labels
from adaptive_labels.lab.analysis.statistics import compare_all
from adaptive_labels.lab.analysis.table import MethodRow
from adaptive_labels.lab.config import from_dict, to_dict
from adaptive_labels.lab.paper.records import append_record, describe_margins, read_lines, read_records, records_file
from adaptive_labels.lab.paper.runner import StudyOptions, count_runs, run_study
from adaptive_labels.lab.paper.study import Study, StudyError, Variant, load_study
from adaptive_labels.lab.runs import RunError
from pages import StudyResults, curves_of, draw_study, gains_table, make_pages, study_page, task_table

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "evidence"
HEAD = 'title = "T"\nquestion = "Q?"\nseeds = 3\n'
BASELINE = '[[variant]]\nname = "baseline"\nmethod = "baseline"\n'
ALR = '[[variant]]\nname = "alr"\nmethod = "alr"\n'
TASK = '[task.b]\ndata.name = "towns"\n'


def load(folder: Path, text: str) -> Study:
    (folder / "s.toml").write_text(text, encoding="utf-8")
    return load_study(folder / "s.toml")


def record(variant: Variant, seed: int, validation: float, test: float, **training: float) -> dict:
    metrics = {"validation": {"top1": validation}, "test": {"top1": test, "nll": 1.0, "ece": 0.1}}
    method = {"name": variant.method, "options": variant.options}
    config = to_dict(from_dict({"method": method, "training": training}))
    key = {"task": "b", "variant": variant.key, "seed": seed}
    return {**key, "status": "finished", "config": config, "metrics": metrics}


def by_key(records: list[dict]) -> dict:
    return {(r["task"], r["variant"], r["seed"]): r for r in records}


# -------------------------------------------------------------------------------------------------------- what it says


def test_a_grid_is_every_combination_with_a_name_of_its_own(tmp_path: Path) -> None:
    grid = (
        '[[variant]]\nname = "τ {attraction}, rate {residual_lr}"\nmethod = "alr"\noptions.update = "frozen"\n'
        '[variant.grid]\nattraction = [-2.0, 1.0]\n"training.residual_lr" = [0.5, 10.0]\n'
    )
    variants = load(tmp_path, HEAD + BASELINE + grid + TASK).variant[1:]
    assert [v.name for v in variants] == ["τ −2, rate 0.5", "τ −2, rate 10", "τ 1, rate 0.5", "τ 1, rate 10"]
    assert variants[1].options == {"update": "frozen", "attraction": -2.0}
    assert variants[1].training == {"residual_lr": 10.0}


def test_methods_are_listed_in_short_with_the_options_that_all_their_variants_have(tmp_path: Path) -> None:
    entry = '[[variant]]\nname = "kd"\nmethod = "kd"\noptions.teacher_model = "{}"\ntasks = ["{}"]\n'
    still = '[[variant]]\nname = "still"\nmethod = "alr"\noptions.update = "frozen"\n'
    top = HEAD + 'tasks = ["b", "c"]\nmethods = ["baseline", "alr"]\noptions.alr.update = "optimizer"\n'
    both = TASK + TASK.replace("b", "c", 1)
    study = load(tmp_path, top + entry.format("x", "b") + entry.format("y", "c") + still + both)
    assert [v.options for v in study.variants_on("c")] == [
        *({}, {"update": "optimizer"}, {"teacher_model": "y"}, {"update": "frozen"}),
    ]
    with pytest.raises(StudyError, match="two variants called 'kd'"):  # on one task
        load(tmp_path, top + entry.format("x", "b") + entry.format("y", "b") + both)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("title = ", "cannot be read"),
        (HEAD + TASK, "it has no variant"),
        ('title = "T"\n', "it has no question"),
        (HEAD + 'refrence = "x"\n' + BASELINE, "unknown setting refrence; did you mean reference"),
        (HEAD + BASELINE + BASELINE + TASK, "two variants called 'baseline'"),
        ('reference = "alr"\n' + HEAD + BASELINE + TASK, "its reference 'alr' is none of its variants"),
        ('combined = ["slr"]\n' + HEAD + BASELINE + TASK, "its combined 'slr' is none of its variants"),
        (HEAD + '[[variant]]\nname = "a"\n' + TASK, "the variant 'a' needs a name and a method"),
        (HEAD + '[figure]\ntitle = "T"\n' + BASELINE, "its figure lacks a setting .*'label', 'method'"),
        (HEAD.replace("3", "'3'") + BASELINE, "seeds is '3': allowed is a whole number"),
        ("tasks = 'b'\n" + HEAD + BASELINE, "tasks is 'b': allowed is a list of names"),
        ("task = 3\n" + HEAD + BASELINE, "task is 3: allowed is a table"),
        (HEAD + BASELINE + "options = 3\n", "options is 3: allowed is a table"),
        (HEAD + BASELINE + "tune = 'x'\n", "tune is 'x': allowed is a whole number or none"),
        (HEAD + BASELINE + "grid = {focus = 2}\n", r"grid\.focus is 2: allowed is a list of values"),
        (HEAD + BASELINE.replace('"baseline"', '"{fokus}"', 1), "name is '{fokus}', but its grid has"),
        ('tasks = ["z"]\n' + HEAD + BASELINE, "there is no task 'z' in "),
        (HEAD + BASELINE + "[task.a]\nlike = 'a'\n", "the task a is like itself"),
        (HEAD + BASELINE + "[task.a]\ndat = 1\n", "did you mean task.a.data"),
        (HEAD + BASELINE + "[task.a]\ntraining.lrr = 1\n", r"the task a of .*s\.toml: .*lrr"),
    ],
)
def test_what_a_study_may_not_say_is_said_with_its_file(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(StudyError, match=sentence) as error:
        load(tmp_path, text)
    assert "s.toml" in str(error.value)


def test_a_task_is_known_by_its_name_in_the_file_beside_it_or_among_the_recipes(tmp_path: Path) -> None:
    (tmp_path / "tasks.toml").write_text(
        '[defaults.training]\nepochs = 3\nlr = 0.1\n[task.a]\ndata.name = "towns"\ntraining.lr = 0.2\n'
        'model = {name = "fasttext", options = {dim = 8}}\n'
        '[task.c]\nlike = "ag_news-fasttext-short"\ndata.name = "my_news"\n',
        encoding="utf-8",
    )
    own = '[defaults.training]\nepochs = 9\n[task.b]\nlike = "a"\ntraining.epochs = 4\n'
    study = load(tmp_path, 'tasks = ["a", "b", "c", "cifar10-airbench-cpu"]\n' + HEAD + BASELINE + own)
    a, b, c, recipe = map(study.config, study.tasks)
    assert [(one.training.epochs, one.training.lr) for one in (a, b)] == [(3, 0.2), (4, 0.2)]
    assert (b.data, b.model) == (a.data, a.model)
    assert (c.data.name, c.training.epochs, c.model.name) == ("my_news", 4, "fasttext")
    assert recipe.model.name == "airbench-w48"


# ------------------------------------------------------------------------------------------------------------- records


def test_a_run_is_recorded_once_whatever_its_names_hold(tmp_path: Path) -> None:
    one = record(Variant("x", "alr"), 0, 0.5, 0.5) | {"classes": ["a\u2028b", "c\x85d"]}
    for _ in range(2):
        append_record(tmp_path, one)
    append_record(tmp_path, {**one, "seed": 1})
    append_record(tmp_path, {**one, "task": "b@villages"})  # on other data it is another task
    study = load(tmp_path, HEAD + BASELINE + TASK)
    assert read_records(tmp_path, study) == by_key([one, {**one, "seed": 1}, {**one, "task": "b@villages"}])
    assert StudyResults(study, {("b@villages", Variant("", "baseline").key, 0): one}).runs == {}


@pytest.mark.parametrize("line", ['{"variant": 1}', "[]", "3", "{"])
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "b.jsonl"
    path.write_text(f"\n{line}\n", encoding="utf-8")
    with pytest.raises(RunError, match=r"b\.jsonl line 2 is no record"):
        read_lines(path)


@pytest.mark.parametrize("kept", [1, 100, -2])
def test_a_record_that_a_crash_tore_is_left_out_and_the_next_one_is_whole(tmp_path: Path, kept: int) -> None:
    one = record(Variant("x", "alr"), 0, 0.5, 0.5)
    append_record(tmp_path, one)
    path = records_file(tmp_path, "b")
    whole = path.read_bytes()
    append_record(tmp_path, {**one, "seed": 1})
    path.write_bytes(whole + path.read_bytes()[len(whole) :][:kept])
    assert read_lines(path) == [one]
    append_record(tmp_path, {**one, "seed": 2})
    assert [r["seed"] for r in read_lines(path)] == [0, 2]


ALR_AT_4 = Variant("x", "alr", training={"epochs": 4})


@pytest.mark.parametrize(
    ("variant", "settings", "refused"),
    [
        (Variant("x", "alr"), {"epochs": 3, "residual_lr": 10.0}, None),
        (Variant("x", "alr"), {"epochs": 4}, "training.epochs 4, where its task says 3"),
        (Variant("x", "alr"), {"epochs": 3, "residual_lr": 1.0}, "training.residual_lr 1.0, where its task says 10.0"),
        (ALR_AT_4, {"epochs": 4}, None),  # the variant's own
        (Variant("x", "alr", {"update": "frozen"}), {"residual_lr": 1.0}, None),  # without effect
        (Variant("x", "baseline"), {"residual_lr": 1.0}, None),
    ],
)
def test_a_record_of_another_recipe_is_refused(
    tmp_path: Path, variant: Variant, settings: dict, refused: str | None
) -> None:
    one = record(variant, 0, 0.5, 0.5, **{"epochs": 3, "residual_lr": 10.0, **settings})
    if variant.method == "alr":
        one["residual_labels"] = {}
    append_record(tmp_path, one)
    recipe = "[defaults.training]\nepochs = 3\nresidual_lr = 10.0\n"
    study = load(tmp_path, HEAD + BASELINE + recipe + TASK)
    if refused is None:
        assert read_records(tmp_path, study) == by_key([one])
    else:
        with pytest.raises(RunError, match=re.escape(refused)):
            read_records(tmp_path, study)


def test_the_trial_is_chosen_on_validation_and_shown_on_test(tmp_path: Path) -> None:
    tuned = Variant("slr", "slr", tune=3)
    trials = tuned.trials()
    assert [t.options["label_smoothing"] for t in trials] == [0.02, 0.1, 0.5]
    scores = {0.02: (0.60, 0.9), 0.1: (0.62, 0.5), 0.5: (0.61, 0.8)}  # the best on validation is the worst on test
    records = by_key(
        [record(t, seed, *scores[t.options["label_smoothing"]]) for t in trials for seed in range(2)]
        + [record(trials[0], 2, 0.99, 0.99)]  # a seed beyond the tuning ones has no say
    )
    best = tuned.best_trial("b", records)
    assert best is not None
    assert best.options == {"label_smoothing": 0.1}
    study = load(tmp_path, HEAD + BASELINE + '[[variant]]\nname="slr"\nmethod="slr"\ntune=3\n' + TASK)
    done = StudyResults(study, records)
    (row,) = done.rows["b"]
    assert row.values("test_top1") == {0: 0.5, 1: 0.5}
    assert "| **slr (label_smoothing 0.1)** | 2 |" in task_table(done, "b")
    del records["b", trials[2].key, 1]
    assert tuned.best_trial("b", records) is None


def test_a_trial_is_chosen_by_one_seed_if_the_study_has_no_more(tmp_path: Path) -> None:
    text = HEAD.replace("3", "1") + BASELINE + '[[variant]]\nname = "slr"\nmethod = "slr"\ntune = 3\n'
    study = load(tmp_path, text + TASK)
    small, middle, large = study.variant[1].trials()
    records = by_key([record(small, 0, 0.1, 0.5), record(middle, 0, 0.3, 0.5), record(large, 0, 0.2, 0.5)])
    assert "| **slr (label_smoothing 0.1)** | 1 |" in task_table(StudyResults(study, records), "b")


def test_a_tuned_variant_may_be_the_reference(tmp_path: Path) -> None:
    text = 'reference = "slr"\n' + HEAD + BASELINE + '[[variant]]\nname = "slr"\nmethod = "slr"\ntune = 1\n'
    study = load(tmp_path, text + TASK)
    (trial,) = study.variant[1].trials()
    records = by_key(
        [record(study.variant[0], s, 0.5, 0.5) for s in (0, 1)] + [record(trial, s, 0.5, 0.6) for s in (0, 1)]
    )
    assert "| vs. slr |" in study_page(StudyResults(study, records))
    assert "| −10.0" in study_page(StudyResults(study, records))


def test_the_table_says_n_spread_difference_and_what_validation_prefers(tmp_path: Path) -> None:
    study = load(tmp_path, HEAD + BASELINE + ALR + TASK)
    baseline, alr = study.variant
    figures = {0: (0.50, 0.53), 1: (0.51, 0.54), 2: (0.52, 0.56)}
    records = by_key(
        [record(baseline, seed, low, low) for seed, (low, _) in figures.items()]
        + [record(alr, seed, high, high) for seed, (_, high) in figures.items()]
    )
    lines = study_page(StudyResults(study, records)).splitlines()
    assert "| baseline | 3 | 51.0 ± 1.0 | 51.0 ± 1.0 |  |  | 1.000 | 0.100 | – | – |" in lines
    # differences 3, 3, 4: mean 3.33, std 0.577, t(2) 4.303 · 0.577/√3 = 1.43; p = 0.0099 by scipy.stats.ttest_rel
    assert "| **alr** | 3 | 54.3 ± 1.5 | 54.3 ± 1.5 | +3.3 [+1.9, +4.8] | 0.010 | 1.000 | 0.100 | – | – |" in lines


def test_margins_by_hand() -> None:
    # Class 0 is confused with 1, class 1 with 0, class 2 with 1. One error: the fourth, of class 1, taken for 0.
    z = np.array([[4.0, 2.0, 0.0], [1.0, 4.0, 0.0], [0.0, 2.0, 4.0], [3.0, 2.0, 0.0]])
    y = np.array([0, 1, 2, 1])
    found = describe_margins(z, y)
    scale = z.std()
    assert found["rival_margin"] == pytest.approx(np.mean([2, 3, 2, -1]) / scale)
    assert found["confused_margin"] == pytest.approx(np.mean([2, 3, 2, -1]) / scale)
    assert found["other_margin"] == pytest.approx(np.mean([3, 3.5, 3, 0.5]) / scale)
    assert found["errors_to_confused"] == 1.0
    assert 0 < found["residual_entropy"] < 1
    assert describe_margins(3 * z, y)["rival_margin"] == pytest.approx(found["rival_margin"])


def test_mean_residual_labels_are_where_the_update_loss_comes_to_rest() -> None:
    import torch

    from adaptive_labels import functional as AF

    torch.manual_seed(0)
    z, y = torch.randn(40, 4).double(), torch.arange(40) % 4
    s = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    for _ in range(2000):
        (gradient,) = torch.autograd.grad(AF.update_loss(z, y, s).mean(), s)
        with torch.no_grad():
            s -= 2.0 * gradient
    labels = AF.restore(torch.softmax(s.detach(), 1), torch.arange(4)).numpy()
    assert np.allclose(mean_residual_labels(z.numpy(), y.numpy()), labels, atol=1e-6)


def test_every_committed_page_is_what_the_records_give() -> None:
    pages = make_pages(EVIDENCE / "studies", EVIDENCE)
    assert set(pages) == {path.name for path in (EVIDENCE / "tables").iterdir()}
    for name, page in pages.items():
        assert (EVIDENCE / "tables" / name).read_text(encoding="utf-8") == page, name
    lines = [line.replace("](", "](../evidence/tables/") for line in pages["README.md"].splitlines()[4:18]]
    assert "\n".join(lines) in (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")


README_ROWS = {  # how a row of the README's table begins, and its task
    "`towns`": "towns",
    "Banking77": "banking77",
    "AG News": "ag_news-fasttext-short",
    "CIFAR-100": "cifar100-airbench-cpu",
    "a tenth of CIFAR-100": "cifar100-overfit",
    "the same images": "cifar100-features",
}


def test_the_table_of_the_readme_is_what_the_records_give() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("| task | seeds |")[1].split("\n\n")[0]
    lines = table.splitlines()[2:]
    for line, (words, task) in zip(lines, README_ROWS.items(), strict=True):
        shown, seeds, *cells = line.replace("**", "").strip("| ").split(" | ")
        assert shown.startswith(words)
        found = read_lines(records_file(EVIDENCE, task))
        for method, cell in zip(("baseline", "slr", "alr", "alr-s"), cells, strict=True):
            # ALR as it comes, where that was run
            keys = [Variant("", method, options).key for options in ({}, {"update": "optimizer"})]
            by_key = [[100 * r["metrics"]["test"]["top1"] for r in found if r["variant"] == key] for key in keys]
            figures = by_key[0] or by_key[1]
            assert len(figures) == int(seeds)
            assert cell == f"{np.mean(figures):.1f} ± {np.std(figures, ddof=1):.1f}", (task, method)


@pytest.mark.parametrize("task", ["towns", "towns-linear", "towns-plain", "banking77", "cifar100-w16", "cifar100"])
def test_the_table_of_the_waiting_weight_is_what_the_records_give(task: str) -> None:
    study = load_study(EVIDENCE / "studies" / ("waiting.toml" if task == "cifar100" else "methods.toml"))
    rows = {row.label: row for row in StudyResults(study, read_records(EVIDENCE, study)).rows[task]}
    shown = [rows[name] for name in ("baseline", "alr", "alr-wait")]
    against = compare_all({row.label: row.values("test_top1") for row in shown}, "baseline")
    fitted = rows["baseline"].mean("train_top1")
    cells = [f"`{task}`", f"{100 * fitted:.0f}%", accuracy_cell(rows["baseline"])]
    cells += [difference(against["alr"]), difference(against["alr-wait"])]
    cells.append(", ".join(f"{row.mean('test_nll'):.2f}" for row in shown))
    assert f"| {' | '.join(cells)} |" in (ROOT / "docs" / "waiting.md").read_text(encoding="utf-8").splitlines()


def accuracy_cell(row: MethodRow) -> str:
    values = 100 * np.array(list(row.values("test_top1").values()))
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}"


def test_no_record_holds_a_path_of_the_machine() -> None:
    files = sorted((EVIDENCE / "records").glob("*.jsonl"))
    assert files
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            assert "/" not in json.dumps({key: one[key] for key in ("config", "environment")}), one["variant"]


def test_the_picture_shows_each_task_at_its_differences(tmp_path: Path) -> None:
    figure = '[figure]\ntitle = "<T>"\nlabel = "τ"\nmethod = "alr"\noption = "attraction"\ndefault = 1.0\n'
    figure += "values = [-2.0, 1.0]\n"
    asked = '[[variant]]\nname = "{attraction}"\nmethod = "alr"\ngrid.attraction = [-2.0]\n'
    asked += '[[variant]]\nname = "alr"\nmethod = "alr"\n'
    study = load(tmp_path, HEAD + figure.replace("-2.0", "-4.0, -2.0") + BASELINE + asked + TASK)
    assert study.figure is not None
    repelled = Variant("", "alr", {"attraction": -2.0})
    records = by_key(
        [record(Variant("", "baseline"), s, 0.5, 0.50 + s / 100) for s in range(3)]
        + [record(repelled, s, 0.5, 0.52 + s / 50) for s in range(3)]
        + [record(Variant("", "alr"), s, 0.5, 0.51 + s / 100) for s in range(3)]
        + [record(Variant("", "alr", {"attraction": -4.0}), 0, 0.5, 0.9)]  # there, but not of this study
    )
    curves = curves_of(StudyResults(study, records), study.figure)
    (curve,) = curves.values()
    assert curve.mean == pytest.approx([3.0, 1.0])
    assert curve.low[1] == curve.high[1] == pytest.approx(1.0)  # the same on every seed
    # differences 2, 3, 4: 3 ± 4.303 / √3
    assert curve.low[0] == pytest.approx(3 - 4.3027 / 3**0.5, abs=1e-3)
    picture = draw_study(StudyResults(study, records)) or ""
    assert "&lt;T&gt;" in picture
    assert picture.count("<circle") == 2 + 1  # two points, and the one beside the name
    xml.etree.ElementTree.fromstring(picture)


def test_gains_by_class_are_measured_on_other_seeds_than_the_ranking(tmp_path: Path) -> None:
    study = load(tmp_path, HEAD + BASELINE + ALR + TASK)
    baseline, alr = study.variant

    def with_classes(variant: Variant, seed: int, right: list[int]) -> dict:
        return record(variant, seed, 0.5, 0.5) | {"right_by_class": right, "test_by_class": [10, 10, 10]}

    records = by_key(
        # Seeds 0 and 1 say: class 1 is the worst, class 2 the best. Seed 2 alone is compared.
        [with_classes(baseline, s, right) for s, right in enumerate([[5, 2, 9], [5, 2, 9], [6, 4, 8]])]
        + [with_classes(alr, s, right) for s, right in enumerate([[0, 0, 0], [0, 0, 0], [7, 7, 6]])]
    )
    assert gains_table(StudyResults(study, records).runs["b"]).splitlines()[2:] == ["| alr | +30.0 | +10.0 | −20.0 |"]


def test_gains_by_class_leave_out_runs_that_diverged(tmp_path: Path) -> None:
    text = HEAD.replace("3", "4") + "by_class = true\n" + BASELINE + ALR
    study = load(tmp_path, text + TASK)
    classes = {"right_by_class": [5, 2, 9], "test_by_class": [10, 10, 10]}
    every = {(v.name, s): record(v, s, 0.5, 0.5) | classes for v in study.variant for s in range(4)}
    for diverged in (("baseline", 1), ("alr", 2)):
        every[diverged] = {**every[diverged], "status": "diverged", "metrics": {}}
        del every[diverged]["right_by_class"], every[diverged]["test_by_class"]
    page = study_page(StudyResults(study, by_key(list(every.values()))))
    assert "Diverged: baseline (seed 1), alr (seed 2)." in page
    assert "| alr | 0.0 | 0.0 | 0.0 |" in page


def test_the_rise_of_the_validation_loss_is_from_its_lowest_epoch_to_the_last(tmp_path: Path) -> None:
    study = load(tmp_path, 'columns = ["loss_rise"]\n' + HEAD + BASELINE + TASK)
    course = {"validation_loss": [2.0, 1.5, 1.75]}
    records = by_key([record(study.variant[0], 0, 0.5, 0.5) | {"course": course}])
    assert "| rise of validation NLL |" in study_page(StudyResults(study, records))
    assert "| 0.250 |" in study_page(StudyResults(study, records))


SMALL = """
[task.b]
data.name = "digits"
data.train_fraction = 0.1
model.name = "preact-resnet18-w4"
training = {epochs = 1, residual_lr = 2.0, threads = 1}
"""


def test_variants_that_are_one_run_each_have_their_record(tmp_path: Path) -> None:
    text = HEAD.replace("3", "1") + 'methods = ["baseline", "alr"]\n'
    text += '[[variant]]\nname = "rate 2"\nmethod = "alr"\ntraining.residual_lr = 2.0\n' + SMALL  # the task's own
    study, work = load(tmp_path, text), StudyOptions(tmp_path / "runs", tmp_path, workers=1)
    heard = []
    assert run_study(study, "b", work, heard.append) == []
    assert count_runs(study, "b", work) == (3, 3)
    assert [event.kind for event in heard].count("done") == 2


def test_a_logger_that_is_not_installed_is_refused_before_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load(tmp_path, HEAD + BASELINE + SMALL)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="log is mlflow, which is not installed"):
        run_study(study, "b", StudyOptions(tmp_path / "runs", tmp_path, log=("mlflow",)), lambda event: None)
    assert not (tmp_path / "runs").exists()


def test_a_task_keeps_its_folder_and_its_loggers_unless_others_are_given(tmp_path: Path) -> None:
    study = load(tmp_path, HEAD + BASELINE + TASK + 'data.data_dir = "own"\ntraining.log = ["mlflow"]\n')
    for work, expected in (
        (StudyOptions(tmp_path, tmp_path), ("own", ("mlflow",))),
        (StudyOptions(tmp_path, tmp_path, "other", log=("wandb",)), ("other", ("wandb",))),
    ):
        config = work.config(study, "b")
        assert (config.data.data_dir, config.training.log) == expected
