"""Images a second of the CIFAR pipeline (flip, pad and crop, normalise) beside a pipeline with Pillow, image by image.

Both start from the same uint8 images in memory, with the same batches, and end with a float32 tensor (N, 3, 32, 32).
The images are random noise: none of the operations looks at what they show. The two take turns in one process, eight
batches a turn.

    python benchmarks/data.py [--seconds 20] [--batch 128] [--threads 1] [--cpu-time] [--json]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageOps
from timing import hardware, ratios, take_turns
from torch import Tensor

from adaptive_labels.data.augment import random_crop, random_flip
from adaptive_labels.data.encoding import ImageEncoder, ImageTensors

SIZE, PADDING, IMAGES, BATCHES_A_TURN = 32, 4, 10_000, 8
OURS, PILLOW = "whole batches", "Pillow, image by image"


def batch_by_batch(encoded: ImageTensors, indices: Tensor, generator: torch.Generator) -> Tensor:
    return random_crop(random_flip(encoded.batch(indices), generator), PADDING, generator)


def image_by_image(arrays: np.ndarray, encoder: ImageEncoder, indices: list[int]) -> Tensor:
    """The usual transforms of a single image, then a batch of them; `arrays` is (N, H, W, 3)."""
    return torch.stack([one_image(arrays[i], encoder) for i in indices])


def one_image(array: np.ndarray, encoder: ImageEncoder, changed: bool = True) -> Tensor:
    image = Image.fromarray(array)
    if changed:
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        left, top = random.randint(0, 2 * PADDING), random.randint(0, 2 * PADDING)
        image = ImageOps.expand(image, PADDING).crop((left, top, left + SIZE, top + SIZE))
    pixels = np.asarray(image, dtype=np.float32) / 255
    pixels = (pixels - np.float32(encoder.mean)) / np.float32(encoder.std)
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true", help="count processor time, for a busy machine")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.cpu_time else time.perf_counter
    images = torch.randint(256, (IMAGES, 3, SIZE, SIZE), dtype=torch.uint8)
    arrays = np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy())
    encoder = ImageEncoder.fit(images)
    encoded, generator = encoder.encode(images), torch.Generator().manual_seed(0)
    torch.testing.assert_close(one_image(arrays[7], encoder, changed=False), encoded.batch(torch.tensor([7]))[0])

    def turn_of(pipeline: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        def turn() -> None:
            for indices in torch.randint(IMAGES, (BATCHES_A_TURN, options.batch)):
                pipeline(indices)

        return turn

    times = take_turns(
        {
            OURS: turn_of(lambda indices: batch_by_batch(encoded, indices, generator)),
            PILLOW: turn_of(lambda indices: image_by_image(arrays, encoder, indices.tolist())),
        },
        options.seconds,
        clock=clock,
    )
    speed = {name: BATCHES_A_TURN * options.batch / statistics.median(each) for name, each in times.items()}
    found = {"batch": options.batch, "images_per_second": speed, **ratios(times[PILLOW], times[OURS])}
    if options.json:
        print(json.dumps({"clock": clock.__name__, **hardware(), **found}, indent=2))
        return
    machine = f"torch {torch.__version__}, {options.threads} threads, {clock.__name__}"
    print(f"Batches of {options.batch}, 32×32 RGB; {machine}; {found['rounds']} rounds.")
    for name, each in speed.items():
        print(f"{name:<24} {each:10,.0f} images/s")
    print(f"{OURS} / {PILLOW}: {found['ratio']:.1f} times as fast [p20 {found['p20']:.1f}, p80 {found['p80']:.1f}]")


if __name__ == "__main__":
    main()
