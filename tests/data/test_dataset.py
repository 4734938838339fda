import torch

from adaptive_labels.lab.data import Examples
from adaptive_labels.lab.data.dataset import fingerprint


def texts(*inputs: str, labels: list[int] | None = None) -> Examples:
    return Examples(list(inputs), torch.tensor(labels if labels is not None else [0] * len(inputs)))


def test_subset_takes_every_field_in_the_order_asked_for():
    examples = Examples(
        ["a", "b", "c"], torch.tensor([0, 1, 2]), true_labels=torch.tensor([2, 1, 0]), sources=["x:1", "x:2", "x:3"]
    )
    picked = examples.subset(torch.tensor([2, 0]))
    assert picked.inputs == ["c", "a"]
    assert picked.labels.tolist() == [2, 0]
    assert picked.true_labels is not None
    assert picked.true_labels.tolist() == [0, 2]
    assert picked.sources == ["x:3", "x:1"]
    assert len(picked) == 2


def test_subset_of_images_and_empty_subset():
    images = torch.arange(3 * 4, dtype=torch.uint8).reshape(3, 1, 2, 2)
    examples = Examples(images, torch.tensor([0, 1, 0]))
    assert torch.equal(examples.subset(torch.tensor([1])).inputs, images[1:2])
    assert len(examples.subset(torch.tensor([], dtype=torch.int64))) == 0


def test_fingerprint_sees_every_part_of_the_content():
    def of(classes=("a", "b"), train=("ab", "c"), labels=(0, 1), name="train"):
        return fingerprint(classes, [(name, texts(*train, labels=list(labels)))])

    prints = [of(), of(classes=("a", "c")), of(train=("a", "bc")), of(labels=(1, 0)), of(name="test")]
    assert len(set(prints)) == len(prints)
    assert of() == of()
    assert len(of()) == 64


def test_fingerprint_of_images_sees_pixels_and_shape():
    def of(images):
        return fingerprint(("a",), [("train", Examples(images, torch.zeros(len(images), dtype=torch.int64)))])

    images = torch.arange(8, dtype=torch.uint8).reshape(2, 1, 2, 2)
    changed = images.clone()
    changed[1, 0, 0, 0] += 1
    assert len({of(images), of(changed), of(images.reshape(2, 1, 4, 1)), of(images.reshape(2, 4, 1, 1))}) == 4
    # The same values in another memory layout are the same content.
    assert of(images.transpose(2, 3).contiguous().transpose(2, 3)) == of(images)
