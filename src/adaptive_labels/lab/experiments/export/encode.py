"""Inputs → what the exported network reads, by numpy alone.

    from encode import encode
    probabilities = session.run(None, encode(["a text", "another"]))[0]  # of onnxruntime

How inputs are read is in preprocessing.json beside this file. Run it as a program to check it against golden.json.
`alr export` copies this file as it is; `adaptive_labels.load` uses it, too.
"""

import json
import math
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

# What the hashes of n-grams are made of: part of every trained text model.
BASE = 0x9E3779B97F4A7C15
WORD_SALT, RUN_SALT, PIECE_SALT = 0x57A3_0000, 0x57A4_0000, 0x57A5_0000
WORD_BEGINS, WORD_ENDS = 0x110000, 0x110001  # the first two numbers beyond Unicode
UNSPACED_SCRIPTS = ((0x2E80, 0xA000), (0xF900, 0xFB00), (0x20000, 0x40000))  # ideographs and kana
MISSING = {"", "na", "n/a", "nan", "null", "none", "nil", "?", "-", ".", "#n/a"}  # how tables write "no value"
LINE = 32  # n-grams that the network reads together
FURTHEST = 10.0  # standard deviations that a number is from the mean at most


class Encoder:
    """Encodes inputs by the settings in a preprocessing.json: texts; dicts, one per row; images or their paths."""

    def __init__(self, stored: Mapping[str, Any], folder: Path) -> None:
        self.settings: Mapping[str, Any] = stored["settings"]
        self._read: Callable[[Sequence[Any]], Arrays] = getattr(self, f"_{stored['kind']}")
        self._places: dict[Any, int] = {}  # of the words, characters or n-grams that have a number
        if known := {"words": "words", "characters": "alphabet", "tfidf": "terms"}.get(stored["kind"]):
            self._places = {entry: place for place, entry in enumerate(self.settings[known])}
        if stored["kind"] == "tokens":
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._tokenizer.no_padding()
            self._tokenizer.enable_truncation(self.settings["max_tokens"])

    @classmethod
    def load(cls, folder: Path) -> "Encoder":
        """The encoder of an exported folder."""
        return cls(json.loads((folder / "preprocessing.json").read_text(encoding="utf-8")), folder)

    def __call__(self, inputs: Sequence[Any]) -> Arrays:
        """The arrays that the network reads, by the names of its inputs."""
        return self._read(inputs)

    def _clean(self, text: str) -> str:
        text = text[: self.settings.get("max_length", self.settings.get("length"))]
        return text.lower() if self.settings["lowercase"] else text

    def _features(self, text: str) -> list[int]:
        """The numbers of a text's n-grams: of words, of runs of words, of pieces of words."""
        own, found = self.settings, list[int]()
        words = split_words(self._clean(text))
        if own["words"]:
            runs = [hash_word(word) for word in words]
            found += runs
            for length in range(2, own["word_ngrams"] + 1):
                following = found[length - 1 : len(words)]
                runs = [(run * BASE + word) % 2**64 for run, word in zip(runs, following, strict=False)]
                found += [mix(run, RUN_SALT + length) for run in runs]
        if own["char_ngrams"]:
            for word in words:
                found += hash_pieces(word, *own["char_ngrams"])
        return [number % own["buckets"] for number in found]

    def _ngrams(self, texts: Sequence[str]) -> Arrays:
        return lines([self._features(text) for text in texts])

    def _tfidf(self, texts: Sequence[str]) -> Arrays:
        numbers, weights = [], []
        for text in texts:
            counts = Counter(self._places[one] for one in self._features(text) if one in self._places)
            weighed = [(1 + math.log(count)) * self.settings["idf"][place] for place, count in counts.items()]
            norm = math.sqrt(sum(weight**2 for weight in weighed))
            numbers.append(list(counts))
            weights.append([weight / norm for weight in weighed])
        return lines(numbers, weights)

    def _words(self, texts: Sequence[str]) -> Arrays:
        most = self.settings["max_words"]  # 0 is padding, 1 a word that is not known
        return padded([[self._places.get(w, -1) + 2 for w in split_words(self._clean(t))[:most]] for t in texts])

    def _characters(self, texts: Sequence[str]) -> Arrays:
        length = self.settings["length"]
        cut = [self._clean(text)[:length] for text in texts]  # small letters can be more than their capitals
        return padded([[self._places.get(c, -1) + 1 for c in reversed(text)] for text in cut], length)

    def _tokens(self, texts: Sequence[str]) -> Arrays:
        readable = [text.encode("utf-8", "replace").decode() for text in texts]  # a lone surrogate is no character
        return padded([encoded.ids for encoded in self._tokenizer.encode_batch(readable)])

    def _columns(self, rows: Sequence[Mapping[str, Any]]) -> Arrays:
        return {"features": np.array([list(self._row(row)) for row in rows], np.float32)}

    def _row(self, row: Mapping[str, Any]) -> Iterator[float]:
        for column in self.settings["columns"]:
            value = row.get(column["name"])
            cell = "" if value is None else str(value).strip()
            cell = "" if cell.casefold() in MISSING else cell
            if "categories" in column:
                yield from (float(cell == category) for category in column["categories"])
                continue
            number = (to_number(cell) - column["mean"]) / column["std"]
            yield 0.0 if math.isnan(number) else min(max(number, -FURTHEST), FURTHEST)
            if column["missing"]:
                yield float(math.isnan(number))

    def _images(self, images: Sequence[Any]) -> Arrays:
        return {"pixels": np.stack([read_image(one, self.settings) if is_path(one) else one for one in images])}


def split_words(text: str) -> list[str]:
    """Letters, marks and digits that stand together; every other visible character is a word by itself."""
    words, word = [], ""
    for character in text:
        role = role_of(character)
        if role == "part":
            word += character
            continue
        words += [word] if word else []
        word = ""
        words += [character] if role == "alone" else []
    return [*words, word] if word else words


@cache
def role_of(character: str) -> str:
    """Whether a character separates words, is part of one, or is one alone."""
    category = unicodedata.category(character)
    if category[0] == "Z" or category in ("Cc", "Cf"):
        return "separator"
    unspaced = any(low <= ord(character) < high for low, high in UNSPACED_SCRIPTS)
    return "part" if category[0] in "LMN" and not unspaced else "alone"


@lru_cache(maxsize=2**16)
def hash_word(word: str) -> int:
    """Σ_j c_j B^j of the code points c of a word, mixed; all modulo 2^64."""
    return mix(sum(ord(character) * power for character, power in zip(word, powers(len(word)), strict=True)), WORD_SALT)


@lru_cache(maxsize=2**16)
def hash_pieces(word: str, shortest: int, longest: int) -> tuple[int, ...]:
    """The hashes of the runs of characters of a word, its ends marked; a mark alone is none."""
    marked, by_place = [WORD_BEGINS, *map(ord, word), WORD_ENDS], powers(longest)
    return tuple(
        mix(
            sum(code * power for code, power in zip(marked[start : start + length], by_place, strict=False)), PIECE_SALT
        )
        for length in range(shortest, longest + 1)
        for start in range(len(marked) - length + 1)
        if length > 1 or 0 < start < len(marked) - 1
    )


@lru_cache(maxsize=2**12)
def powers(count: int) -> list[int]:
    """B^0 … B^(count − 1) modulo 2^64."""
    return [pow(BASE, place, 2**64) for place in range(count)]


def mix(number: int, salt: int) -> int:
    """Spread 64-bit hashes evenly (the finaliser of the SplitMix64 generator)."""
    number = (number + salt * BASE) % 2**64
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ number >> 27) * 0x94D049BB133111EB % 2**64
    return number ^ number >> 31


def lines(lists: Sequence[Sequence[int]], weights: Sequence[Sequence[float]] | None = None) -> Arrays:
    """Lists of numbers in lines of 32, filled up with -1; the first line of each list; their weights, if any."""
    ends = np.cumsum([0, *(-(-max(len(one), 1) // LINE) for one in lists)])
    ids, of_ids = np.full((ends[-1], LINE), -1, np.int64), np.zeros((ends[-1], LINE), np.float32)
    for place, (first, one) in enumerate(zip(ends * LINE, lists, strict=False)):
        ids.flat[first : first + len(one)] = one
        if weights is not None:
            of_ids.flat[first : first + len(one)] = weights[place]
    return {"ids": ids, "offsets": ends[:-1]} | ({} if weights is None else {"weights": of_ids})


def padded(lists: Sequence[Sequence[int]], length: int = 1) -> Arrays:
    """Lists of numbers padded with 0 to the longest, and how long each is; an empty one counts as one 0."""
    ids = np.zeros((len(lists), max([length, *map(len, lists)])), np.int64)
    for row, one in zip(ids, lists, strict=True):
        row[: len(one)] = one
    return {"ids": ids, "lengths": np.array([max(len(one), 1) for one in lists], np.int64)}


def to_number(text: str) -> float:
    """A cell as a number; NaN if it is none."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) and "_" not in text else math.nan  # in Python, 2_1 is 21


def is_path(image: object) -> bool:
    """Whether an image is given by its file; else it is an array (height, width, channels) of uint8."""
    return isinstance(image, str | Path)


def read_image(path: str | Path, settings: Mapping[str, Any]) -> NDArray[np.uint8]:
    """The middle of an image file, upright, on white, resized: (height, width, channels). It needs Pillow."""
    from PIL import Image, ImageOps

    (height, width), zoom = settings["size"], settings["zoom"]
    with Image.open(path) as file:
        file.draft(None, (round(4 * max(width, height) * zoom),) * 2)  # a large JPEG at a fraction of its size
        image = ImageOps.exif_transpose(file)
        if image.mode == "F" or image.mode.startswith("I"):  # 16 bits per pixel
            image = Image.fromarray(np.rint((np.asarray(image, np.float64) / 257).clip(0, 255)).astype(np.uint8))
        if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
            layers = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", layers.size, "white"), layers)
        image = image.convert("RGB")
    if image.size != (width, height) or zoom != 1:
        scale = min(image.width / width, image.height / height) / zoom
        left, upper = (
            max(0.0, (have - want * scale) / 2) for have, want in zip(image.size, (width, height), strict=True)
        )
        box = (left, upper, min(left + width * scale, image.width), min(upper + height * scale, image.height))
        image = image.resize((width, height), Image.Resampling.BILINEAR, box=box)
    pixels = np.asarray(image)
    return pixels if settings["channels"] == 3 else to_grey(pixels)


def to_grey(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """An image (height, width, 3) in grey, (height, width, 1)."""
    grey = pixels.astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)
    return np.rint(grey)[..., None].astype(np.uint8)


@lru_cache(maxsize=1)
def _own() -> Encoder:
    return Encoder.load(Path(__file__).parent)


def encode(inputs: Sequence[Any]) -> Arrays:
    """The arrays that the network beside this file reads, by the names of its inputs."""
    return _own()(inputs)


if __name__ == "__main__":
    file = Path(__file__).parent / "golden.json"
    if not file.exists():
        sys.exit("there is no golden.json: arrays of pixels go in as they are")
    golden = json.loads(file.read_text(encoding="utf-8"))
    found = encode(golden["inputs"])
    wrong = [name for name, values in golden["arrays"].items() if not np.allclose(found[name], values, atol=1e-6)]
    sys.exit(f"differs from golden.json: {', '.join(wrong)}" if wrong else 0)
