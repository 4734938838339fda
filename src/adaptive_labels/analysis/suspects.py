"""Training examples whose label looks wrong, as `alr suspects RUN -o FILE` keeps them.

The file is JSON: an object with the keys of `Suspects`, ``format`` and ``version``. Nothing of it goes into the run's
folder, because finished runs never change; it names the run and the data's fingerprint instead.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from adaptive_labels.files import read_json
from adaptive_labels.runs import RunError, write_json

FORMAT, VERSION = "adaptive-labels suspects", 1


@dataclass(frozen=True)
class Suspect:
    """One training example.

    Attributes:
        rank: 1 is the most suspicious.
        index: its place in the training split.
        source: the file, and for tables the line, it came from, or None where the data has none.
        text: its text, or None for images.
        png: a small picture of an image, PNG in base64, or None for texts.
        label: the label it has.
        suggested: the class that the network prefers among the others.
        score: how suspicious the label is; what it means depends on ``Suspects.ranked_by``.
        label_probability: what the network gives the label.
        suggested_probability: what it gives the suggestion.
        true_label: the label before noise was injected, or None where none was.
    """

    rank: int
    index: int
    source: str | None
    text: str | None
    png: str | None
    label: str
    suggested: str
    score: float
    label_probability: float
    suggested_probability: float
    true_label: str | None = None


@dataclass(frozen=True)
class Suspects:
    """A ranking of a run's training examples, the most suspicious first.

    Attributes:
        run: the run folder's name.
        dataset: the data set's name or path.
        method: what the run was trained with.
        seed: the run's seed.
        fingerprint: of the data's content.
        ranked_by: the name of the ranking.
        examples: how many training examples were ranked.
        suspects: the first of them.
        wrong_labels: how many labels injected noise made wrong, or None without it.
        average_precision: by the name of each ranking, the area under its precision–recall curve in finding them, or
            None without injected noise.
    """

    run: str
    dataset: str
    method: str
    seed: int
    fingerprint: str
    ranked_by: str
    examples: int
    suspects: tuple[Suspect, ...]
    wrong_labels: int | None = None
    average_precision: Mapping[str, float] | None = None


def write_suspects(suspects: Suspects, path: str | Path) -> None:
    """Write the file that `read_suspects` reads, atomically."""
    write_json(path, suspects_to_dict(suspects))


def suspects_to_dict(suspects: Suspects) -> dict[str, Any]:
    """What the file holds, as plain data."""
    return {"format": FORMAT, "version": VERSION, **asdict(suspects)}


def read_suspects(path: str | Path) -> Suspects:
    """Read what `alr suspects RUN -o FILE` wrote; anything else is a `RunError` that names the file."""
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise RunError(f"{path} holds no suspects; `alr suspects RUN -o FILE` writes such a file.")
    if content.get("version") != VERSION:
        raise RunError(f"{path} has the version {content.get('version')!r}; this program reads version {VERSION}.")
    entries = content.get("suspects")
    if not isinstance(entries, list):
        raise RunError(f"{path} has no list of suspects.")
    suspects = tuple(
        Suspect(**_checked(entry, Suspect, f"{path}, suspect {number}"))
        for number, entry in enumerate(entries, start=1)
    )
    known = {key: value for key, value in content.items() if key not in ("format", "version")}
    return Suspects(**{**_checked(known, Suspects, str(path)), "suspects": suspects})


_KINDS: dict[str, tuple[type, ...]] = {
    "rank": (int,),
    "index": (int,),
    "seed": (int,),
    "examples": (int,),
    "wrong_labels": (int, type(None)),
    "score": (int, float),
    "label_probability": (int, float),
    "suggested_probability": (int, float),
    "average_precision": (dict, type(None)),
    "suspects": (list,),
    "source": (str, type(None)),
    "text": (str, type(None)),
    "png": (str, type(None)),
    "true_label": (str, type(None)),
}


def _checked(entry: object, kind: type[Any], where: str) -> dict[str, Any]:
    """The values of a dataclass, complete and of the right types: a report must not fail on them later."""
    if not isinstance(entry, dict):
        raise RunError(f"{where} is no JSON object.")
    names = {field.name for field in fields(kind)}
    if entry.keys() != names:
        wrong = ", ".join(sorted(names ^ entry.keys()))
        raise RunError(f"{where} must have the keys {', '.join(sorted(names))}; missing or too many: {wrong}.")
    for name, value in entry.items():
        allowed = _KINDS.get(name, (str,))
        if not isinstance(value, allowed) or isinstance(value, bool):
            raise RunError(f"{where} has {value!r} as its {name}.")
    return entry
