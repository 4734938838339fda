"""Confusions as text, JSON and CSV: pairs, pairs confused one way more than the other, and groups."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from adaptive_labels import tables
from adaptive_labels.analysis import residual_labels
from adaptive_labels.analysis.confusions import (
    Confusions,
    Pair,
    agreement,
    groups_sentence,
    mutual_groups,
    named_groups,
    one_way_pairs,
    top_pairs,
)
from adaptive_labels.analysis.format import p_value, percent
from adaptive_labels.analysis.statistics import SIGNIFICANCE
from adaptive_labels.errors import UserError

FORMATS = ("text", "json", "csv")
LISTS = ("pairs", "one-way", "groups")
NOTHING = "No class is taken for another.\n"


def summarise_confusions(confusions: Confusions, top: int = 10, by: str | None = None) -> str:
    """The most confused pairs as a table, the agreement of the two views and the groups as sentences."""
    pairs = top_pairs(confusions, top, by)
    groups = groups_sentence(confusions, by=by)
    return "\n".join([*_pair_lines(confusions, pairs), *([groups] if groups else [])]) + "\n" if pairs else NOTHING


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
    if not pairs:
        return NOTHING
    parts = {
        "pairs": lambda: _pair_lines(confusions, pairs),
        "one-way": lambda: _one_way_lines(confusions, top),
        "groups": lambda: _group_lines(confusions, top, by),
    }
    texts = ["\n".join(parts[name]()) for name in ([only] if only else LISTS)]
    return "\n\n".join(text for text in texts if text) + "\n"


def pair_cells(
    confusions: Confusions, pairs: Sequence[Pair], *, for_terminal: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of the pairs; views that are not there have no column.

    A page has the unit in the heading; the terminal has residual labels as fractions, and rates with their sign.
    """
    columns: dict[str, list[str]] = {}
    if confusions.residual is not None:
        shares = [pair.residual or 0.0 for pair in pairs]
        if for_terminal:
            columns["residual label"] = [f"{share:.3f}" for share in shares]
        else:
            columns["residual label %"] = [percent(share) for share in shares]
    if confusions.counts is not None:
        rates = [percent(pair.rate or 0) for pair in pairs]
        columns["test rate" if for_terminal else "test rate %"] = [f"{r}%" for r in rates] if for_terminal else rates
        columns["test examples"] = [f"{pair.count:.1f}".removesuffix(".0") for pair in pairs]
    names = [[pair.true, pair.taken_for] for pair in pairs]
    return ["class", "taken for", *columns], [
        [*row, *more] for row, *more in zip(names, *columns.values(), strict=True)
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
    names = confusions.classes
    return {
        "by_class_median": found.median,
        "same_top_confusion": found.top1,
        "classes": found.classes,
        "differences": [
            {**asdict(pair), "true": names[pair.true], "taken_for": names[pair.taken_for]} for pair in found.differences
        ],
    }


def _csv(confusions: Confusions, pairs: Sequence[Pair], top: int, by: str | None, only: str) -> str:
    if only == "pairs":
        views = ["residual_label", "test_rate", "test_count"]
        headings = ["class", "taken_for", *views, *(f"reverse_{view}" for view in views)]
        return tables.as_csv(headings, [list(asdict(pair).values()) for pair in pairs])
    if only == "one-way":
        figures = ["test_count", "reverse_test_count", "test_rate", "reverse_test_rate", "p", "p_holm"]
        headings = ["class", "taken_for", *figures, "residual_label", "reverse_residual_label"]
        return tables.as_csv(headings, [list(asdict(pair).values()) for pair in one_way_pairs(confusions, top)])
    # One line per class, so that names with any separator in them stay whole.
    rows = [
        [number, group.by, name, group.mass, group.within, group.weakest]
        for number, group in enumerate(named_groups(confusions, by)[:top], start=1)
        for name in group.classes
    ]
    return tables.as_csv(["group", "by", "class", "mass", "within", "weakest"], rows)


def _pair_lines(confusions: Confusions, pairs: Sequence[Pair]) -> list[str]:
    runs = max(confusions.residual_runs, confusions.test_runs)
    lines = tables.aligned(*pair_cells(confusions, pairs, for_terminal=True), left=(0, 1))
    lines.append(f"Mean over {runs} runs; last stored epoch." if runs > 1 else "One run; last stored epoch.")
    rho = agreement(confusions)
    if rho is not None:
        text = f"{rho:.2f}".replace("-", "−")
        lines.append(
            "Residual labels and test errors rank the pairs with a Spearman correlation of "
            f"{text} (1 is the same order)."
        )
    return lines


def _one_way_lines(confusions: Confusions, top: int) -> list[str]:
    """The pairs whose difference is more than chance, as a table."""
    if confusions.counts is None:
        return []
    pairs = [pair for pair in one_way_pairs(confusions) if pair.p_holm < SIGNIFICANCE]
    if not pairs:
        return ["No pair is confused one way more than the other by more than chance (binomial test, Holm, p < 0.05)."]
    headings = ["class", "taken for", "test rate", "reverse", "test examples", "p (Holm)"]
    rows = [
        [
            pair.true,
            pair.taken_for,
            f"{percent(pair.rate)}%",
            f"{percent(pair.reverse_rate)}%",
            f"{pair.count} : {pair.reverse_count}",
            p_value(pair.p_holm),
        ]
        for pair in pairs[:top]
    ]
    more = f" {len(pairs)} such pairs, {len(rows)} shown." if len(pairs) > len(rows) else ""
    table = tables.aligned(headings, rows, left=(0, 1))
    return ["One way more than the other:", *table, f"Binomial test on the test split, p < 0.05.{more}"]


def _group_lines(confusions: Confusions, top: int, by: str | None) -> list[str]:
    groups = named_groups(confusions, by)
    if not groups:
        return ["No classes are confused with each other enough to form a group."]
    rows = [
        [group.by, ", ".join(group.classes), f"{percent(group.within, 0)}%", f"{percent(group.weakest)}%"]
        for group in groups[:top]
    ]
    more = f" {len(groups)} groups, {len(rows)} shown." if len(groups) > len(rows) else ""
    explained = (
        "Within: of all that the classes are taken for, the share that is one of them. Weakest: the least that one of "
        f"them is taken for another.{more}"
    )
    table = tables.aligned(["by", "classes", "within", "weakest"], rows, left=(0, 1))
    return ["Confused with each other:", *table, explained]
