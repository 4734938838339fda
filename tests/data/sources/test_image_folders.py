import numpy as np
import pytest
import torch
from PIL import Image

from adaptive_labels.lab.data import DataError, load_dataset
from adaptive_labels.lab.data.dataset import ImageFiles
from adaptive_labels.lab.data.pixels import is_image, read_middle
from adaptive_labels.lab.data.sources import images
from adaptive_labels.lab.data.sources.images import decode_files

RED, GREEN, WHITE = (255, 0, 0), (0, 255, 0), (255, 255, 255)


def noise_image(seed: int, size=(12, 12), mode="RGB") -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def make_folder(root, classes=("cat", "dog"), count=5, **options):
    for k, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            noise_image(hash_of(root, k, i), **options).save(root / name / f"{i}.png")
    return root


def hash_of(root, k, i) -> int:
    return sum(map(ord, root.name)) * 1000 + 100 * k + i


def error_of(path, **options) -> str:
    with pytest.raises(DataError) as caught:
        load_dataset(str(path), **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def decoded(tmp_path, image: Image.Image, name: str, size=(12, 12), **save) -> np.ndarray:
    image.save(tmp_path / name, **save)
    assert is_image(name)
    return read_middle((tmp_path / name).read_bytes(), size)


def test_a_folder_of_classes_without_splits(tmp_path):
    root = make_folder(tmp_path / "pets", count=10)
    dataset = load_dataset(str(root))
    assert (dataset.name, dataset.kind, dataset.classes) == ("pets", "image", ("cat", "dog"))
    assert [len(split) for _, split in dataset.splits()] == [14, 2, 4]
    assert dataset.notes[0] == "Images are RGB, 12×12 pixels as in the files."
    assert "20% of all (4 images) is set aside" in dataset.notes[1]
    for _, split in dataset.splits():
        for image, label, source in zip(split.inputs, split.labels.tolist(), split.sources, strict=True):
            expected = np.asarray(Image.open(root / source)).transpose(2, 0, 1)
            assert np.array_equal(image.numpy(), expected)
            assert source.startswith(dataset.classes[label] + "/")


@pytest.mark.parametrize("validation", ["val", "valid", "validation", "dev"])
def test_split_folders(tmp_path, validation):
    make_folder(tmp_path / "train")
    make_folder(tmp_path / validation, count=2)
    make_folder(tmp_path / "test", classes=("dog",), count=3)
    (tmp_path / "extra" / "cat").mkdir(parents=True)
    dataset = load_dataset(str(tmp_path))
    assert [len(split) for _, split in dataset.splits()] == [10, 4, 3]
    assert dataset.test.labels.tolist() == [1, 1, 1]
    assert dataset.notes[1:] == ("Folders beside train/ that are no split were ignored: extra.",)


def test_file_names_do_not_decide_the_split(tmp_path):
    one = make_folder(tmp_path / "pets", count=10)
    other = tmp_path / "renamed"
    for i, path in enumerate(sorted(one.rglob("*.png"), reverse=True)):
        (other / path.parent.name).mkdir(parents=True, exist_ok=True)
        (other / path.parent.name / f"{i:03}.png").write_bytes(path.read_bytes())
    assert load_dataset(str(one)).fingerprint == load_dataset(str(other)).fingerprint


def test_the_split_is_the_same_at_another_size(tmp_path):
    root = str(make_folder(tmp_path / "pets", count=10))
    small = load_dataset(root, image_size=6)
    assert small.train.inputs.shape[1:] == (3, 6, 6)
    assert small.notes[0] == "Images are RGB, 6×6 pixels as asked for."
    assert small.test.sources == load_dataset(root).test.sources


@pytest.mark.parametrize("suffix", ["png", "bmp", "gif", "webp", "jpg", "JPEG", "tif", "TIFF", "ppm", "tga"])
def test_every_format_is_read(tmp_path, suffix):
    options = {"lossless": True} if suffix == "webp" else {}
    pixels = decoded(tmp_path, Image.new("RGB", (12, 12), RED), f"x.{suffix}", **options)
    assert pixels.shape == (12, 12, 3)
    assert np.abs(pixels.astype(int) - RED).max() <= 2


def test_transparent_pixels_are_put_on_white(tmp_path):
    rgba = Image.new("RGBA", (12, 12), (*RED, 255))
    rgba.paste((0, 0, 0, 0), (0, 0, 6, 12))
    pixels = decoded(tmp_path, rgba, "rgba.png")
    assert (pixels[:, :6] == WHITE).all()
    assert (pixels[:, 6:] == RED).all()
    grey = Image.new("LA", (12, 12), (0, 0))
    assert (decoded(tmp_path, grey, "la.png") == 255).all()
    palette = Image.new("P", (12, 12), 1)
    palette.putpalette([*GREEN, *RED])
    palette.paste(0, (0, 0, 6, 12))
    assert (decoded(tmp_path, palette, "plain.png")[:, :6] == GREEN).all()
    pixels = decoded(tmp_path, palette, "p.png", transparency=0)
    assert (pixels[:, :6] == WHITE).all()
    assert (pixels[:, 6:] == RED).all()


def test_16_bit_floating_point_1_bit_and_cmyk(tmp_path):
    levels = np.linspace(0, 65535, 144).reshape(12, 12).astype(np.uint16)
    pixels = decoded(tmp_path, Image.fromarray(levels), "deep.png")
    assert np.abs(pixels[..., 0] - levels / 257).max() <= 0.5
    pixels = decoded(tmp_path, Image.fromarray((levels / 65535).astype(np.float32)), "floating.tiff")
    assert np.abs(pixels[..., 0] - levels / 257).max() <= 0.5
    assert (decoded(tmp_path, Image.new("1", (12, 12), 1), "bit.png") == 255).all()
    cmyk = Image.new("CMYK", (12, 12), (0, 255, 255, 0))
    assert np.abs(decoded(tmp_path, cmyk, "cmyk.jpg").astype(int) - RED).max() <= 3


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_undone(tmp_path, orientation):
    upright = noise_image(0, size=(10, 6))
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }  # fmt: skip
    stored = upright.transpose(undo[orientation]) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name in ("turned.png", "other.png"):
        stored.save(tmp_path / name, exif=exif)
    pixels, _, _ = decode_files([tmp_path / "turned.png", tmp_path / "other.png"], upright.size)
    assert np.array_equal(pixels[0], np.asarray(upright).transpose(2, 0, 1))


def test_mixed_sizes_are_cut_in_the_middle_and_keep_their_aspect(tmp_path):
    wide = Image.new("RGB", (400, 100), RED)
    wide.paste(GREEN, (150, 0, 250, 100))  # the middle square
    wide.save(tmp_path / "wide.png")
    Image.new("RGB", (50, 70), WHITE).save(tmp_path / "tall.png")
    pixels, _, _ = decode_files([tmp_path / "wide.png", tmp_path / "tall.png"], (32, 32))
    assert pixels.shape == (2, 3, 32, 32)
    middle = pixels[0].transpose(1, 2, 0)[:, 4:-4]  # at the edge the filter sees what lies beside the square
    assert (middle == GREEN).all()
    assert (pixels[1] == 255).all()


def test_the_part_has_the_aspect_of_the_target(tmp_path):
    columns = np.tile(np.arange(80, dtype=np.uint8)[None, :, None], (40, 1, 3))
    narrow = decoded(tmp_path, Image.fromarray(columns), "x.png", (20, 40))
    assert np.array_equal(narrow, columns[:, 30:50])


def test_the_part_that_is_cut_out_ends_within_the_image(tmp_path):
    """Rounding puts its edge at −3.6e-15 for this size, which Pillow refuses."""
    assert decoded(tmp_path, Image.new("RGB", (58, 60), RED), "x.png", (224, 224)).shape == (224, 224, 3)


def test_a_large_photograph_is_resized_like_pillow_resizes_the_whole_of_it(tmp_path):
    blocks = np.random.default_rng(0).integers(40, 216, (40, 60, 3), dtype=np.uint8)
    photo = Image.fromarray(blocks.repeat(15, axis=0).repeat(15, axis=1))  # 600 × 900
    pixels = decoded(tmp_path, photo, "photo.jpg", (32, 32), quality=95, subsampling=0)
    expected = np.asarray(photo.resize((32, 32), Image.Resampling.BILINEAR, box=(150, 0, 750, 600)))
    assert np.abs(pixels.astype(int) - expected).mean() <= 3


@pytest.mark.parametrize(
    ("size", "shape", "note"),
    [
        ((20, 10), (10, 20), "20×10 pixels as in the files"),
        ((70, 70), (70, 70), "70×70 pixels as in the files"),
        ((150, 120), (64, 64), "resized from 150×120 to 64×64 pixels"),
    ],
)
def test_the_size_is_chosen_by_the_data(tmp_path, size, shape, note):
    root = make_folder(tmp_path / "pets", size=size)
    dataset = load_dataset(str(root))
    assert dataset.train.inputs.shape[2:] == shape
    assert note in dataset.notes[0]
    noise_image(0, size=(30, 40)).save(root / "cat" / "another.png")  # most of them decide
    side = min(64, *size)
    assert load_dataset(str(root)).notes[0] == f"Images are RGB, resized from 2 sizes to {side}×{side} pixels."
    assert load_dataset(str(root), largest_size=224).train.inputs.shape[2:] == (min(size),) * 2


def test_more_images_than_the_memory_should_hold_stay_files(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MOST_BYTES", 10_000)
    make_folder(tmp_path / "pets" / "train", classes=("Cat", "ant", "dog"), size=(30, 20))
    make_folder(tmp_path / "pets" / "val", classes=("ant",), size=(20, 30))
    dataset = load_dataset(str(tmp_path / "pets"))
    assert isinstance(dataset.train.inputs, ImageFiles)
    assert (dataset.classes, dataset.train.inputs.size) == (("Cat", "ant", "dog"), 20)
    for _, split in dataset.splits():
        for index, (label, source) in enumerate(zip(split.labels.tolist(), split.sources, strict=True)):
            assert f"/{dataset.classes[label]}/" in source
            assert split.inputs.path(index) == tmp_path / "pets" / source
    message = "too many images to be decoded in advance; skip_unreadable does not apply."
    assert error_of(tmp_path / "pets", skip_unreadable=True).endswith(message)


def test_greyscale_only_if_all_are(tmp_path):
    root = make_folder(tmp_path / "pets", mode="L")
    noise_image(99, mode="L").convert("RGB").save(root / "cat" / "grey_as_rgb.png")
    dataset = load_dataset(str(root))
    assert dataset.train.inputs.shape[1] == 1
    assert dataset.notes[0].startswith("Images are greyscale")
    noise_image(100).save(root / "cat" / "colour.png")
    assert load_dataset(str(root)).train.inputs.shape[1] == 3


def test_other_files_are_ignored_and_counted(tmp_path):
    root = make_folder(tmp_path / "pets")
    for name in ("readme.txt", "cat/Thumbs.db", "dog/.DS_Store"):
        (root / name).write_bytes(b"x")
    (root / "cat" / "._0.png").write_bytes(b"x")
    (root / ".cache").mkdir()
    (root / "bird").mkdir()
    dataset = load_dataset(str(root))
    assert dataset.classes == ("cat", "dog")
    assert "Ignored 3 files of other kinds than images." in dataset.notes
    assert "Class folders without images were ignored: bird." in dataset.notes


@pytest.mark.parametrize("content", [b"", b"no image at all", None])
def test_an_unreadable_image_is_named_or_skipped_when_asked(tmp_path, content):
    root = make_folder(tmp_path / "pets", size=(40, 40))
    bad = root / "cat" / "bad.png"
    bad.write_bytes((root / "cat" / "0.png").read_bytes()[:2000] if content is None else content)
    assert error_of(root).startswith(f"The image {bad} cannot be read (")
    dataset = load_dataset(str(root), skip_unreadable=True)
    assert "Skipped 1 unreadable image: cat/bad.png." in dataset.notes
    assert sum(len(split) for _, split in dataset.splits()) == 10
    for _, split in dataset.splits():
        for image, source in zip(split.inputs, split.sources, strict=True):
            assert np.array_equal(image.numpy(), np.asarray(Image.open(root / source)).transpose(2, 0, 1))


def test_duplicates_across_splits_are_counted_by_pixels(tmp_path):
    make_folder(tmp_path / "train")
    make_folder(tmp_path / "val", count=1)
    make_folder(tmp_path / "test", count=2)
    Image.open(tmp_path / "train" / "cat" / "0.png").save(tmp_path / "test" / "dog" / "copy.bmp")
    assert "1 of 5 test images also occurs in train." in load_dataset(str(tmp_path)).notes


def test_bad_folders_each_with_a_sentence(tmp_path):
    one = make_folder(tmp_path / "one", classes=("cat",))
    assert error_of(one) == "one has one class only ('cat'); a classifier needs at least two."
    flat = tmp_path / "flat"
    flat.mkdir()
    noise_image(0).save(flat / "a.png")
    assert "holds images but no class folders" in error_of(flat)
    split = tmp_path / "split"
    make_folder(split / "train")
    make_folder(split / "test", classes=("cat", "fox"), count=2)
    assert error_of(split) == f"The class 'fox' in the test split of {split} (2 images) is not in train."
    no_train = tmp_path / "no_train"
    make_folder(no_train / "test")
    make_folder(no_train / "val")
    assert error_of(no_train) == f"{no_train} has a folder val/ but no folder train/."
    make_folder(no_train / "train")
    make_folder(no_train / "dev")
    assert error_of(no_train) == f"{no_train} has more than one validation split (dev, val); keep one of them."
    rare = make_folder(tmp_path / "rare")
    make_folder(rare, classes=("fox",), count=1)
    assert error_of(rare).startswith("The class 'fox' has one example only (fox/0.png);")
    lost = make_folder(tmp_path / "lost")
    (lost / "fox").mkdir()
    (lost / "fox" / "bad.png").write_bytes(b"x")
    message = error_of(lost, skip_unreadable=True)
    assert message == f"None of the training images of the class 'fox' in {lost} can be read."


def test_tables_beside_class_folders_are_left_alone_and_the_other_way_round(tmp_path):
    root = make_folder(tmp_path / "pets")
    (root / "train.csv").write_text("text,label\n" + "x,a\ny,b\n" * 4)
    assert load_dataset(str(root)).kind == "image"
    (tmp_path / "texts" / "figures").mkdir(parents=True)
    noise_image(0).save(tmp_path / "texts" / "figures" / "plot.png")
    (tmp_path / "texts" / "train.csv").write_text("text,label\n" + "".join(f"x {n},{'ab'[n % 2]}\n" for n in range(8)))
    assert load_dataset(str(tmp_path / "texts")).kind == "text"


def test_options_without_meaning_are_refused(tmp_path):
    root = make_folder(tmp_path / "pets")
    assert error_of(root, label_column="x") == f"The image folder {root} takes no label_column (given: 'x')."
    assert error_of(root, image_size=0) == "image_size must be 1 or more, not 0."
    (tmp_path / "f.csv").write_text("text,label\n")
    assert "takes no image_size (given: 8)" in error_of(tmp_path / "f.csv", image_size=8)
    assert "takes no skip_unreadable (given: True)" in error_of(tmp_path / "f.csv", skip_unreadable=True)
    assert "takes no drop_unlabelled (given: True)" in error_of(root, drop_unlabelled=True)
    assert "The data set digits takes no text_column" in error_of("digits", text_column="text")


def test_many_files_keep_their_order_through_the_pool(tmp_path):
    files = []
    for i in range(150):
        files.append(tmp_path / f"{i}.png")
        Image.new("L", (200, 200), i).save(files[-1])
    pixels, digests, bad = decode_files(files, (32, 32), threads=4)
    assert torch.from_numpy(pixels)[:, 0, 0, 0].tolist() == sorted(digests) == list(range(150))
    assert not bad


def test_pictures_of_trains_are_a_class(tmp_path):
    root = make_folder(tmp_path / "photos", classes=("bus", "train", "tram"))
    assert load_dataset(str(root)).classes == ("bus", "train", "tram")
