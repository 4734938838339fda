"""The paper's figures as printed, recipes that load, resolve and build, and ours beside the paper's."""

from __future__ import annotations

import json
import re
import tomllib
import xml.etree.ElementTree
from pathlib import Path

import pytest
import torch
from scipy import stats

from adaptive_labels.lab.analysis.format import parameters
from adaptive_labels.lab.config import RunConfig, from_dict, to_dict
from adaptive_labels.lab.data import Dataset, Examples
from adaptive_labels.lab.experiments import build
from adaptive_labels.lab.experiments.resolve import resolve_for
from adaptive_labels.lab.objectives import count_parameters
from adaptive_labels.lab.paper.comparison import compare_with_paper, format_comparison, to_plain
from adaptive_labels.lab.paper.figure import (
    choose_epochs,
    describe_maps,
    draw_maps,
    find_task,
    keep_labels,
    read_heat_maps,
)
from adaptive_labels.lab.paper.recipes import (
    Reproduction,
    all_reproductions,
    choose_cells,
    list_recipes,
    load_reproduction,
    paper_figure,
    paper_tables,
)
from adaptive_labels.lab.paper.records import append_record, read_records
from adaptive_labels.lab.paper.runner import with_variant
from adaptive_labels.lab.paper.study import RECIPES, StudyError, Variant
from adaptive_labels.lab.report.figures import standalone
from adaptive_labels.lab.runs import RunFolder
from pages import draw_kept, make_pages, printed_gains
from run_maker import Maker

SHAPES = {"cifar10": (10, 3, 32), "cifar100": (100, 3, 32), "imagenet": (1000, 3, 224), "digits": (10, 1, 8)}
TEXTS = {"towns": 30, "ag_news": 4, "yahoo_answers": 10, "yelp_full": 5}


def networks() -> list:
    """Each network of the recipes once, with a task that has it and with the methods of one table in turn."""
    found = {}
    for one in all_reproductions():
        for task in one.study.tasks:
            config = one.study.config(task)
            found.setdefault((config.model.name, str(config.model.options), config.data.name), (one, task))
    cells = []
    for number, (one, task) in enumerate(found.values()):
        variants = one.study.variants_on(task)
        variant = variants[number % len(variants)]  # all of them come up
        cells.append(pytest.param(one, task, variant, id=f"{one.table.name}-{task}-{variant.name}"))
    return cells


def blank_data(name: str) -> Dataset:
    """Two blank images or made-up texts in every split, of as many classes as the data set has.

    The texts have enough different words to fill a vocabulary, so that networks have the size that they will have.
    """
    inputs: list[str] | torch.Tensor
    if name in TEXTS:
        classes, kind = TEXTS[name], "text"
        inputs = 2 * [" ".join(f"w{i}" for i in range(start, start + 400)) for start in range(0, 40_000, 400)]
    else:
        (classes, channels, side), kind = SHAPES[name], "image"
        inputs = torch.zeros(2, channels, side, side, dtype=torch.uint8)
    every = Examples(inputs, torch.tensor([0, classes - 1]).repeat(len(inputs) // 2))
    names = tuple(f"class {number}" for number in range(classes))
    return Dataset(name, kind, names, every, every, every, notes=(), fingerprint="")


def record(task: str, variant: Variant, seed: int, top1: float) -> dict:
    metrics = {"validation": {"top1": top1}, "test": {"top1": top1, "top5": 0.9}}
    values = to_dict(
        next(one for one in all_reproductions() if task.split("@")[0] in one.study.tasks).study.config(
            task.split("@")[0]
        )
    )
    values["method"] = {"name": variant.method, "options": variant.options}
    key = {"task": task, "variant": variant.key, "seed": seed}
    return {
        **key,
        "status": "finished",
        "metrics": metrics,
        "parameters": {"criterion": 9_900, "network": 700_000},
        "config": to_dict(from_dict(values)),
    }


# ---------------------------------------------------------------------------------------------------------- the paper


@pytest.mark.parametrize(
    ("table", "column", "method", "top1", "std", "top5", "parameters"),
    [  # typed again from the paper
        ("cifar", "cifar10/preact-resnet18", "baseline", 95.28, 0.21, None, "11.17M"),
        ("cifar", "cifar100/preact-resnet18", "alr", 78.15, 0.27, None, "11.22M + 10K"),
        ("cifar", "cifar100/wide-resnet-28-10", "slr", 81.13, 0.11, None, "36.54M"),
        ("cifar", "cifar10/wide-resnet-28-10", "alr-s", 96.37, 0.13, None, "36.48M + 0.1K"),
        ("imagenet", "imagenet/resnet50", "alr-s", 76.74, None, 92.89, None),
        ("imagenet", "imagenet/resnet101", "slr", 77.66, None, 93.93, None),
        ("imagenet", "imagenet/resnet152", "alr", 78.54, None, 93.80, None),
        ("dml", "cifar100/resnet32", "kd", 69.48, None, None, "~3×"),
        ("dml", "cifar100/wide-resnet-28-10", "alr-s", 80.70, 0.18, None, "~1×"),
        ("text", "yahoo_answers/charcnn", "alr-s", 71.50, None, None, None),
    ],
)
def test_the_figures_are_those_that_are_printed(table, column, method, top1, std, top5, parameters) -> None:
    found = paper_tables()[table].columns[column].rows[method]
    assert (found.top1, found.std, found.top5, found.parameters) == (top1, std, top5, parameters)


def test_all_cells_of_the_paper_are_there() -> None:
    counts = {
        name: sum(len(column.rows) for column in table.columns.values()) for name, table in paper_tables().items()
    }
    assert counts == {"cifar": 16, "imagenet": 12, "text": 24, "dml": 7}
    reported = [
        row for column in paper_tables()["dml"].columns.values() for row in column.rows.values() if row.reported
    ]
    assert len(reported) == 5  # those with an asterisk
    assert paper_figure().epochs == (1, 5, 10, 100, 200, 300)
    assert paper_figure().train_accuracy[1] == 80.21


# -------------------------------------------------------------------------------------------------------- the recipes


def test_there_are_recipes_for_the_image_tables() -> None:
    assert {"cifar", "imagenet", "text", "dml"} == set(paper_tables())
    assert {one.study.name for one in all_reproductions()} == {file.stem for file in RECIPES.glob("*.toml")}
    used: dict[str, object] = {}
    for one in all_reproductions():
        for task in one.study.tasks:  # a task of two tables is one task
            assert used.setdefault(task, one.study.config(task)) == one.study.config(task)
    assert [name for name, _ in list_recipes()] == list(used)
    assert len(used) == 54


@pytest.mark.parametrize("reproduction", all_reproductions(), ids=lambda one: one.study.name)
def test_a_study_covers_the_rows_of_the_paper(reproduction: Reproduction) -> None:
    for task in reproduction.study.tasks:
        assert {variant.method for variant in reproduction.rows(task)} == set(reproduction.column(task).rows)
    if reproduction.scale == "paper":
        assert {reproduction.study.column(task) for task in reproduction.study.tasks} == set(reproduction.table.columns)


@pytest.mark.parametrize(("reproduction", "task", "variant"), networks())
def test_every_network_of_the_recipes_builds(reproduction: Reproduction, task: str, variant: Variant) -> None:
    dataset = blank_data(reproduction.study.config(task).data.name)
    resolved, _ = resolve_for(with_variant(reproduction.study.config(task), variant), dataset)
    printed = reproduction.column(task).rows.get(variant.method)
    if printed is not None and reproduction.study.name == "cifar-paper":
        assert sizes(resolved, dataset) == printed.parameters


def sizes(config: RunConfig, dataset: Dataset) -> str:
    with build.shapes_only():
        model = build.make_model(config, dataset.num_classes, build.make_encoder(config, dataset).sizes)
    criterion = build.make_criterion(config, dataset)
    return parameters({"network": count_parameters(model), "criterion": count_parameters(criterion)})


def test_the_paper_s_recipe_is_the_paper_s() -> None:
    cells = [(one.table.name, one.study.config(task)) for one in all_reproductions() for task in one.study.tasks]
    for table, training in [(table, config.training) for table, config in cells if config.training.milestones]:
        if table == "text":
            assert (training.epochs, training.batch_size, training.lr) == (30, 128, 1e-4)
            assert (training.optimizer, training.milestones, training.gamma) == ("adam", (10, 20), 0.5)
            continue
        if table == "cifar":
            assert (training.epochs, training.batch_size, training.lr) == (300, 128, 0.1)
            assert training.milestones == (60, 120, 160)
        elif table == "dml":
            assert (training.epochs, training.batch_size, training.milestones) == (200, 64, (60, 120, 180))
        else:
            assert training.precision == "16-mixed"
        assert (training.optimizer, training.momentum, training.nesterov) == ("sgd", 0.9, True)
        assert (training.schedule, training.gamma, training.augment) == ("step", 0.1, True)


GIVEN = {
    *("epochs", "batch_size", "optimizer", "lr", "momentum", "nesterov"),
    *("schedule", "milestones", "gamma", "augment"),
}


def test_what_the_paper_does_not_give_is_marked_as_ours() -> None:
    files = sorted(RECIPES.glob("*-paper.toml"))
    assert len(files) == 4
    for file in files:
        text = file.read_text(encoding="utf-8")
        given = {"precision", "channels_last"} if file.stem.startswith("imagenet") else GIVEN
        settings = [
            re.search(rf"^{key} = .*", text, re.MULTILINE) for key in tomllib.loads(text)["defaults"]["training"]
        ]
        marked = {line[0].split()[0]: "ours" in line[0] for line in settings if line is not None}
        assert {key for key, ours in marked.items() if not ours} <= given, file.name
        assert "training" not in text.partition("[task.")[2]  # all that is said of it is said above


# ----------------------------------------------------------------------------------------------------- what is chosen


def test_the_rows_of_the_paper_are_chosen_unless_others_are_asked_for() -> None:
    reproduction = load_reproduction("dml", "short")
    chosen = dict(choose_cells(reproduction))
    assert {v.method for v in chosen["dml-resnet32-short"]} == {"baseline", "kd", "dml", "alr-s"}
    assert {v.method for v in chosen["dml-wide-resnet-28-10-short"]} == {"baseline", "dml", "alr-s"}
    ((task, variants),) = choose_cells(reproduction, methods=["alr", "kd"], networks=["resnet32"])
    assert task == "dml-resnet32-short"
    assert [variant.method for variant in variants] == ["alr", "kd"]
    everything = dict(choose_cells(reproduction, methods=["all"]))
    assert list(everything["dml-resnet32-short"]) == reproduction.study.variants_on("dml-resnet32-short")
    assert reproduction.study.limited(variants, 3).seeds_for(task) == range(3)


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ({"methods": ["alx"]}, "only: there is no 'alx' here; there are baseline, dml"),
        ({"networks": ["resnet31"]}, "networks: there is no 'resnet31' here; there are resnet32, wide-resnet-28-10"),
        ({"data": ["cifar10"]}, "data: there is no 'cifar10' here; there are cifar100"),
        ({"methods": ["kd"], "networks": ["wide-resnet-28-10"]}, "there is no such cell"),
    ],
)
def test_what_is_not_there_is_said(cells: dict, sentence: str) -> None:
    with pytest.raises(StudyError, match=re.escape(sentence)):
        choose_cells(load_reproduction("dml", "short"), **cells)


def test_a_scale_has_a_name() -> None:
    with pytest.raises(StudyError, match="scale is 'long'; it must be smoke, short, cpu or paper"):
        load_reproduction("cifar", "long")
    with pytest.raises(StudyError, match="text has no recipes at the scale cpu; it has smoke, short and paper"):
        load_reproduction("text", "cpu")


def test_a_row_of_ours_stands_beside_the_paper_s_of_the_same_method() -> None:
    reproduction = load_reproduction("cifar", "cpu")
    (task, chosen), *_ = choose_cells(reproduction, ["alr", "alr-frozen"])
    assert [(variant.name, variant.method) for variant in chosen] == [("alr", "alr"), ("alr-frozen", "alr")]
    records = {(task, v.key, 0): record(task, v, 0, 0.5 + 0.1 * i) for i, v in enumerate(chosen)}
    column = compare_with_paper(reproduction, records)[0]
    rows = {row.label: row.values("test_top1") for row in column.rows}
    assert (rows["alr"], rows["alr-frozen"]) == ({0: 0.5}, {0: 0.6})
    assert "alr-frozen" not in column.printed


# --------------------------------------------------------------------------------------------------------- side by side


def test_ours_stand_beside_the_paper_s_with_the_difference(tmp_path: Path) -> None:
    reproduction = load_reproduction("cifar", "short")
    task = "cifar100-preact-resnet18-short"
    by_method = {variant.method: variant for variant in reproduction.study.variants_on(task)}
    for seed, (baseline, alr) in enumerate([(0.50, 0.53), (0.51, 0.54), (0.52, 0.56)]):
        append_record(tmp_path, record(task, by_method["baseline"], seed, baseline))
        append_record(tmp_path, record(task, by_method["alr"], seed, alr))
    append_record(tmp_path, record(task, by_method["disturb-label"], 0, 0.49))
    compared = compare_with_paper(reproduction, read_records(tmp_path, reproduction.study))
    lines = format_comparison(reproduction, compared, markdown=True).splitlines()
    # 51.00 − 77.54; 54.33 − 78.15; the paper gains 78.15 − 77.54; ours as in scipy: 3.33 ± 4.303 · 0.577 / √3
    assert "| baseline | 77.54 ± 0.31 | 51.00 ± 1.00 | −26.54 |  |  | 90.00 ± 0.00 | 11.22M | 700K + 10K | 3 |" in lines
    assert (
        "| alr | 78.15 ± 0.27 | 54.33 ± 1.53 | −23.82 | +0.61 | +3.33 [+1.90, +4.77] | 90.00 ± 0.00 | 11.22M + 10K "
        "| 700K + 10K | 3 |"
    ) in lines
    assert "| slr | 78.24 ± 0.26 |  |  | +0.70 |  |  | 11.22M |  |  |" in lines  # not run: empty
    assert "| disturb-label | – | 49.00 |  |  | −1.00 | 90.00 |  | 700K + 10K | 1 |" in lines  # the paper has none
    assert not any(line.startswith("| confidence-penalty") for line in lines)  # neither has it
    assert "Scale: short" in format_comparison(reproduction, compared)
    plain = to_plain(reproduction, compared)
    cell = next(cell for one in plain["columns"] if one["recipe"] == task for cell in one["cells"])
    assert cell["difference_points"] == pytest.approx(-26.54)
    assert json.loads(json.dumps(plain)) == plain


def test_runs_on_other_data_have_a_column_of_their_own(tmp_path: Path) -> None:
    reproduction = load_reproduction("text", "short")
    shown = {one.task: one.recipe for one in compare_with_paper(reproduction, {})}
    assert shown["ag_news-fasttext-short"].startswith("ag_news; fasttext: ")
    assert shown["yelp_full-fasttext-short"].startswith("yelp_full, 8% of the training texts; fasttext: ")
    task = "ag_news-fasttext-short"
    append_record(tmp_path, record(f"{task}@some_news", Variant("", "baseline"), 0, 0.9))
    own, other, *_ = compare_with_paper(reproduction, read_records(tmp_path, reproduction.study))
    assert not own.begun
    assert (own.heading, own.recipe[:7]) == ("AGNews, FastText", "ag_news")
    assert other.begun
    assert (other.task, other.heading) == (f"{task}@some_news", "AGNews, FastText, on other data")
    assert other.recipe.startswith("some_news; fasttext: ")


def test_pages_are_made_of_what_has_been_begun(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    assert make_pages(tmp_path / "studies", tmp_path) == {}
    append_record(tmp_path, record("cifar100-airbench-cpu", Variant("", "baseline"), 0, 0.5))
    pages = make_pages(tmp_path / "studies", tmp_path)
    assert set(pages) == {"reproduce-cifar-cpu.md", "paper.md", "README.md"}
    assert "| AURC | train % |" in pages["reproduce-cifar-cpu.md"]  # our other metrics
    index = pages["README.md"]
    assert "| [cifar](reproduce-cifar-cpu.md) | cpu | 1 of 2 | 1 of 8 | 1 |" in index
    assert "| dml | paper | 0 of 2 | 0 of 7 |  |" in index


def test_the_printed_gains_are_tested_as_by_hand() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in printed_gains().split("\n\n")[3].splitlines()[2:]
    ]
    # ALR with ResNet18 on CIFAR-100: 78.15 ± 0.27 against 77.54 ± 0.31, five runs each.
    spread = (0.27**2 / 5, 0.31**2 / 5)
    freedom = sum(spread) ** 2 / sum(part**2 / 4 for part in spread)
    p = 2 * stats.t.sf(0.61 / sum(spread) ** 0.5, freedom)
    assert ["CIFAR-100, ResNet18", "alr", "+0.61", f"{p:.3f}"] == rows[4][:4]
    assert len(rows) == 12
    assert [row[:2] for row in rows if row[4].startswith("<") or float(row[4]) < 0.05] == [
        ["CIFAR-100, ResNet18", "alr-s"]
    ]


# ------------------------------------------------------------------------------------------------------------ the maps


@pytest.fixture
def animals(tmp_path: Path) -> RunFolder:
    """A run on `cifar10` with three classes, in which dog becomes the top confusion of cat at its second epoch."""
    run = Maker(tmp_path).create("alr", 0, dataset="cifar10")
    early = [[0, 0.4, 0.6], [0.7, 0, 0.3], [0.5, 0.5, 0]]
    late = [[0, 0.9, 0.1], [0.8, 0, 0.2], [0.4, 0.6, 0]]
    run.save_residual_labels([1, 2], [early, late], ["cat", "dog", "ship"])
    for epoch, accuracy in ((1, 0.4412), (2, 0.8021)):
        run.append_history({"epoch": epoch, "train_accuracy": accuracy})
    return run


def test_cat_and_dog_are_checked_at_every_epoch(animals: RunFolder) -> None:
    maps = read_heat_maps(animals, paper_figure())
    said = "\n".join(describe_maps(maps, paper_figure()))
    assert "its epochs 1, 2 stand for the paper's 1, 5, 10, 100, 200, 300" in said
    assert "cat ↔ dog at the end: yes (dog is the top confusion of cat at epochs 2;" in said
    assert "cat is the top confusion of dog at every epoch shown" in said
    assert "44.12, 80.21%" in said
    # Of the three top confusions only the dog's is the last epoch's: the ship's 0.5 is that of cat first.
    assert "Consistency: 33, 100% of the classes" in said


def test_the_picture_has_a_map_an_epoch_with_its_accuracy(animals: RunFolder) -> None:
    picture = draw_maps(read_heat_maps(animals, paper_figure()))
    root = xml.etree.ElementTree.fromstring(picture)
    assert [child.get("class") for child in root if child.tag == "svg"] == ["heatmap", "heatmap"]
    assert "(a) 1 epoch (μ = 44.12%)" in picture
    assert "(b) 2 epochs (μ = 80.21%)" in picture


def test_the_picture_is_drawn_again_from_what_was_kept(animals: RunFolder, tmp_path: Path) -> None:
    study, task = load_reproduction("cifar", "cpu").study, "cifar10-airbench-cpu"
    maps, key = read_heat_maps(animals, paper_figure()), Variant("alr", "alr", {"update": "optimizer"}).key
    keep_labels(maps, tmp_path, task)
    records = {(task, key, 0): {"course": {"train_accuracy": [0.4412, 0.8021]}}}
    assert draw_kept(tmp_path, study, records) == {f"figure-{task}.svg": standalone(draw_maps(maps))}
    assert draw_kept(tmp_path, study, {(task, key, 1): records[task, key, 0]}) == {}  # another run's accuracies


def test_epochs_that_stand_for_the_paper_s() -> None:
    assert choose_epochs([1, 2, 5, 10, 20, 50, 80], paper_figure().epochs) == (1, 2, 5, 20, 50, 80)


def test_the_maps_of_a_folder_have_its_name_not_its_path(tmp_path: Path) -> None:
    run = Maker(tmp_path).create("alr", 0, dataset="/a/long/path/to/pets")
    run.save_residual_labels([1], [[[0, 1.0], [1.0, 0]]], ["a", "b"])
    run.append_history({"epoch": 1, "train_accuracy": 0.5})
    assert read_heat_maps(run, paper_figure()).data == "pets"


def test_the_maps_are_of_the_data_that_is_asked_for() -> None:
    assert find_task(load_reproduction("cifar", "paper"), None) == "cifar10-preact-resnet18-paper"
    assert find_task(load_reproduction("cifar", "short"), "cifar100") == "cifar100-preact-resnet18-short"
    assert find_task(load_reproduction("cifar", "smoke"), None) == "digits-preact-resnet18-smoke"
    folder = str(Path(__file__).parent)  # any that exists: the user's own images
    assert find_task(load_reproduction("cifar", "short"), folder) == "cifar10-preact-resnet18-short"
    with pytest.raises(StudyError, match="data is 'towns'; at the scale short there is cifar10 or cifar100"):
        find_task(load_reproduction("cifar", "short"), "towns")
