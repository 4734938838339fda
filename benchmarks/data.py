"""Images and texts prepared for a network per second, compared with the usual libraries.

    python benchmarks/data.py [--seconds 60] [--batch 128] [--threads 1]

Images: flip, pad and crop, normalise; from the same uint8 images in memory to a float32 tensor (N, 3, 32, 32). They are
random noise: none of the operations looks at what they show. Texts: turned into the numbers of their hashed words and
pieces of words, beside scikit-learn's hashing of the same pieces, if it is installed.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from adaptive_labels.lab.data.augment import random_crop, random_flip
from adaptive_labels.lab.data.encoders.images import ImageEncoder, ImageTensors
from adaptive_labels.lab.data.encoders.ngrams import HashedNgrams
from measure import Step, described, make_parser, measure, peak_of_all, ratio_row, turns

SIZE, PADDING, IMAGES, BATCHES_PER_TURN = 32, 4, 10_000, 8
OURS, PILLOW = "whole batches", "Pillow, image by image"
ENCODER, VECTORIZER = "HashedNgrams", "scikit-learn's HashingVectorizer"
IMAGE_AIM = 1 / 10
WORDS = 2_000  # of the made-up language
BUCKETS = 2**15


def bench_data(
    seconds: float = 40.0, *, batch: int = 128, images: int = IMAGES, texts: int = 5_000, cpu_time: bool = False
) -> dict[str, Any]:
    """Measure images and texts: one row per pipeline, with its time as a multiple of another's, round by round."""
    clock = time.process_time if cpu_time else time.perf_counter
    kinds: dict[str, tuple[int, dict[str, Step]]] = {
        "images, 32×32 RGB": (BATCHES_PER_TURN * batch, image_pipelines(images, batch)),
        "names of 1 to 3 words": (texts, text_pipelines(made_up_texts(texts, 1, 3), pieces=True)),
        "texts of 40 to 120 words": (texts, text_pipelines(made_up_texts(texts, 40, 120), pieces=False)),
    }
    rows = []
    for kind, (count, pipelines) in kinds.items():
        times = turns(pipelines, seconds / len(kinds), warm_up=1, clock=clock)
        ours, *others = times
        for name in times:
            beside = others[0] if name == ours and others else None
            row = ratio_row(times, name, beside, IMAGE_AIM if name == OURS else None)
            rate = {"examples": count, "examples_per_second": count / row["seconds"]}
            row |= {"kind": kind, "pipeline": name, **rate, "peak_bytes": peak_of_all(pipelines[name])}
            rows.append(row)
    unit = "a turn; times as multiples, round by round"
    return described(rows, unit=unit, clock=clock.__name__, group="kind", name="pipeline")


def image_pipelines(images: int, batch: int) -> dict[str, Step]:
    """The CIFAR pipeline and Pillow's, each a turn of eight batches."""
    raw = torch.randint(256, (images, 3, SIZE, SIZE), dtype=torch.uint8)
    arrays = np.ascontiguousarray(raw.permute(0, 2, 3, 1).numpy())
    encoder = ImageEncoder.fit(raw)
    encoded, generator = encoder.encode(raw), torch.Generator().manual_seed(0)
    assert isinstance(encoded, ImageTensors)

    def turn_of(pipeline: Callable[[Tensor], Tensor]) -> Step:
        def turn() -> None:
            for indices in torch.randint(images, (BATCHES_PER_TURN, batch)):
                pipeline(indices)

        return turn

    return {
        OURS: turn_of(lambda chosen: random_crop(random_flip(encoded.batch(chosen), generator), PADDING, generator)),
        PILLOW: turn_of(lambda chosen: torch.stack([one_image(arrays[i], encoder) for i in chosen.tolist()])),
    }


def one_image(array: NDArray[np.uint8], encoder: ImageEncoder, changed: bool = True) -> Tensor:
    """The usual transforms of one image (H, W, 3); without the random ones if not ``changed``."""
    image = Image.fromarray(array)
    if changed:
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        left, top = random.randint(0, 2 * PADDING), random.randint(0, 2 * PADDING)
        image = ImageOps.expand(image, PADDING).crop((left, top, left + SIZE, top + SIZE))
    mean, std = np.array(encoder.mean, dtype=np.float32), np.array(encoder.std, dtype=np.float32)
    pixels = (np.asarray(image, dtype=np.float32) / 255 - mean) / std
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def made_up_texts(count: int, fewest: int, most: int) -> list[str]:
    """Texts of random words of 2 to 9 letters, always the same.

    >>> made_up_texts(2, 1, 2) == made_up_texts(2, 1, 2), {len(text.split()) for text in made_up_texts(50, 2, 3)}
    (True, {2, 3})
    """
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyzäéø", k=draw.randint(2, 9))) for _ in range(WORDS)]
    return [" ".join(draw.choices(words, k=draw.randint(fewest, most))) for _ in range(count)]


def text_pipelines(texts: list[str], pieces: bool) -> dict[str, Step]:
    """The project's encoder, and scikit-learn's nearest relative: pieces of words, or words and pairs of words."""
    ngrams: dict[str, Any] = {"char_ngrams": (1, 4)} if pieces else {"char_ngrams": None}
    encoder = HashedNgrams(word_ngrams=1 if pieces else 2, buckets=BUCKETS, **ngrams)
    found: dict[str, Step] = {ENCODER: lambda: encoder.encode(texts)}
    try:
        from sklearn.feature_extraction.text import HashingVectorizer
    except ImportError:
        return found
    kind = {"analyzer": "char_wb", "ngram_range": (1, 4)} if pieces else {"analyzer": "word", "ngram_range": (1, 2)}
    vectorizer = HashingVectorizer(n_features=BUCKETS, **kind)
    found[VECTORIZER] = lambda: vectorizer.transform(texts)
    return found


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--batch", type=int, default=128, help="images per batch")
    parser.add_argument("--images", type=int, default=IMAGES, help="images in memory")
    parser.add_argument("--texts", type=int, default=5_000, help="texts that are encoded at once")
    measure(bench_data, parser.parse_args())


if __name__ == "__main__":
    main()
