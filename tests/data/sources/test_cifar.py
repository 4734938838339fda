import pickle

import numpy as np
import pytest
import torch

from adaptive_labels.lab.data import DataError, load_dataset
from adaptive_labels.lab.data.archives import ARCHIVE_SUFFIXES
from adaptive_labels.lab.data.sources.cifar import CIFAR10, CIFAR100, read_pickle
from adaptive_labels.lab.data.splits import assemble
from cifar_files import BOTH, CLASSES, make_cifar, write_archive, write_folder

by_name = pytest.mark.parametrize("cifar", BOTH, ids=lambda cifar: cifar.name)


@by_name
def test_what_is_read_is_what_the_files_hold(cifar, tmp_path):
    small, files, splits = make_cifar(cifar)
    write_folder(small.folder, files, tmp_path)
    dataset = assemble(small.read(tmp_path))
    assert (dataset.name, dataset.kind) == (cifar.name, "image")
    assert list(dataset.classes) == CLASSES[dataset.name]
    images, labels = splits["test"]
    assert torch.equal(dataset.test.inputs, torch.from_numpy(images))
    assert dataset.test.labels.tolist() == labels.tolist()
    assert dataset.test.sources[1] == f"test/{cifar.test}_1.png"
    images, labels = splits["train"]
    found = torch.cat([dataset.train.inputs, dataset.validation.inputs]).numpy()
    found_labels = torch.cat([dataset.train.labels, dataset.validation.labels]).tolist()
    assert {(image.tobytes(), label) for image, label in zip(found, found_labels, strict=True)} == {
        (image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True)
    }
    # A tenth of each class is set aside.
    assert dataset.validation.labels.bincount().tolist() == (np.bincount(labels) // 10).tolist()
    assert not any("also occur" in note for note in dataset.notes)


def test_the_planes_of_an_image_are_red_green_and_blue(tmp_path):
    small, files, _ = make_cifar(CIFAR100)
    folder = write_folder(small.folder, files, tmp_path)
    rows = read_pickle(files["test"], "test")[b"data"]
    assert rows.shape == (12, 3072)
    first = assemble(small.read(folder)).test.inputs[0]
    # By the official description: 1024 red values, row by row, then green, then blue.
    assert first[0, 0, 5] == rows[0][5]
    assert first[1, 2, 3] == rows[0][1024 + 2 * 32 + 3]
    assert first[2, 31, 31] == rows[0][3071]


@by_name
def test_folder_and_every_archive_give_the_same_wherever_they_are_named(cifar, tmp_path):
    small, files, _ = make_cifar(cifar)
    folder = write_folder(small.folder, files, tmp_path / "folder")
    places = [tmp_path / "folder", folder]
    for number, suffix in enumerate(ARCHIVE_SUFFIXES):
        archive = write_archive(small.folder, files, tmp_path / str(number) / (small.archive + suffix))
        places += [archive.parent, archive]
    assert len(places) == 12
    assert len({assemble(small.read(place)).fingerprint for place in places}) == 1


@by_name
def test_a_file_that_is_not_the_published_one_is_refused(cifar, tmp_path):
    small, files, _ = make_cifar(cifar)
    folder = write_folder(small.folder, files, tmp_path)
    (folder / cifar.test).write_bytes(b"")
    expected = small.md5[cifar.test]
    with pytest.raises(DataError) as refusal:
        assemble(small.read(tmp_path))
    assert str(refusal.value) == (
        f"{folder / cifar.test} is not the published file of {small.name}: its MD5 is "
        f"d41d8cd98f00b204e9800998ecf8427e, expected is {expected}."
    )


def test_the_real_sums_hold_for_users(tmp_path):
    """Nothing that a user can give leaves them out."""
    _, files, _ = make_cifar(CIFAR100)
    write_folder(CIFAR100.folder, files, tmp_path)
    with pytest.raises(DataError, match="expected is 16019d7e3df5f24257cddd939b257f8d"):
        load_dataset("cifar100", data_dir=tmp_path)


def test_a_changed_file_is_not_even_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (tmp_path.joinpath("sprung").touch, ())

    small, files, _ = make_cifar(CIFAR10)
    folder = write_folder(small.folder, files, tmp_path)
    (folder / "batches.meta").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match="is not the published file"):
        assemble(small.read(tmp_path))
    with pytest.raises(DataError, match=r"meta cannot be opened: it asks for \w+\.\w+, which is no part of an array"):
        read_pickle(pickle.dumps(Trap()), "meta")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"no pickle", b"\x80\x02cos\nsystem\n(U\x04trueR.", b"\x80\x02c_codecs\nencode\n.", b"cbuiltins\neval\n."],
)
def test_pickles_that_are_broken_or_ask_for_more_are_refused(content):
    with pytest.raises(DataError, match=r"^train cannot be opened: "):
        read_pickle(content, "train")


@by_name
def test_missing_files_are_said_in_one_sentence_with_the_way_to_get_them(cifar, tmp_path):
    name, archive = cifar.name, cifar.archive
    with pytest.raises(DataError) as refusal:
        load_dataset(name, data_dir=tmp_path)
    assert str(refusal.value) == (
        f"The data set {name} is neither as {cifar.folder}/ nor as {archive}.tar.gz in {tmp_path}; name the folder "
        f"that has it with --data-dir, or have it fetched from https://www.cs.toronto.edu/~kriz/{archive}.tar.gz by "
        f"`alr data prepare {name} --data-dir DIR`."
    )
    small, files, _ = make_cifar(cifar)
    folder = write_folder(small.folder, files, tmp_path)
    (folder / cifar.meta).unlink()
    with pytest.raises(DataError, match=rf"\({folder} lacks {cifar.meta}\)"):
        assemble(small.read(tmp_path))
    with pytest.raises(DataError, match="in the current folder;"):
        assemble(small.read())


def test_archives_that_cannot_be_used(tmp_path):
    small, files, _ = make_cifar(CIFAR100)
    whole = write_archive(small.folder, files, tmp_path / "cifar-100-python.tar.gz")
    whole.write_bytes(whole.read_bytes()[:2000])
    with pytest.raises(DataError, match=f"The archive {whole} cannot be read: "):
        assemble(small.read(tmp_path))
    write_archive(small.folder, {name: files[name] for name in ("train", "meta")}, whole)
    with pytest.raises(DataError, match=f"The archive {whole} has no cifar-100-python/test"):
        assemble(small.read(tmp_path))
    write_archive("other", files, whole)
    with pytest.raises(DataError, match=f"The archive {whole} has no cifar-100-python/train"):
        assemble(small.read(tmp_path))
