"""Inputs that were mistaken, kept small."""

import base64
import io
import json

import torch
from PIL import Image

from adaptive_labels.lab.data import Dataset, Examples
from adaptive_labels.lab.experiments.mistakes import LARGEST_FILE, example_mistakes, thumbnail


def dataset(inputs: list[str] | torch.Tensor, labels: list[int], classes: int) -> Dataset:
    test = Examples(inputs, torch.tensor(labels))
    kind = "image" if isinstance(inputs, torch.Tensor) else "text"
    return Dataset("d", kind, tuple("abcdefghij"[:classes]), test, test, test, (), "f")


def test_the_most_frequent_pairs_and_the_surest_inputs_come_first() -> None:
    logits = torch.tensor([[0, 2.0, 0], [0, 9.0, 0], [0, 5.0, 0], [0, 3.0, 0], [0, 0, 1.0], [7.0, 0, 0], [0, 1.0, 0]])
    labels = [0, 0, 0, 0, 0, 0, 2]
    kept = example_mistakes(dataset([f"text {i}" for i in range(7)], labels, 3), logits)
    assert (kept["kind"], kept["split"]) == ("text", "test")
    first, *others = kept["pairs"]
    assert (first["true"], first["predicted"], first["count"], first["of"]) == ("a", "b", 4, 6)
    assert [example["text"] for example in first["examples"]] == ["text 1", "text 2", "text 3"]
    assert first["examples"][1]["confidence"] == round(float(logits[2].softmax(0).max()), 4)
    assert [(pair["true"], pair["predicted"], pair["count"]) for pair in others] == [("a", "c", 1), ("c", "b", 1)]


def test_long_texts_are_cut_and_right_predictions_leave_nothing() -> None:
    kept = example_mistakes(dataset(["x" * 5000], [0], 2), torch.tensor([[0.0, 1.0]]))
    assert kept["pairs"][0]["examples"][0]["text"] == "x" * 199 + "…"
    assert example_mistakes(dataset(["x"], [1], 2), torch.tensor([[0.0, 1.0]]))["pairs"] == []


def test_images_become_small_png_files_and_the_whole_stays_small() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (300, 3, 64, 64), generator=generator, dtype=torch.uint8)  # noise does not compress
    labels = [i % 10 for i in range(300)]
    logits = torch.randn(300, 10, generator=generator)
    kept = example_mistakes(dataset(images, labels, 10), logits)
    assert 10 < len(kept["pairs"]) < 40
    assert len(json.dumps(kept, indent=2)) < LARGEST_FILE + 1000
    picture = Image.open(io.BytesIO(base64.b64decode(kept["pairs"][0]["examples"][0]["png"])))
    assert (picture.format, picture.size, picture.mode) == ("PNG", (32, 32), "RGB")


def test_small_and_grey_images_keep_their_pixels() -> None:
    image = torch.arange(64, dtype=torch.uint8).view(1, 8, 8)
    picture = Image.open(io.BytesIO(thumbnail(image)))
    assert (picture.size, picture.mode) == ((8, 8), "L")
    assert list(picture.tobytes()) == list(range(64))
