"""`alr data prepare` of the text sets that are published as CSV: a real server, on this machine."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli_parts import served

from adaptive_labels.lab import data
from adaptive_labels.lab.data.sources.zhang import AG_NEWS, YELP_FULL

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
from zhang_files import make_zhang, write_archive, write_folder


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server with small files; the data sets that expect these stand in the registry."""
    root = tmp_path_factory.mktemp("site")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with served(root) as address:
        news, files = make_zhang(AG_NEWS)
        write_folder(news, files, root)
        places = [f"ag_news_csv/{split}.csv" for split in ("train", "test")]
        news = replace(news, site=f"{address}ag_news_csv/", files={p: _sum(root / p, "md5") for p in places})
        yelp, files = make_zhang(YELP_FULL)
        archive = write_archive(yelp, files, root / "yelp_review_full_csv.tgz")
        yelp = replace(yelp, site=address, files={archive.name: _sum(archive, "sha256")})
        for small in (news, yelp):
            entry = replace(data.DATASETS[small.name], read=small.read, fetch=small.fetch)
            monkeypatch.setitem(data.DATASETS, small.name, entry)
        yield root


def _sum(path: Path, kind: str) -> str:
    return hashlib.new(kind, path.read_bytes()).hexdigest()


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "files"),
    [("ag_news", {"ag_news_csv/train.csv", "ag_news_csv/test.csv"}), ("yelp_full", {"yelp_review_full_csv.tgz"})],
)
def test_prepare_downloads_once_and_reads(alr, site, name, files, tmp_path):
    to = tmp_path / "new"
    ended = alr("data", "prepare", name, "--data-dir", to)
    assert ended.status == 0, ended.err
    assert ended.out.count("Downloaded ") == len(files)
    assert "The files are those that were published" in ended.out
    assert everything(to) == files
    again = alr("data", "prepare", name, "--data-dir", to)
    assert (again.status, "Downloaded" in again.out) == (0, False)
    verified = alr("data", "verify", name, "--data-dir", to)
    assert verified.status == 0
    assert f"{name}: {len(data.DATASETS[name].read(to).classes)} classes of texts" in verified.out


def test_only_what_is_missing_is_downloaded(alr, site, tmp_path):
    assert alr("data", "prepare", "ag_news", "--data-dir", tmp_path).status == 0
    (tmp_path / "ag_news_csv" / "test.csv").unlink()
    ended = alr("data", "prepare", "ag_news", "--data-dir", tmp_path)
    assert ended.out.count("Downloaded ") == 1


def test_a_file_with_another_sum_is_refused(alr, site, tmp_path):
    with (site / "yelp_review_full_csv.tgz").open("ab") as file:
        file.write(b"more")
    ended = alr("data", "prepare", "yelp_full", "--data-dir", tmp_path)
    assert ended.status == 2
    assert "yelp_review_full_csv.tgz is not the file it should be: its SHA-256 is " in ended.err
    assert everything(tmp_path) == set()


def test_train_predict_and_suspects_on_stored_texts(alr, site, tmp_path, monkeypatch):
    """A whole run on texts that stay on the disk, with ids that do, too; what shows examples finds them."""
    from adaptive_labels.lab.data.encoders import text

    monkeypatch.setattr(text, "CACHED_FROM", 1)
    monkeypatch.setenv("ALR_CACHE", str(tmp_path / "cache"))
    assert alr("data", "prepare", "ag_news", "--data-dir", tmp_path).status == 0
    quick = ["--epochs", "2", "--out", tmp_path / "runs", "--label-noise", "0.1"]
    ended = alr("train", "ag_news", "--data-dir", tmp_path, *quick, "--set", "model.options.buckets=256")
    assert ended.status == 0, ended.err
    (run,) = (tmp_path / "runs").iterdir()
    predicted = alr("predict", run, "word3 word3")
    assert (predicted.status, len(predicted.out.split(","))) == (0, 3)
    suspects = alr("suspects", run, "--top", "2")
    assert suspects.status == 0, suspects.err
    assert "train.csv:" in suspects.out
    assert len(list((tmp_path / "cache" / "ids").iterdir())) >= 3
    words = alr(
        "train", "ag_news", "--data-dir", tmp_path, *quick, "--model", "textrnn", "--set", "model.options.dim=8"
    )
    assert words.status == 0, words.err
    assert len(list((tmp_path / "cache" / "encoders").iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_a_sentence(alr, site, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ALR_CACHE", str(tmp_path / "file"))
    ended = alr("data", "prepare", "yelp_full", "--data-dir", tmp_path / "data")
    assert ended.status == 2
    assert "cannot be written" in ended.err
    assert "ALR_CACHE" in ended.err
    assert "Traceback" not in ended.err
