"""`alr data prepare` where data has to be downloaded: a real server, on this machine."""

from __future__ import annotations

import hashlib
import http.server
import sys
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from cli_parts import served

from adaptive_labels.lab import data
from adaptive_labels.lab.data.downloads import download
from adaptive_labels.lab.data.sources.cifar import CIFAR100, Cifar

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
from cifar_files import make_cifar, write_archive, write_folder


@dataclass
class Site:
    """A server with the archive of a small CIFAR-100, and what was asked of it."""

    cifar: Cifar
    files: dict[str, bytes]
    archive: Path
    asked: list[str] = field(default_factory=list)


class Handler(http.server.SimpleHTTPRequestHandler):
    site: Site
    cut = False

    def do_GET(self) -> None:
        self.site.asked.append(self.path)
        if self.cut and self.path.endswith(self.site.archive.name):
            self.send_response(200)
            self.send_header("Content-Length", str(self.site.archive.stat().st_size))
            self.end_headers()
            self.wfile.write(self.site.archive.read_bytes()[:1000])
            return
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The small data set stands in the registry in the place of the official one."""
    root = tmp_path_factory.mktemp("site")
    small, files, _ = make_cifar(CIFAR100)
    archive = write_archive(small.folder, files, root / "cifar-100-python.tar.gz")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with served(root, Handler) as address:
        md5 = hashlib.md5(archive.read_bytes()).hexdigest()
        small = replace(small, url=f"{address}{archive.name}", archive_md5=md5)
        monkeypatch.setattr(Handler, "site", Site(small, files, archive), raising=False)
        entry = replace(data.DATASETS["cifar100"], read=small.read, fetch=small.fetch)
        monkeypatch.setitem(data.DATASETS, "cifar100", entry)
        yield Handler.site


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_prepare_downloads_once_and_reads(alr, site, tmp_path):
    to = tmp_path / "new" / "data"
    ended = alr("data", "prepare", "cifar100", "--data-dir", to)
    assert ended.status == 0, ended.err
    assert f"Downloaded {to}/cifar-100-python.tar.gz from {site.cifar.url}." in ended.out
    assert "examples are tensors of (36, 3, 32, 32)" in ended.out
    size = f"{site.archive.stat().st_size / 1e6:,.1f}"
    assert f"downloaded {size} of {size} MB" in ended.err
    assert everything(to) == {"cifar-100-python.tar.gz"}
    assert (to / "cifar-100-python.tar.gz").read_bytes() == site.archive.read_bytes()
    again = alr("data", "prepare", "cifar100", "--data-dir", to)
    assert (again.status, "Downloaded" in again.out) == (0, False)
    assert site.asked == ["/cifar-100-python.tar.gz"]


def test_another_archive_that_is_there_is_enough(alr, site, tmp_path):
    archive = write_archive(site.cifar.folder, site.files, tmp_path / "cifar-100-python.tar.xz")
    for place in (tmp_path, archive):
        assert alr("data", "prepare", "cifar100", "--data-dir", place).status == 0
    assert everything(tmp_path) == {"cifar-100-python.tar.xz"}
    assert site.asked == []


def test_only_prepare_downloads(alr, site, tmp_path):
    for command in (["data", "verify", "cifar100"], ["train", "cifar100", "--epochs", "1"]):
        ended = alr(*command, "--data-dir", tmp_path)
        assert ended.status == 2
        assert "alr: The data set cifar100 is neither as cifar-100-python/ nor as" in ended.err
        assert "`alr data prepare cifar100 --data-dir DIR`" in ended.err
    assert alr("data", "prepare", "cifar100").status == 2  # where to is for the user to say
    assert site.asked == []


def test_a_download_that_is_cut_off_or_changed_leaves_nothing_behind(alr, site, tmp_path, monkeypatch):
    monkeypatch.setattr(Handler, "cut", True)
    ended = alr("data", "prepare", "cifar100", "--data-dir", tmp_path)
    assert ended.status == 2
    assert f"alr: {site.cifar.url} cannot be downloaded: " in ended.err
    assert f"put it at {tmp_path}/cifar-100-python.tar.gz" in ended.err
    monkeypatch.setattr(Handler, "cut", False)
    expected = site.cifar.archive_md5
    site.archive.write_bytes(b"")
    ended = alr("data", "prepare", "cifar100", "--data-dir", tmp_path)
    assert ended.status == 2
    assert f"its MD5 is d41d8cd98f00b204e9800998ecf8427e, expected is {expected}." in ended.err
    site.archive.unlink()
    ended = alr("data", "prepare", "cifar100", "--data-dir", tmp_path)
    assert ended.status == 2
    assert "cannot be downloaded: File not found" in ended.err
    assert everything(tmp_path) == set()


def test_a_refused_download_closes_its_connection(site, tmp_path):
    site.archive.unlink()
    with pytest.raises(data.DataError) as caught:
        download(site.cifar.url, tmp_path / "x", "", lambda done, total: None)
    answer = caught.value.__cause__
    assert isinstance(answer, urllib.error.HTTPError)
    assert answer.fp.closed


def test_a_server_that_is_not_there(alr, site, tmp_path, monkeypatch):
    away = replace(site.cifar, url="http://127.0.0.1:9/x.tar.gz")
    monkeypatch.setitem(data.DATASETS, "cifar100", replace(data.DATASETS["cifar100"], fetch=away.fetch))
    ended = alr("data", "prepare", "cifar100", "--data-dir", tmp_path)
    assert ended.status == 2
    assert "alr: http://127.0.0.1:9/x.tar.gz cannot be downloaded: " in ended.err
    assert everything(tmp_path) == set()


def test_a_run_on_a_share_of_the_images(alr, site, tmp_path):
    write_folder(site.cifar.folder, site.files, tmp_path)
    quick = [
        "--model",
        "preact-resnet18-w8",
        "--epochs",
        "1",
        "--set",
        "train_fraction=0.2",
        "--out",
        tmp_path / "runs",
    ]
    ended = alr("train", "cifar100", "--data-dir", tmp_path, *quick)
    assert ended.status == 0, ended.err
    assert "8 train, 4 validation, 12 test." in ended.out
    assert "8 training images of 36 are kept: 0.2 of each class, rounded, at least 1 (split seed 0)." in ended.out
    refused = alr("train", "cifar100", "--data-dir", tmp_path, "--set", "train_fraction=0")
    assert (refused.status, "train_fraction is 0.0: allowed is a number above 0" in refused.err) == (2, True)
