"""Image encoding and augmentation against slow loops."""

import numpy as np
import pytest
import torch

from adaptive_labels.lab.data.augment import alternating_flip, random_crop, random_cutout, random_flip
from adaptive_labels.lab.data.encoders.images import ImageEncoder


def images(examples=20, channels=3, height=6, width=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (examples, channels, height, width), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("channels", [1, 3])
def test_fit_finds_mean_and_standard_deviation(channels):
    pixels = images(channels=channels)
    encoder = ImageEncoder.fit(pixels)
    as_numbers = pixels.numpy() / 255
    assert np.allclose(encoder.mean, as_numbers.mean((0, 2, 3)))
    assert np.allclose(encoder.std, as_numbers.std((0, 2, 3)))
    assert (encoder.size, encoder.channels) == ((6, 5), channels)


def test_batch_normalises_the_images_asked_for():
    pixels = images()
    encoder = ImageEncoder.fit(pixels)
    encoded = encoder.encode(pixels)
    assert len(encoded) == 20
    everything = encoded.batch(torch.arange(20))
    assert everything.dtype == torch.float32
    assert torch.allclose(everything.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(everything.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5)
    chosen = torch.tensor([7, 7, 0])
    assert torch.equal(encoded.batch(chosen), everything[chosen])
    assert pixels.dtype == torch.uint8
    assert torch.equal(pixels, images())


def test_images_of_one_colour_stay_finite():
    pixels = torch.full((3, 1, 4, 4), 90, dtype=torch.uint8)
    encoder = ImageEncoder.fit(pixels)
    assert encoder.std == (1.0,)
    assert torch.allclose(encoder.encode(pixels).batch(torch.arange(3)), torch.zeros(3, 1, 4, 4), atol=1e-6)


def test_other_images_are_refused():
    encoder = ImageEncoder.fit(images())
    with pytest.raises(ValueError, match=r"images has shape \(20, 1, 6, 5\) .* must be \(N, 3, 6, 5\) of type"):
        encoder.encode(images(channels=1))
    with pytest.raises(ValueError, match=r"images has .* type torch.float32"):
        encoder.encode(images().float())
    with pytest.raises(ValueError, match=r"images has shape \(0, 3, 6, 5\) .* must be \(N, C, H, W\), not empty"):
        ImageEncoder.fit(images()[:0])


def test_flip_mirrors_about_half_and_keeps_the_rest():
    pixels = images(examples=400).float()
    flipped = random_flip(pixels, torch.Generator().manual_seed(1))
    same = (flipped == pixels).flatten(1).all(1)
    mirrored = (flipped == pixels.flip(-1)).flatten(1).all(1)
    assert torch.equal(same, ~mirrored)
    assert 160 < int(mirrored.sum()) < 240


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("padding", [0, 1, 4])
def test_crop_is_a_window_of_the_padded_image(padding, dtype):
    pixels = images(examples=300).to(dtype)
    before = pixels.clone()
    cropped = random_crop(pixels, padding, torch.Generator().manual_seed(2))
    assert cropped.shape == pixels.shape
    assert cropped.dtype == dtype
    assert torch.equal(pixels, before)
    places = set()
    for image, crop in zip(pixels, cropped, strict=True):
        padded = np.pad(image.numpy(), ((0, 0), (padding, padding), (padding, padding)))
        found = [
            (row, column)
            for row in range(2 * padding + 1)
            for column in range(2 * padding + 1)
            if (padded[:, row : row + 6, column : column + 5] == crop.numpy()).all()
        ]
        assert found
        places.add(found[0])
    assert len(places) == (2 * padding + 1) ** 2 if padding < 4 else len(places) > 60


def test_draws_and_values_stay_those_of_earlier_versions():
    # Runs are told apart by their seeds: what a seed draws is part of what a run is.
    pixels = torch.arange(2 * 1 * 2 * 3, dtype=torch.float32).view(2, 1, 2, 3)
    flipped = random_flip(pixels, torch.Generator().manual_seed(0))
    assert flipped.tolist() == [[[[2, 1, 0], [5, 4, 3]]], [[[6, 7, 8], [9, 10, 11]]]]
    cropped = random_crop(pixels, 1, torch.Generator().manual_seed(3))
    assert cropped.tolist() == [[[[0, 1, 2], [3, 4, 5]]], [[[0, 9, 10], [0, 0, 0]]]]


def test_the_generator_alone_decides_whatever_the_layout_in_memory():
    pixels = images().float()
    other_layout = pixels.to(memory_format=torch.channels_last)
    for change in (random_flip, lambda batch, generator: random_crop(batch, 2, generator)):
        first, again = (change(batch, torch.Generator().manual_seed(5)) for batch in (pixels, other_layout))
        assert torch.equal(first, again)
        assert not torch.equal(first, change(pixels, torch.Generator().manual_seed(6)))


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"images has shape \(3, 6, 5\); it must be \(N, C, H, W\)"):
        random_flip(images()[0])
    with pytest.raises(ValueError, match="padding is -1; it must be at least 0"):
        random_crop(images(), -1)


def test_alternating_flip_mirrors_each_image_in_every_other_epoch():
    pixels = images()
    first = torch.rand(20, generator=torch.Generator().manual_seed(1)) < 0.5
    assert 0 < first.sum() < 20
    seen = [alternating_flip(pixels, first, epoch) for epoch in (1, 2, 3, 4)]
    for number in range(20):
        plain, mirrored = pixels[number], pixels[number].flip(-1)
        expected = [mirrored, plain] if first[number] else [plain, mirrored]
        assert all(torch.equal(view[number], expected[place % 2]) for place, view in enumerate(seen))


def test_reflected_crops_hold_the_image_mirrored_at_its_edge():
    pixels = torch.arange(4 * 30.0).view(4, 1, 6, 5)
    padded = torch.nn.functional.pad(pixels, (2, 2, 2, 2), mode="reflect")
    crops = random_crop(pixels, 2, torch.Generator().manual_seed(0), reflect=True)
    for image, crop in zip(padded, crops, strict=True):
        assert any(torch.equal(image[:, y : y + 6, x : x + 5], crop) for y in range(5) for x in range(5))


def test_cutout_blanks_one_square_in_each_image():
    pixels = images(examples=50).float() + 1
    cut = random_cutout(pixels, 2, torch.Generator().manual_seed(0))
    blank = (cut == 0).all(1)  # (N, H, W)
    assert (blank.sum((1, 2)) == 4).all()
    assert torch.equal(cut[:, 0][~blank], pixels[:, 0][~blank])
    corners = {tuple(spot[0].tolist()) for spot in (mask.nonzero() for mask in blank)}
    assert len(corners) > 10
    for mask in blank:
        rows, columns = mask.nonzero().T
        assert rows.max() - rows.min() == columns.max() - columns.min() == 1
    with pytest.raises(ValueError, match="size is 6; for images of 5 pixels it must be from 0 to 5"):
        random_cutout(pixels, 6)
