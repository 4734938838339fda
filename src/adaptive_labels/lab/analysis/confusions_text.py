"""Confusions for reading and for machines: tables and sentences, text, JSON and CSV."""

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from adaptive_labels.errors import UserError
from adaptive_labels.lab import tables
from adaptive_labels.lab.analysis.advice import advice_frame
from adaptive_labels.lab.analysis.confusions import (
    Confusions,
    differing_pairs,
    group_frame,
    one_way_pairs,
    significant_pairs,
    top_pairs,
)
from adaptive_labels.lab.analysis.format import p_value, percent

FORMATS = ("text", "json", "csv")
NOTHING = "No class is taken for another.\n"


def summarise_confusions(confusions: Confusions, top: int = 10) -> str:
    """The most confused pairs as a table, the agreement of the two views and the groups as sentences."""
    pairs = top_pairs(confusions, top)
    if pairs.empty:
        return NOTHING
    return "\n".join(filter(None, [_pair_text(confusions, pairs), groups_sentence(confusions)])) + "\n"


def format_confusions(confusions: Confusions, top: int = 10, format: str = "text") -> str:
    """Pairs, pairs confused one way more than the other, groups, and what to do: the ``top`` of each list.

    ``format`` is text, json, or csv, which holds the pairs alone.
    """
    if format not in FORMATS:
        raise UserError(f"format is {format!r}; it must be one of {', '.join(FORMATS)}.")
    pairs = top_pairs(confusions, top)
    if format == "csv":
        return tables.as_csv(list(pairs), pairs.astype(object).to_numpy().tolist())
    groups, advice = group_frame(confusions), advice_frame(confusions)
    if format == "json":
        lists = {"pairs": pairs, "one_way": one_way_pairs(confusions), "groups": groups, "advice": advice}
        return json.dumps(_plain(confusions, lists, top), indent=2, ensure_ascii=False) + "\n"
    if pairs.empty:
        return NOTHING
    one_way = significant_pairs(confusions)
    texts = [
        _pair_text(confusions, pairs),
        "" if confusions.counts is None else _one_way_text(one_way, top),
        _group_text(groups, top),
        _advice_text(advice, top),
    ]
    return "\n\n".join(filter(None, texts)) + "\n"


def _plain(confusions: Confusions, lists: Mapping[str, pd.DataFrame], top: int) -> dict[str, Any]:
    plain: dict[str, Any] = {"residual_runs": confusions.residual_runs, "test_runs": confusions.test_runs}
    plain |= {name: frame.head(top).to_dict(orient="records") for name, frame in lists.items()}
    agreed = confusions.agreement
    plain["agreement"] = agreed and {
        "overall": agreed.overall,
        "by_class_median": agreed.median,
        "same_top_confusion": agreed.top1,
        "classes": agreed.classes,
        "differences": differing_pairs(confusions, top).to_dict(orient="records"),
    }
    return plain


# ------------------------------------------------------------------------------------------------ tables and sentences


def pair_cells(pairs: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of `top_pairs` for reading; views that are not there have no column."""
    shown = {"class": pairs["true"].tolist(), "taken for": pairs["taken_for"].tolist()}
    if "residual" in pairs:
        shown["residual label %"] = [percent(share) for share in pairs["residual"]]
    if "rate" in pairs:
        shown["test rate %"] = [percent(rate) for rate in pairs["rate"]]
        shown["test examples"] = [f"{errors:.1f}".removesuffix(".0") for errors in pairs["errors"]]
    return list(shown), [list(row) for row in zip(*shown.values(), strict=True)]


def one_way_cells(pairs: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of pairs confused one way."""
    rows = [
        [
            *(pair.true, pair.taken_for, percent(pair.rate), percent(pair.reverse_rate)),
            *(f"{pair.errors} : {pair.reverse_errors}", p_value(pair.p_holm)),
        ]
        for pair in pairs.itertuples()
    ]
    return ["class", "taken for", "test rate %", "reverse %", "test examples", "p Holm"], rows


def groups_sentence(confusions: Confusions, most: int = 8) -> str:
    """The largest mutual groups, by the view that pairs are ranked by; empty where there is none."""
    view = "residual" if confusions.ranking() is confusions.residual else "test"
    groups = sorted(group_frame(confusions, view)["classes"], key=lambda names: (-len(names), names))
    more = f"; and {len(groups) - most} more" if len(groups) > most else ""
    listed = "; ".join(", ".join(members) for members in groups[:most])
    return f"Confused with each other: {listed}{more}." if groups else ""


def agreement_sentence(confusions: Confusions) -> str:
    """How well residual labels and test errors agree; empty where that is not known."""
    agreed = confusions.agreement
    if agreed is None or agreed.overall is None:
        return ""
    order = f"with a Spearman correlation of {agreed.overall:.2f} (1 is the same order)".replace("-", "−")
    sentence = f"Residual labels and test errors rank the pairs {order}"
    if agreed.top1 is None:
        return f"{sentence}."
    share = f"{percent(agreed.top1, 0)}% of the {agreed.classes} classes with test errors"
    return f"{sentence}; for {share}, the largest residual label is the most frequent error."


def _pair_text(confusions: Confusions, pairs: pd.DataFrame) -> str:
    single = max(confusions.residual_runs, confusions.test_runs) == 1
    lines = tables.aligned(*pair_cells(pairs), left=(0, 1))
    lines.append(f"{'One run' if single else confusions.averaged.capitalize()}; last stored epoch.")
    return "\n".join([*lines, *filter(None, [confusions.little_learned or agreement_sentence(confusions)])])


def _one_way_text(pairs: pd.DataFrame, top: int) -> str:
    if pairs.empty:
        return "No pair is confused one way more than the other by more than chance (binomial test, Holm, p < 0.05)."
    lines = tables.aligned(*one_way_cells(pairs.head(top)), left=(0, 1))
    note = f"Binomial test on the test split, p < 0.05.{_more(pairs, top)}"
    return "\n".join(["One way more than the other:", *lines, note])


def _group_text(groups: pd.DataFrame, top: int) -> str:
    if groups.empty:
        return "No classes are confused with each other enough to form a group."
    rows = [
        [group.by, ", ".join(group.classes), percent(group.within, 0), percent(group.weakest)]
        for group in groups.head(top).itertuples()
    ]
    lines = tables.aligned(["by", "classes", "within %", "weakest %"], rows, left=(0, 1))
    note = (
        "Within: the share of the confusions of these classes that are with each other. Weakest: the smallest share of "
        f"one of them that is taken for another.{_more(groups, top)}"
    )
    return "\n".join(["Confused with each other:", *lines, note])


def _advice_text(advice: pd.DataFrame, top: int) -> str:
    first = advice.groupby("kind", sort=False).head(top)["sentence"]
    return "\n".join(["What to do:", *(f"- {sentence}" for sentence in first)]) if len(first) else ""


def _more(frame: pd.DataFrame, top: int) -> str:
    return f" {len(frame)} in all, {top} shown." if len(frame) > top else ""
