"""Files of installed packages: found, checked, and refused in a sentence."""

from __future__ import annotations

import hashlib

import pytest

from adaptive_labels.lab.models.pretrained import PackageError, packaged_file


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that is installed, and that cannot be imported."""
    (tmp_path / "weights_only-1.0.dist-info").mkdir()
    (tmp_path / "weights_only-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: weights-only\n")
    (tmp_path / "weights_only").mkdir()
    (tmp_path / "weights_only" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "weights_only" / "model.bin").write_bytes(b"numbers")
    monkeypatch.syspath_prepend(str(tmp_path))
    packaged_file.cache_clear()
    return tmp_path / "weights_only"


def test_a_file_is_found_without_running_the_package(package):
    digest = hashlib.sha256(b"numbers").hexdigest()
    assert packaged_file("net", "weights-only", "weights_only/model.bin", digest) == package / "model.bin"


def test_another_content_is_refused(package):
    with pytest.raises(
        PackageError, match=r"model\.bin is not the file that 'net' was made for .* install weights-only"
    ):
        packaged_file("net", "weights-only", "weights_only/model.bin", "0" * 64)


def test_a_file_that_is_gone_is_named(package):
    with pytest.raises(PackageError, match=r"gone\.bin of weights-only cannot be read \(No such file"):
        packaged_file("net", "weights-only", "weights_only/gone.bin", "0" * 64)


def test_a_missing_package_is_named_with_the_extra():
    with pytest.raises(PackageError) as caught:
        packaged_file("net", "no-such-package", "a/b", "0" * 64)
    assert str(caught.value) == (
        "'net' needs no-such-package, which is not installed: pip install 'adaptive-labels[encoders]'"
    )
