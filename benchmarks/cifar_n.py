"""CIFAR with the labels that people gave, as a folder of images: train/ as they labelled it, test/ as it is.

python benchmarks/cifar_n.py cifar100n:10000 --data DIR --out FOLDER [--test 5000]

The sets and DIR are those of `benchmarks/label_issues.py`. Then `alr compare FOLDER` trains on noisy labels and tests
on clean ones; `alr suspects FOLDER` lists images whose label looks wrong. CIFAR-N is for non-commercial use.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from label_issues import cifar_images, cifar_labels


def main() -> None:
    """Write the images of both splits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--test", type=int, default=5_000, help="so many of the first test images")
    given = parser.parse_args()
    kind, _, count = given.set.partition(":")
    data_set = kind.partition("-")[0].removesuffix("n")
    images, clean = cifar_images(data_set, "train", given.data)
    labels, true = cifar_labels(kind, given.data)
    assert (clean == true).all(), "the images are in another order"
    test_images, test_labels = cifar_images(data_set, "test", given.data)
    for split, pictures, classes in (
        ("train", images[: int(count)], labels),
        ("test", test_images[: given.test], test_labels),
    ):
        for number, (picture, label) in enumerate(zip(pictures, classes, strict=False)):
            folder = given.out / split / f"{label:02d}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.ascontiguousarray(picture.transpose(1, 2, 0))).save(folder / f"{number:05d}.png")


if __name__ == "__main__":
    main()
