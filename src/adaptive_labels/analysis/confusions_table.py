"""Confusions as text, JSON and CSV: pairs, pairs confused one way more than the other, and groups."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from adaptive_labels.analysis import residual_labels
from adaptive_labels.analysis.confusion_matrix import asymmetric_pairs
from adaptive_labels.analysis.confusions import (
    Confusions,
    Pair,
    agreement,
    agreement_sentence,
    groups_of,
    groups_sentence,
    mutual_groups,
    top_pairs,
)
from adaptive_labels.analysis.format import p_value, percent
from adaptive_labels.errors import UserError

FORMATS = ("text", "json", "csv")
LISTS = ("pairs", "one-way", "groups")
_LEVEL = 0.05


@dataclass(frozen=True)
class OneWay:
    """A pair that is confused more in one direction, by the test split; see `AsymmetricPair`.

    The residual labels of both directions stand beside the rates, or None without any.
    """

    true: str
    taken_for: str
    count: int
    reverse_count: int
    rate: float
    reverse_rate: float
    p: float
    p_holm: float
    residual: float | None
    reverse_residual: float | None


@dataclass(frozen=True)
class NamedGroup:
    """A group of classes that are confused with each other; see `ConfusedGroup`. ``by`` is residual or test."""

    by: str
    classes: tuple[str, ...]
    mass: float
    within: float
    weakest: float


def summarise_confusions(confusions: Confusions, top: int = 10, by: str | None = None) -> str:
    """The most confused pairs as a table, the agreement of the two views and the groups as sentences."""
    pairs = top_pairs(confusions, top, by)
    if not pairs:
        return "No class is taken for another.\n"
    groups = groups_sentence(confusions, by=by)
    return "\n".join([*_pair_lines(confusions, pairs), *([groups] if groups else [])]) + "\n"


def format_confusions(
    confusions: Confusions, top: int = 10, format: str = "text", by: str | None = None, only: str | None = None
) -> str:
    """Everything about confusions that has a name, in one text.

    Args:
        confusions: of one run, or the means over several.
        top: how many entries each list has at most.
        format: text, json or csv. CSV holds one list, the pairs unless ``only`` says otherwise.
        by: which view pairs are ranked and groups found by: residual or test; groups by both unless given.
        only: pairs, one-way or groups, to leave the others out.
    """
    if format not in FORMATS:
        raise UserError(f"format is {format!r}; it must be one of {', '.join(FORMATS)}.")
    if only not in (None, *LISTS):
        raise UserError(f"only is {only!r}; it must be one of {', '.join(LISTS)}.")
    pairs = top_pairs(confusions, top, by)  # refuses a view that is not there, whatever is shown
    if format == "json":
        return json.dumps(_data(confusions, pairs, top, by, only), indent=2, ensure_ascii=False) + "\n"
    if format == "csv":
        return _csv(confusions, pairs, top, by, only or "pairs")
    parts = {
        "pairs": lambda: _pair_lines(confusions, pairs),
        "one-way": lambda: _one_way_lines(confusions, top),
        "groups": lambda: _group_lines(confusions, top, by),
    }
    if not pairs:
        return "No class is taken for another.\n"
    texts = ["\n".join(parts[name]()) for name in ([only] if only else LISTS)]
    return "\n\n".join(text for text in texts if text) + "\n"


def one_way_pairs(confusions: Confusions, top: int | None = None) -> list[OneWay]:
    """Pairs that the test split confuses more in one direction, smallest p first; empty without test predictions."""
    if confusions.counts is None:
        return []
    found, q, names = asymmetric_pairs(confusions.counts, top), confusions.residual, confusions.classes
    return [
        OneWay(
            names[pair.true],
            names[pair.taken_for],
            pair.count,
            pair.reverse,
            pair.rate,
            pair.reverse_rate,
            pair.p,
            pair.p_holm,
            None if q is None else float(q[pair.true, pair.taken_for]),
            None if q is None else float(q[pair.taken_for, pair.true]),
        )
        for pair in found
    ]


def named_groups(confusions: Confusions, by: str | None = None) -> list[NamedGroup]:
    """Groups of classes that are confused with each other, by either view unless ``by`` names one."""
    views = [
        view for view, matrix in (("residual", confusions.residual), ("test", confusions.counts)) if matrix is not None
    ]
    return [
        NamedGroup(view, tuple(confusions.classes[i] for i in group.members), group.mass, group.within, group.weakest)
        for view in (views if by is None else [by])
        for group in groups_of(confusions, by=view)
    ]


def _data(confusions: Confusions, pairs: Sequence[Pair], top: int, by: str | None, only: str | None) -> dict[str, Any]:
    data: dict[str, Any] = {"residual_runs": confusions.residual_runs, "test_runs": confusions.test_runs}
    if only in (None, "pairs"):
        data["pairs"] = [asdict(pair) for pair in pairs]
        data["agreement"] = agreement(confusions)
        data["agreement_details"] = _agreement(confusions, top)
    if only in (None, "one-way"):
        data["one_way"] = [asdict(pair) for pair in one_way_pairs(confusions, top)]
    if only in (None, "groups"):
        data["groups"] = mutual_groups(confusions, by=by)
        data["group_details"] = [asdict(group) for group in named_groups(confusions, by)[:top]]
    return data


def _agreement(confusions: Confusions, top: int) -> dict[str, Any] | None:
    if confusions.residual is None or confusions.counts is None:
        return None
    found = residual_labels.agreement(confusions.residual, confusions.counts, pairs=top)
    differences = [
        {**asdict(pair), "true": confusions.classes[pair.true], "taken_for": confusions.classes[pair.taken_for]}
        for pair in found.differences
    ]
    return {
        "by_class_median": found.median,
        "same_top_confusion": found.top1,
        "classes": found.classes,
        "differences": differences,
    }


def _csv(confusions: Confusions, pairs: Sequence[Pair], top: int, by: str | None, only: str) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if only == "pairs":
        views = ["residual_label", "test_rate", "test_count"]
        writer.writerow(["class", "taken_for", *views, *(f"reverse_{view}" for view in views)])
        writer.writerows(asdict(pair).values() for pair in pairs)
    elif only == "one-way":
        headings = ["test_count", "reverse_test_count", "test_rate", "reverse_test_rate", "p", "p_holm"]
        writer.writerow(["class", "taken_for", *headings, "residual_label", "reverse_residual_label"])
        writer.writerows(asdict(pair).values() for pair in one_way_pairs(confusions, top))
    else:
        # One line a class, so that names with any separator in them stay whole.
        writer.writerow(["group", "by", "class", "mass", "within", "weakest"])
        for number, group in enumerate(named_groups(confusions, by)[:top], start=1):
            for name in group.classes:
                writer.writerow([number, group.by, name, group.mass, group.within, group.weakest])
    return file.getvalue()


def _pair_lines(confusions: Confusions, pairs: Sequence[Pair]) -> list[str]:
    columns = [
        ["class", *(pair.true for pair in pairs)],
        ["taken for", *(pair.taken_for for pair in pairs)],
    ]
    if confusions.residual is not None:
        columns.append(["residual label", *(f"{pair.residual:.3f}" for pair in pairs)])
    if confusions.counts is not None:
        columns.append(["test rate", *(f"{percent(pair.rate or 0)}%" for pair in pairs)])
        columns.append(["test examples", *(f"{pair.count:.1f}".removesuffix(".0") for pair in pairs)])
    runs = max(confusions.residual_runs, confusions.test_runs)
    sentences = [f"Mean over {runs} runs; last stored epoch." if runs > 1 else "One run; last stored epoch."]
    sentence = agreement_sentence(confusions)
    return [*_aligned(columns), *sentences, *([sentence] if sentence else [])]


def _one_way_lines(confusions: Confusions, top: int) -> list[str]:
    """The pairs whose difference is more than chance, as a table."""
    pairs = [pair for pair in one_way_pairs(confusions) if pair.p_holm < _LEVEL]
    if confusions.counts is None:
        return []
    if not pairs:
        return ["No pair is confused one way more than the other by more than chance (binomial test, Holm, p < 0.05)."]
    shown = pairs[:top]
    columns = [
        ["class", *(pair.true for pair in shown)],
        ["taken for", *(pair.taken_for for pair in shown)],
        ["test rate", *(f"{percent(pair.rate)}%" for pair in shown)],
        ["reverse", *(f"{percent(pair.reverse_rate)}%" for pair in shown)],
        ["test examples", *(f"{pair.count} : {pair.reverse_count}" for pair in shown)],
        ["p (Holm)", *(p_value(pair.p_holm) for pair in shown)],
    ]
    more = f" {len(pairs)} such pairs, {len(shown)} shown." if len(pairs) > len(shown) else ""
    return ["One way more than the other:", *_aligned(columns), f"Binomial test on the test split, p < 0.05.{more}"]


def _group_lines(confusions: Confusions, top: int, by: str | None) -> list[str]:
    groups = named_groups(confusions, by)
    if not groups:
        return ["No classes are confused with each other enough to form a group."]
    shown = groups[:top]
    columns = [
        ["by", *(group.by for group in shown)],
        ["classes", *(", ".join(group.classes) for group in shown)],
        ["within", *(f"{percent(group.within, 0)}%" for group in shown)],
        ["weakest", *(f"{percent(group.weakest)}%" for group in shown)],
    ]
    more = f" {len(groups)} groups, {len(shown)} shown." if len(groups) > len(shown) else ""
    explained = (
        "Within: of all that the classes are taken for, the share that is one of them. Weakest: the least that one of "
        f"them is taken for another.{more}"
    )
    return ["Confused with each other:", *_aligned(columns), explained]


def _aligned(columns: Sequence[Sequence[str]]) -> list[str]:
    """Columns as lines; the first two hold words, the others figures."""
    widths = [max(len(cell) for cell in column) for column in columns]
    lines = []
    for cells in zip(*columns, strict=True):
        aligned = [
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join(aligned).rstrip())
    return lines
