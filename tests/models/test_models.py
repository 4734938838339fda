"""Every model by its name, then what is particular to each."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from adaptive_labels.lab.analysis.format import short_count
from adaptive_labels.lab.data.encoders.ngrams import HashedNgrams
from adaptive_labels.lab.models import MODELS, create_model, register_model

SMALL = {
    "textrnn": {"vocabulary": 500, "dim": 6, "context": 5, "hidden": 7},
    "transformer": {"vocabulary": 500, "width": 8, "layers": 2, "heads": 2, "dropout": 0.0},
    "charcnn": {"vocabulary": 500, "width": 8, "length": 150, "dropout": 0.0},
    "linear": {"features": 500},
    "linear-pixels": {"side": 8},
    "linear-columns": {"in_features": 12},
    "fasttext": {"buckets": 500, "dim": 8, "dropout": 0.0},
    "minilm": {"in_features": 12, "hidden": 16, "dropout": 0.0},
    "efficientnet-lite0": {"in_features": 12, "hidden": 16, "dropout": 0.0},
    "mlp": {"in_features": 12, "hidden": [64]},
    "airbench": {"width": 16},
    "preact-resnet18": {"width": 4},
    "wide-resnet-28-10": {"width": 4},
    "resnet32": {"width": 4},
    "resnet50": {"width": 4},
    "resnet101": {"width": 4},
    "resnet152": {"width": 4},
}

DEEP = ("resnet101", "resnet152")


def inputs_for(name, examples=6):
    generator = torch.Generator().manual_seed(0)
    reads = MODELS[name].reads
    if reads in ("words", "characters"):
        lengths = torch.tensor([9, 1, 4, 7, 2, 8])[:examples]
        numbers = torch.randint(1, 500, (examples, 9), generator=generator)
        return numbers * (torch.arange(9) < lengths[:, None]), lengths
    if "in_features" in MODELS[name].options:
        return torch.randn(examples, SMALL[name]["in_features"], generator=generator)
    if reads == "pixels":
        return torch.randn(examples, 3, 16, 16, generator=generator)
    bags = torch.randint(500, (examples * 3,), generator=generator), torch.arange(0, examples * 3, 3)
    return (*bags, 2 + torch.rand(examples * 3, generator=generator)) if reads == "tfidf" else bags


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_there_are_models():
    assert set(SMALL) <= set(MODELS)
    images = [entry for entry in MODELS.values() if entry.kind == "image"]
    assert all(re.search(r"; [\d.]+[KM] parameters for (10|1,000) classes$", entry.description) for entry in images)


@pytest.mark.parametrize("name", MODELS)
class TestEveryModel:
    def build(self, name):
        torch.manual_seed(1)
        return create_model(name, num_classes=5, **SMALL[name])

    def test_gives_finite_logits_and_gradients_everywhere(self, name):
        model = self.build(name)
        logits = model(inputs_for(name))
        assert logits.shape == (6, 5)
        F.cross_entropy(logits, torch.arange(6) % 5).backward()
        for parameter_name, parameter in model.named_parameters():
            assert parameter.grad is not None, parameter_name
            assert torch.isfinite(parameter.grad).all(), parameter_name
            assert parameter.grad.abs().sum() > 0, parameter_name

    def test_an_example_is_classified_alone_as_among_others(self, name):
        model = self.build(name).eval()
        inputs = inputs_for(name)
        if isinstance(inputs, torch.Tensor):
            single = inputs[2:3]
        elif MODELS[name].reads in ("ngrams", "tfidf"):
            single = (inputs[0][6:9], torch.tensor([0]), *(weights[6:9] for weights in inputs[2:]))
        else:
            single = inputs[0][2:3, :4], inputs[1][2:3]  # without the padding
        assert torch.allclose(model(single), model(inputs)[2:3], atol=1e-6)

    def test_state_survives_a_copy_and_the_seed_decides_the_start(self, name):
        model, again = self.build(name).eval(), self.build(name)
        first = model.state_dict()
        assert all(torch.equal(tensor, first[key]) for key, tensor in again.state_dict().items())
        other = create_model(name, num_classes=5, **SMALL[name]).eval()
        other.load_state_dict(first)
        inputs = inputs_for(name)
        assert torch.equal(model(inputs), other(inputs))


# The others are deeper or wider relatives of these.
@pytest.mark.parametrize("name", sorted({*MODELS} - {"efficientnet-lite0", "wide-resnet-28-10", *DEEP}))
def test_can_fit_a_few_examples(name):
    torch.manual_seed(1)
    model = create_model(name, num_classes=5, **SMALL[name])
    inputs, target = inputs_for(name), torch.arange(6) % 5
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), target)
        loss.backward()
        optimizer.step()
        if float(loss.detach()) < 0.1:
            return
    pytest.fail(f"the loss ends at {float(loss.detach()):.2g}")


@pytest.mark.parametrize(
    ("name", "classes", "parameters"),
    [
        ("preact-resnet18", 10, 11_172_170),
        ("preact-resnet18", 100, 11_218_340),
        ("wide-resnet-28-10", 10, 36_479_194),
        ("wide-resnet-28-10", 100, 36_536_884),
        ("airbench", 10, 1_160_088),
        ("resnet32", 10, 464_154),
        ("resnet50", 1000, 25_557_032),
        ("resnet101", 1000, 44_549_160),
        ("resnet152", 1000, 60_192_808),
    ],
)
def test_image_networks_have_the_published_number_of_parameters(name, classes, parameters):
    with torch.device("meta"):
        assert count(create_model(name, num_classes=classes)) == parameters
    if f"for {classes:,} classes" in MODELS[name].description:  # `alr list models` says it, too
        assert f"{short_count(parameters)} parameters for {classes:,} classes" in MODELS[name].description


@pytest.mark.parametrize("width", [4, 16])
def test_preact_resnet_has_the_parameters_one_counts_by_hand(width):
    stages = 36 + (2 * 9 + 3 * 4 * 9 + 2) * (1 + 4 + 16)  # convolutions and shortcuts, times w²
    norms = 2 * (4 + 7 + 14 + 28 + 8)  # times w
    expected = stages * width**2 + norms * width + 9 * width + 8 * width * 10 + 10
    assert count(create_model(f"preact-resnet18-w{width}", 10, in_channels=1)) == expected


def test_a_stem_with_a_stride_halves_the_images_and_keeps_the_weights() -> None:
    whole, halved = create_model("preact-resnet18-w4", 10), create_model("preact-resnet18-w4", 10, stem_stride=2)
    images = torch.randn(1, 3, 32, 32)
    assert whole.blocks(whole.stem(images)).shape == (1, 32, 4, 4)
    assert halved.blocks(halved.stem(images)).shape == (1, 32, 2, 2)
    assert {n: p.shape for n, p in whole.named_parameters()} == {n: p.shape for n, p in halved.named_parameters()}


@pytest.mark.parametrize("units", [0, 5])
def test_fasttext_is_the_mean_of_its_features_and_a_linear_layer_perhaps_beside_a_hidden_one(units):
    model = create_model("fasttext", num_classes=3, buckets=50, dim=4, hidden=units, dropout=0.0)
    logits = model((torch.tensor([1, 1, 7, 9]), torch.tensor([0, 3])))
    table = model.embedding.weight
    features = average = torch.stack([(2 * table[1] + table[7]) / 3, table[9]])
    if units:
        hidden = (average @ model.hidden.weight.T + model.hidden.bias).clamp_min(0)
        features = torch.cat([average, hidden], 1)
    assert torch.allclose(logits, features @ model.head.weight.T + model.head.bias, atol=1e-6)


def test_fasttext_reads_what_the_encoder_writes_and_empty_texts():
    assert HashedNgrams().buckets == MODELS["fasttext"].options["buckets"]
    encoded = HashedNgrams(buckets=500).encode(["", "one", " ", "two three", ""])
    model = create_model("fasttext", num_classes=3, buckets=500)
    logits = model(encoded.batch(torch.arange(5)))
    assert torch.isfinite(logits).all()
    assert torch.equal(logits[[0, 2, 4]], model.head.bias.detach().expand(3, -1))
    only_empty = model(encoded.batch(torch.tensor([0, 2])))
    only_empty.sum().backward()
    assert torch.isfinite(model.embedding.weight.grad).all()


def test_fasttext_sparse_and_dense_gradients_agree():
    gradients = []
    for sparse in (False, True):
        torch.manual_seed(0)
        model = create_model("fasttext", num_classes=3, buckets=50, dim=4, dropout=0.0, sparse=sparse)
        model((torch.tensor([1, 1, 7, 9]), torch.tensor([0, 3]))).square().sum().backward()
        gradients.append(model.embedding.weight.grad)
    assert gradients[1].is_sparse
    assert torch.allclose(gradients[0], gradients[1].to_dense())


def test_fasttext_drops_in_training_only():
    model = create_model("fasttext", num_classes=3, buckets=50, dim=64, dropout=0.5)
    inputs = (torch.tensor([1, 1, 7, 9]), torch.tensor([0, 3]))
    assert not torch.equal(model(inputs), model(inputs))
    model.eval()
    assert torch.equal(model(inputs), model(inputs))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "fastext",
            {},
            r"there is no model 'fastext'; there are airbench, .*fasttext, .*; did you mean fasttext\?",
        ),
        ("fasttext-w16", {}, r"there is no model 'fasttext-w16'; there are .*; did you mean fasttext\?"),
        (
            "fasttext",
            {"dims": 3},
            r"model 'fasttext' has no option 'dims'; it has buckets, dim, .*; did you mean dim\?",
        ),
        ("fasttext", {"buckets": 0}, "buckets is 0 and dim is 64; both must be at least 1"),
        ("fasttext", {"hidden": -1}, "hidden is -1; it must be at least 0"),
        ("fasttext", {"dropout": 1.0}, "dropout is 1.0; it must be at least 0 and below 1"),
        ("preact-resnet18-w0", {}, "width is 0; it must be at least 1"),
        ("preact-resnet18", {"width": 2.5}, "width is 2.5; it must be a whole number"),
        ("mlp", {"hidden": [0, 16]}, "hidden is 0; it must be at least 1"),
        ("mlp", {"hidden": 16.5}, "hidden is 16.5; it must be a whole number"),
        ("fasttext", {"sparse": "no"}, "option 'sparse' is 'no'; it must be true or false"),
    ],
)
def test_bad_names_and_options_are_named(name, options, message):
    with pytest.raises(ValueError, match=message):
        create_model(name, 4, **options)
    with pytest.raises(ValueError, match="num_classes is 1; it must be at least 2"):
        create_model("fasttext", 1)


def test_a_model_of_ones_own_joins_by_name():
    try:

        @register_model("constant", "image", "the same logits for all")
        class Constant(nn.Module):
            def __init__(self, num_classes: int, width: int = 2) -> None:
                super().__init__()
                self.width = width
                self.logits = nn.Parameter(torch.zeros(num_classes))

        assert create_model("constant-w5", 3).width == 5
        assert MODELS["constant"].options == {"width": 2}
        register_model("constant", "image", "again")(Constant)  # as a notebook's cell does that is run twice
        assert MODELS["constant"].description == "again"
        with pytest.raises(ValueError, match="model 'resnet32' is built in: register your own under another name"):
            register_model("resnet32", "image", "another")(Constant)
    finally:
        del MODELS["constant"]
    with pytest.raises(ValueError, match="kind is 'sound'; it must be 'text', 'image' or 'row'"):
        register_model("x", "sound", "")
