"""Encoders of Transformers from a folder: small random ones, saved and read as real ones are."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from adaptive_labels.errors import UserError
from adaptive_labels.lab.data import encoder_from_dict, encoder_to_dict
from adaptive_labels.lab.data.encoders.image_embeddings import HubImageEmbeddings
from adaptive_labels.lab.data.encoders.text_embeddings import HubTextEmbeddings
from adaptive_labels.lab.models import create_model
from adaptive_labels.lab.models.pretrained import hub

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "bread", "soup", "cheese", "ball", "goal", "song", "guitar"]
WORDS += ["we", "like"]


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def bert(transformers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=40, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]")
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def vit(transformers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vit")
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    transformers.ViTModel(transformers.ViTConfig(image_size=48, patch_size=16, **sizes)).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.5] * 3, "image_std": [0.25] * 3}))
    return folder


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Transformers' own


def test_texts_become_the_mean_of_their_tokens(transformers, bert):
    texts = ["we like bread", "goal", ""]
    encoder = HubTextEmbeddings.fit(texts, name=str(bert))
    assert encoder.max_tokens == 40
    model = transformers.AutoModel.from_pretrained(bert).eval()
    with torch.no_grad():
        alone = model(torch.tensor([[12, 13, 5]])).last_hidden_state.mean(1)
    found = encoder.encode(texts).batch(torch.arange(3))
    assert torch.allclose(found[:1], alone, atol=2e-3)
    again = encoder_from_dict(encoder_to_dict(encoder)).encode(texts)
    assert torch.equal(again.batch(torch.arange(3)), found)
    with pytest.raises(ValueError, match="max_tokens is 41; it must be from 3 to 40"):
        HubTextEmbeddings.fit(texts, name=str(bert), max_tokens=41)


def test_images_are_normalised_as_the_folder_says(transformers, vit):
    images = torch.randint(256, (2, 3, 20, 20), dtype=torch.uint8)
    encoder = HubImageEmbeddings.fit(images, name=str(vit))
    assert (encoder.input_size, encoder.mean, encoder.sizes["in_features"]) == (48, (0.5,) * 3, 12)
    model = transformers.AutoModel.from_pretrained(vit).eval()
    given = F.interpolate((images / 255 - 0.5) / 0.25, (48, 48), mode="bicubic", align_corners=False)
    with torch.no_grad():
        expected = model(pixel_values=given).last_hidden_state.mean(1)
    assert torch.allclose(encoder.encode(images).batch(torch.arange(2)), expected, atol=5e-3)
    with pytest.raises(ValueError, match="input_size is 64; this network reads 48 only"):
        HubImageEmbeddings.fit(images, name=str(vit), input_size=64)


@pytest.mark.parametrize("tune", [False, True])
def test_it_is_trained_and_predicts(alr, texts, bert, tune):
    options = ["--model", f"hf:{bert}", "--set", f"model.options.tune={str(tune).lower()}", "--set", "threads=1"]
    ended = alr("train", texts, *options, "--method", "baseline", "--epochs", "2", "--out", "runs", "--json")
    assert ended.status == 0, ended.err
    result = json.loads(ended.out)
    assert "is not known here: if it has seen this data, the figures flatter it" in result["pretraining"][0]
    folder = Path(result["folder"])
    config = json.loads((folder / "config.json").read_text())
    assert config["model"]["weights_hash"] == hub.text_backbone(str(bert)).weights
    assert alr("predict", folder, "we like soup").status == 0
    pytest.importorskip("onnxscript", reason="the extra `export` is not installed")
    ended = alr("export", folder, "-o", "exported")  # checks itself on real inputs
    assert ended.status == 0, ended.err
    assert alr("predict", "exported", "soup " * 50).status == 0  # cut to the 40 tokens that it reads


def test_images_are_tuned(alr, images, vit):
    options = ["--model", f"hf:{vit}", "--set", "model.options.tune=true", "--set", "threads=1", "--epochs", "1"]
    ended = alr("train", images, *options, "--method", "baseline", "--out", "runs")
    assert ended.status == 0, ended.err


def test_the_encoder_has_a_smaller_rate(bert):
    from adaptive_labels.lab.objectives import Supervised

    model = create_model(f"hf:{bert}", 3, in_features=16, tune=True, encoder_lr=0.1)
    groups = Supervised(model, torch.nn.CrossEntropyLoss()).parameter_groups(lr=0.5, weight_decay=0.0)
    rates = {parameter: group["lr"] for group in groups for parameter in group["params"]}
    assert {rates[parameter] for parameter in model.encoder.parameters()} == {0.05}
    assert {rates[parameter] for parameter in model.head.parameters()} == {0.5}
    assert all(parameter.requires_grad for parameter in model.encoder.parameters())
    assert not any(parameter.requires_grad for parameter in hub.text_backbone(str(bert)).load().parameters())


def test_what_cannot_be_read_is_said(transformers, bert, tmp_path, monkeypatch):
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled/config.json").write_text((bert / "config.json").read_text())
    (tmp_path / "pickled/pytorch_model.bin").write_bytes(b"anything")
    with pytest.raises(UserError, match="has no weights as safetensors, and no other kind of file is opened"):
        create_model(f"hf:{tmp_path / 'pickled'}", 3)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text('{"model_type": "made-up", "auto_map": {"AutoConfig": "code.Config"}}')
    (broken / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (broken / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match="cannot be read as an encoder of Transformers"):
        create_model(f"hf:{broken}", 3)
    assert not (tmp_path / "ran").exists()

    def no_network(*_: object, **__: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    with pytest.raises(UserError, match=r"is no folder here, and cannot be downloaded .*: download config.json"):
        create_model("hf:nobody/nothing", 3)
