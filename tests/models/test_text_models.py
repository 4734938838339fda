"""The models that read texts in order: against slow references of their equations, and their published sizes."""

import math

import pytest
import torch
from torch.nn import functional as F

from adaptive_labels.lab.models import create_model
from adaptive_labels.lab.models.charcnn import CharCNN
from adaptive_labels.lab.models.textrnn import TextRNN
from adaptive_labels.lab.models.transformer import Transformer, places

WORDS = torch.tensor([[3, 9, 4, 7], [5, 2, 0, 0], [8, 0, 0, 0]])
LENGTHS = torch.tensor([4, 2, 1])

BUILDERS = {
    "rcnn": lambda: TextRNN(3, vocabulary=20, dim=4, context=3, hidden=5),
    "rcnn of LSTM": lambda: TextRNN(3, vocabulary=20, dim=4, context=3, hidden=5, cell="lstm"),
    "transformer": lambda: Transformer(3, vocabulary=20, width=8, layers=2, heads=2),
    "charcnn": lambda: CharCNN(3, vocabulary=20, width=4, length=123),
}


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def started(model):
    """The model with every parameter drawn, those that start at zero as well; the padding's embedding stays 0."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
            if name == "embedding.weight":
                parameter[0] = 0
    return model.eval()


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("more", [1, 7])
def test_padding_never_changes_a_prediction(name, more):
    model = started(BUILDERS[name]())
    wider = F.pad(WORDS, (0, more))
    expected = torch.cat([model((WORDS[i : i + 1, :n], LENGTHS[i : i + 1])) for i, n in enumerate(LENGTHS.tolist())])
    assert torch.allclose(model((WORDS, LENGTHS)), expected, atol=1e-5)
    assert torch.allclose(model((wider, LENGTHS)), expected, atol=1e-5)
    assert not torch.allclose(expected[0], expected[1], atol=1e-3)  # it does read


@pytest.mark.parametrize("name", [name for name in BUILDERS if name != "charcnn"])
def test_padding_gets_no_gradient(name):
    model = started(BUILDERS[name]()).train()
    model((WORDS, LENGTHS)).square().sum().backward()
    assert model.embedding.weight.grad[0].abs().sum() == 0
    assert model.embedding.weight.grad[WORDS[WORDS > 0].unique()].abs().sum(1).min() > 0


@pytest.mark.parametrize("name", BUILDERS)
def test_the_order_of_words_matters(name):
    model = started(BUILDERS[name]())
    turned = WORDS[:1].flip(1)
    assert not torch.allclose(model((WORDS[:1], LENGTHS[:1])), model((turned, LENGTHS[:1])), atol=1e-4)


def test_rcnn_is_its_equations():
    model = started(TextRNN(3, vocabulary=20, dim=4, context=3, hidden=5))
    cell = dict(model.recurrent.named_parameters())

    def step(state, word, side):
        pre = cell[f"weight_hh_l0{side}"] @ state + cell[f"bias_hh_l0{side}"]
        return torch.tanh(pre + cell[f"weight_ih_l0{side}"] @ word + cell[f"bias_ih_l0{side}"])

    logits = []
    for row, length in zip(WORDS, LENGTHS.tolist(), strict=True):
        e = [model.embedding.weight[number] for number in row[:length]]
        left, right = [model.edges[0]], [model.edges[1]]
        for i in range(1, length):
            left.append(step(left[-1], e[i - 1], ""))
            right.insert(0, step(right[0], e[length - i], "_reverse"))
        traits = [
            torch.tanh(model.traits(torch.cat([lc, word, rc]))) for lc, word, rc in zip(left, e, right, strict=True)
        ]
        logits.append(model.head(torch.stack(traits).amax(0)))
    assert torch.allclose(model((WORDS, LENGTHS)), torch.stack(logits), atol=1e-6)


def test_transformer_layer_is_its_equations():
    """One layer with two heads, written out: attention, add and norm, feed-forward, add and norm."""
    model = started(Transformer(3, vocabulary=20, width=8, layers=1, heads=2))
    layer = model.encoder.layers[0]
    attention = layer.self_attn
    for row, length in zip(WORDS, LENGTHS.tolist(), strict=True):
        x = model.embedding.weight[row[:length]] * math.sqrt(8) + places(length, 8)
        q, k, v = (x @ attention.in_proj_weight.T + attention.in_proj_bias).split(8, dim=1)
        heads = []
        for head in range(2):
            part = slice(4 * head, 4 * head + 4)
            scores = q[:, part] @ k[:, part].T / math.sqrt(4)
            heads.append(scores.softmax(1) @ v[:, part])
        x = layer.norm1(x + attention.out_proj(torch.cat(heads, dim=1)))
        x = layer.norm2(x + layer.linear2(layer.linear1(x).relu()))
        expected = model.head(x.mean(0))
        assert torch.allclose(model((row[None, :length], torch.tensor([length])))[0], expected, atol=1e-5)


def test_places_are_sines_and_cosines():
    table = places(50, 6)
    for place in (0, 1, 49):
        for j in range(3):
            angle = place / 10_000 ** (2 * j / 6)
            assert math.isclose(table[place, 2 * j], math.sin(angle), abs_tol=1e-5)
            assert math.isclose(table[place, 2 * j + 1], math.cos(angle), abs_tol=1e-5)


def test_charcnn_reads_one_hot_vectors_and_nothing_for_number_0():
    model = started(CharCNN(3, vocabulary=5, width=4, length=123))
    characters = torch.tensor([[4, 0, 1]])
    seen = []
    model.convolutions[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model((characters, torch.tensor([3])))
    expected = torch.zeros(1, 4, 123)
    expected[0, 3, 0] = expected[0, 0, 2] = 1
    assert torch.equal(seen[0], expected)


def linear(inputs, outputs):
    return inputs * outputs + outputs


@pytest.mark.parametrize(("size", "features", "hidden"), [("small", 256, 1024), ("large", 1024, 2048)])
def test_charcnn_has_the_published_sizes(size, features, hidden):
    with torch.device("meta"):
        model = create_model("charcnn", 4, size=size)
    assert model.hidden[0].in_features == 34 * features  # (1014 − 96) / 27 places: 8,704 for the small one
    convolutions = linear(7 * 70, features) + linear(7 * features, features) + 4 * linear(3 * features, features)
    assert count(model) == convolutions + linear(34 * features, hidden) + linear(hidden, hidden) + linear(hidden, 4)


def test_charcnn_starts_with_the_published_deviations():
    torch.manual_seed(0)
    assert abs(CharCNN(4).hidden[0].weight.std() - 0.05) < 1e-3
    assert abs(CharCNN(4, size="large", length=123).hidden[1].weight.std() - 0.02) < 1e-3


def test_transformer_has_the_published_sizes():
    with torch.device("meta"):
        model = create_model("transformer", 4)
    assert count(model.encoder) == 6 * 3_152_384  # 4 × 512 × 513 + 2 × 512 × 2048 + 2048 + 512 + 4 × 512 a layer
    assert (model.embedding.embedding_dim, model.encoder.layers[0].self_attn.num_heads) == (512, 8)


def test_textrnn_has_the_published_sizes():
    with torch.device("meta"):
        model = create_model("textrnn", 4, vocabulary=1000)
    contexts = 2 * (50 * 50 + 50 * 50 + 2 * 50)
    assert count(model) == 1000 * 50 + contexts + 2 * 50 + linear(150, 100) + linear(100, 4)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("textrnn", {"cell": "x"}, "cell is 'x'; it must be one of rnn, lstm"),
        ("textrnn", {"hidden": 0}, "hidden is 0; it must be at least 1"),
        ("transformer", {"width": 10, "heads": 4}, "width is 10; it must be even and a multiple of heads, which is 4"),
        ("transformer", {"dropout": 1.0}, "dropout is 1.0; it must be at least 0 and below 1"),
        ("charcnn", {"size": "huge"}, "size is 'huge'; it must be one of small, large"),
        ("charcnn", {"length": 122}, "length is 122; the convolutions need at least 123 characters"),
    ],
)
def test_impossible_options_are_refused_by_name(name, options, said):
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        create_model(name, 4, **options)
