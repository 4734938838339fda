"""ImageNet's folders, and images that stay files until a batch is asked for."""

import dataclasses
import io
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from adaptive_labels.lab.data import DataError, fingerprint, load_dataset
from adaptive_labels.lab.data.encoders.images import ImageEncoder, image_at, worker_count
from adaptive_labels.lab.data.pixels import read_middle, read_random_view
from imagenet_files import SYNSETS, write_imagenet

# torch warns on a machine with one core, where it makes no difference to the batches
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_imagenet(tmp_path_factory.mktemp("imagenet"))


@pytest.fixture
def data(folder):
    return load_dataset("imagenet", data_dir=folder, image_size=32)


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()


def encoded(examples):
    return ImageEncoder.fit(examples.inputs).encode(examples.inputs)


def test_synsets_are_in_order_and_named(data):
    assert data.classes == ("tench", "crane (n02012849)", "tabby", "crane (n03126707)")
    assert all(
        sorted(SYNSETS)[label] in source
        for split in (data.train, data.validation, data.test)
        for label, source in zip(split.labels.tolist(), split.sources, strict=True)
    )


def test_without_a_list_of_names_the_classes_are_the_ids(tmp_path):
    data = load_dataset("imagenet", data_dir=write_imagenet(tmp_path, names=None))
    assert data.classes[0] == "n01440764"
    assert "Class names are the synset ids" in data.notes[0]


def test_val_is_the_test_split_and_validation_is_held_out_from_train(data, folder):
    assert {source.split("/")[0] for source in data.test.sources} == {"val"}
    assert {source.split("/")[0] for source in [*data.validation.sources, *data.train.sources]} == {"train"}
    assert not set(data.validation.sources) & set(data.train.sources)
    assert (len(data.train), len(data.validation), len(data.test)) == (44, 4, 12)
    other = load_dataset("imagenet", data_dir=folder, split_seed=1, image_size=32)
    assert set(other.validation.sources) != set(data.validation.sources)


def test_the_fingerprint_goes_by_names_sizes_and_labels(data, folder, tmp_path):
    moved = Path(shutil.copytree(folder, tmp_path / "moved"))
    assert load_dataset("imagenet", data_dir=moved, image_size=32).fingerprint == data.fingerprint
    assert load_dataset("imagenet", data_dir=moved).fingerprint != data.fingerprint  # another size
    labels = dataclasses.replace(data.train, labels=data.train.labels.flip(0))
    assert fingerprint(data.classes, [("train", data.train)]) != fingerprint(data.classes, [("train", labels)])
    Image.new("RGB", (90, 90)).save(moved / "val" / "n01440764" / "n01440764_0.JPEG")
    assert load_dataset("imagenet", data_dir=moved, image_size=32).fingerprint != data.fingerprint


def test_testing_sees_the_middle_normalised(data):
    pixels = image_at(data.test, 3, size=32)
    assert (pixels.shape, pixels.dtype) == ((3, 32, 32), torch.uint8)
    zoomed = read_middle(data.test.inputs.path(3).read_bytes(), (32, 32), 256 / 224).transpose(2, 0, 1) / 255
    expected = (zoomed - np.reshape([0.485, 0.456, 0.406], (3, 1, 1))) / np.reshape([0.229, 0.224, 0.225], (3, 1, 1))
    assert np.allclose(encoded(data.test).batch(torch.tensor([3]))[0], expected, atol=1e-5)


def test_a_gradient_shows_where_the_middle_is_cut():
    ramp = np.tile(np.arange(256, dtype=np.uint8)[None, :, None], (256, 1, 3))
    cut = read_middle(png(Image.fromarray(ramp)), (224, 224), 256 / 224)
    assert np.array_equal(cut, ramp[16:240, 16:240])
    halved = read_middle(png(Image.fromarray(ramp)), (112, 112), 256 / 224)[:, :, 0]
    assert halved.shape == (112, 112)
    assert abs(halved[50].astype(float) - (16.5 + 2 * np.arange(112))).max() <= 1


@pytest.mark.parametrize("seed", [None, 7])
def test_any_number_of_processes_gives_the_same_batches(data, monkeypatch, seed):
    groups = [torch.tensor([4, 1, 0]), torch.tensor([2]), torch.tensor([7, 3])]
    streams = []
    for workers in ("0", "1", "2"):
        monkeypatch.setenv("ALR_DATA_WORKERS", workers)
        before = torch.get_rng_state()
        streams.append(list(encoded(data.train).stream(groups, seed)))
        assert torch.equal(torch.get_rng_state(), before)
    assert [batch.shape for batch in streams[0]] == [(3, 3, 32, 32), (1, 3, 32, 32), (2, 3, 32, 32)]
    assert streams[0][0].dtype == torch.float32
    for other in streams[1:]:
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(streams[0], other, strict=True))


def test_a_seed_gives_views_of_its_own_and_none_the_middles(data, monkeypatch):
    monkeypatch.setenv("ALR_DATA_WORKERS", "0")
    views = encoded(data.train)
    groups = [torch.arange(4), torch.tensor([3])]
    first, again, other, middle = (list(views.stream(groups, seed)) for seed in (1, 1, 2, None))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    assert torch.equal(first[0][3], first[1][0])  # in whichever batch an image is
    assert torch.equal(middle[0], views.batch(torch.arange(4)))


@pytest.mark.parametrize("shape", [(60, 60), (40, 90), (90, 40), (300, 20), (20, 300), (1, 1)])
def test_random_views_are_parts_within_the_bounds(shape):
    width, height = shape
    content = png(Image.fromarray(np.full((height, width, 3), 100, dtype=np.uint8)))
    seen = []
    original = Image.Image.resize

    def resize(self, size, resample, box):
        seen.append(box)
        return original(self, size, resample, box=box)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Image.Image, "resize", resize)
        for seed in range(300):
            view = read_random_view(content, 16, np.random.default_rng(seed))
            assert view.shape == (16, 16, 3)
            assert view.min() == view.max() == 100  # nothing from outside the image
    for left, upper, right, lower in seen:
        assert 0 <= left < right <= width
        assert 0 <= upper < lower <= height
    if shape == (60, 60):
        areas = np.array([(r - left) * (lower - u) / 3600 for left, u, r, lower in seen])
        aspects = np.array([(r - left) / (lower - u) for left, u, r, lower in seen])
        assert areas.min() < 0.15
        assert areas.max() > 0.9
        assert 0.45 < areas.mean() < 0.6
        assert 0.68 < aspects.min() < 0.85
        assert 1.2 < aspects.max() < 1.45


def test_half_of_the_views_are_mirrored():
    ramp = png(Image.fromarray(np.tile(np.arange(64, dtype=np.uint8)[None, :, None] * 4, (64, 1, 3))))
    views = [read_random_view(ramp, 8, np.random.default_rng(seed))[0, :, 0].astype(int) for seed in range(200)]
    mirrored = sum(view[0] > view[-1] for view in views)
    assert 70 < mirrored < 130


def test_a_broken_file_is_named(tmp_path, monkeypatch):
    folder = write_imagenet(tmp_path)
    broken = folder / "val" / "n01440764" / "n01440764_0.JPEG"
    broken.write_bytes(broken.read_bytes()[:200])
    data = load_dataset("imagenet", data_dir=folder, image_size=32)
    for workers in ("0", "2"):
        monkeypatch.setenv("ALR_DATA_WORKERS", workers)
        with pytest.raises(DataError, match=rf"^The image {broken} cannot be read \(.*\)\.$"):
            list(encoded(data.test).stream(list(torch.arange(12).split(4))))


def test_the_layout_of_the_competition_is_found(tmp_path):
    inner = tmp_path / "ILSVRC" / "Data" / "CLS-LOC"
    write_imagenet(inner, names=None)
    (tmp_path / "LOC_synset_mapping.txt").write_text("".join(f"{s} {w}\n" for s, w in SYNSETS.items()))
    assert load_dataset("imagenet", data_dir=tmp_path).classes[0] == "tench"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda folder: shutil.rmtree(folder / "val"),
            r"The data set imagenet is not in .*: there are no folders train/",
        ),
        (
            lambda folder: shutil.rmtree(folder / "val" / "n03126707"),
            r"val has no folder n03126707/, which train/ has\.$",
        ),
        (lambda folder: (folder / "val" / "n9").mkdir(), r"val has a folder n9/, which train/ has not\.$"),
        (lambda folder: (folder / "train" / "n9").mkdir(), r"train.n9 has no images in it\.$"),
        (
            lambda folder: [
                shutil.rmtree(folder / "val" / "n01440764"),
                (folder / "val" / "n02012849" / "n02012849_0.JPEG").rename(folder / "val" / "a.JPEG"),
            ],
            "its images must be sorted into a folder for each synset first",
        ),
        (
            lambda folder: (folder / "LOC_synset_mapping.txt").write_text("n01440764 tench\n"),
            r"LOC_synset_mapping.txt has no name for the synset n02012849\.$",
        ),
    ],
)
def test_what_is_wrong_with_the_folders_is_said(tmp_path, spoil, message):
    spoil(write_imagenet(tmp_path))
    with pytest.raises(DataError, match=message):
        load_dataset("imagenet", data_dir=tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="needs names of files that are any bytes")
def test_names_of_files_may_be_no_unicode(tmp_path, monkeypatch):
    monkeypatch.setenv("ALR_DATA_WORKERS", "0")
    write_imagenet(tmp_path)
    image = tmp_path / "val" / "n01440764" / "n01440764_0.JPEG"
    image.rename(image.with_name(os.fsdecode(b"\xff.JPEG")))
    data = load_dataset("imagenet", data_dir=tmp_path, image_size=32)
    assert encoded(data.test).batch(torch.arange(len(data.test))).shape == (12, 3, 32, 32)


def test_bad_numbers_are_named(folder, monkeypatch):
    monkeypatch.setenv("ALR_DATA_WORKERS", "many")
    with pytest.raises(DataError, match="ALR_DATA_WORKERS is 'many': allowed is a whole number of at least 0"):
        worker_count()
    with pytest.raises(DataError, match="image_size must be 1 or more, not 0"):
        load_dataset("imagenet", data_dir=folder, image_size=0)
