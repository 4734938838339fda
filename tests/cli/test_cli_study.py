"""`alr study` on a tiny study: runs, records, tables, and nothing done twice."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from cli_parts import Alr

sys.path.insert(0, str(Path(__file__).parents[2] / "evidence"))
from adaptive_labels.lab.config import from_dict
from adaptive_labels.lab.runs import recipe_hash
from pages import make_pages

TASK = """
[task.small]
data.name = "{name}"
[task.small.model]
name = "fasttext"
options = {{ buckets = 512, dim = 16, hidden = 0, dropout = 0.5, char_ngrams = [1, 3], word_ngrams = 1 }}
[task.small.training]
epochs = 2
batch_size = 32
optimizer = "adamw"
lr = 0.02
weight_decay = 0.0
schedule = "linear"
augment = false
threads = 1
"""
STUDY = """
title = "Tiny"
question = "Does it run?"
conclusion = "It does."
tasks = ["small"]
seeds = 3
[[variant]]
name = "baseline"
method = "baseline"
[[variant]]
name = "label smoothing"
method = "slr"
tune = 2
[[variant]]
name = "S fixed to confusions"
method = "alr"
options.attraction = -1.0
fixed_to_confusions = true
[[variant]]
name = "weight decay on S"
method = "alr"
training.residual_weight_decay = 0.1
training.residual_schedule = "constant"
"""


def test_a_study_runs_records_and_resumes(alr: Alr, texts: Path, tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "tasks.toml").write_text(TASK.format(name=texts.name), encoding="utf-8")
    file = tmp_path / "studies" / "tiny.toml"
    file.write_text(STUDY, encoding="utf-8")
    arguments = ("study", file, "--data-dir", texts.parent, "--workers", "1")

    assert "14 runs, 0 recorded" in alr(*arguments, "--dry-run").out
    assert "8 runs, 0 recorded" in alr(*arguments, "--methods", "slr,baseline", "--dry-run").out
    done = alr(*arguments)
    assert done.status == 0, done.err
    # 3 seeds each of baseline, fixed and decayed; 2 trials × 2 seeds, and the third seed of the better one
    records = [json.loads(line) for line in (tmp_path / "evidence/records/small.jsonl").read_text().splitlines()]
    assert len(records) == 14
    assert all(record["config"]["data"]["name"] == texts.name for record in records)
    assert str(tmp_path) not in json.dumps([record["config"] for record in records])
    # One hash per recipe, whatever the seed; a record has the hash of its own configuration.
    assert len({record["recipe_hash"] for record in records}) == len({record["variant"] for record in records}) == 5
    assert all(record["recipe_hash"] == recipe_hash(from_dict(record["config"])) for record in records)
    assert all(len(record["course"]["validation_loss"]) == record["config"]["training"]["epochs"] for record in records)
    fixed = [record for record in records if "fixed_to_confusions" in record["variant"]]
    assert len(fixed) == 3
    assert len({json.dumps(record["residual_labels"]) for record in fixed}) == 1  # held where they were put
    assert all(len(row) == 2 for row in fixed[0]["residual_labels"]["largest"])
    learned = [record for record in records if "residual_weight_decay" in record["variant"]]
    assert learned[0]["config"]["training"]["residual_schedule"] == "constant"

    again = alr(*arguments)
    assert "14 runs, 14 recorded already" in again.out
    assert len((tmp_path / "evidence/records/small.jsonl").read_text().splitlines()) == 14

    # Records without their run folders, as in a clone: what S is to be fixed to must be found out anew.
    kept = [record for record in records if record not in fixed]
    (tmp_path / "evidence/records/small.jsonl").write_text("".join(json.dumps(record) + "\n" for record in kept))
    shutil.rmtree(tmp_path / "runs")
    anew = alr(*arguments)
    assert anew.status == 0, anew.err
    records = [json.loads(line) for line in (tmp_path / "evidence/records/small.jsonl").read_text().splitlines()]
    assert len(records) == 14
    again = [record for record in records if "fixed_to_confusions" in record["variant"]]
    assert [record["residual_labels"] for record in again] == [record["residual_labels"] for record in fixed]
    assert len(list((tmp_path / "runs").glob("*-slr-*"))) == 0
    page = make_pages(tmp_path / "studies", tmp_path / "evidence")["tiny.md"]
    assert page.startswith("# Tiny\n\nIt does.\n\nDoes it run?\n\n## small\n")
    assert page.count("\n| ") == 6  # a head, a rule and four rows
    assert "label smoothing (label_smoothing 0." in page


def test_what_is_wrong_with_a_study_is_one_sentence(alr: Alr, tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(STUDY, encoding="utf-8")
    ended = alr("study", file)
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "tiny.toml, in tasks.toml beside it, or in the paper's recipes" in ended.err
    file.with_name("tasks.toml").write_text(TASK.format(name="towns"), encoding="utf-8")
    assert "'big' is none of the study's tasks (small)" in alr("study", file, "--on", "big").err
    unknown = alr("study", file, "--methods", "alr,kd").err
    assert "methods: 'kd' is none of the study's methods (baseline, slr, alr)" in unknown
