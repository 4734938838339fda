"""A small ImageNet: real JPEG and PNG files in the usual folders."""

from pathlib import Path

import numpy as np
from PIL import Image

SYNSETS = {
    "n02123045": "tabby, tabby cat",
    "n01440764": "tench, Tinca tinca",
    "n03126707": "crane",
    "n02012849": "crane",
}
COLOURS = {
    "n02123045": (200, 60, 60),
    "n01440764": (60, 200, 60),
    "n03126707": (60, 60, 200),
    "n02012849": (200, 200, 60),
}


def write_imagenet(folder: Path, train: int = 12, val: int = 3, names: str | None = "mapping") -> Path:
    """Images of many sizes, each class in a colour of its own; every third is a PNG, one is grey."""
    draw = np.random.default_rng(0)
    for split, count in (("train", train), ("val", val)):
        for synset in SYNSETS:
            (folder / split / synset).mkdir(parents=True)
            for number in range(count):
                width, height = draw.integers(40, 90, 2)
                pixels = draw.integers(-40, 40, (height, width, 3)) + np.array(COLOURS[synset])
                image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
                name = f"{synset}_{number}.{'PNG' if number % 3 == 2 else 'JPEG'}"
                image.save(folder / split / synset / name)
    Image.new("L", (50, 40), 120).save(folder / "train" / "n02123045" / "n02123045_0.JPEG")
    if names == "mapping":
        lines = [f"{synset} {words}" for synset, words in SYNSETS.items()]
        (folder / "LOC_synset_mapping.txt").write_text("\n".join(lines) + "\n")
    return folder
