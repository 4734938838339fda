"""What `alr tune` prints: trials by validation accuracy, and the test figure of the chosen one alone."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import typer

from adaptive_labels.cli.show import prose

if TYPE_CHECKING:
    from adaptive_labels.analysis import Summary
    from adaptive_labels.runs import RunFolder


def show_trials(runs: list[RunFolder], option: str, method: str, as_json: bool) -> None:
    """The trials, best on validation first, and how to train with the best."""
    by_value: dict[float, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        if run.result is not None and run.result["status"] == "finished":
            by_value[run.config["method"]["options"][option]].append(run.result["metrics"])
    if not by_value:
        typer.echo("alr: no trial finished", err=True)
        raise typer.Exit(1)
    scores = {value: _summary(found, "validation") for value, found in by_value.items()}
    best = max(scores, key=lambda value: scores[value].mean)
    test = _summary(by_value[best], "test")
    if as_json:
        trials = [{option: value, "n": s.n, "validation_top1": s.mean, "std": s.std} for value, s in scores.items()]
        typer.echo(json.dumps({"method": method, "trials": trials, "best": best, "test_top1": test.mean}, indent=2))
        return
    typer.echo("")
    for value, summary in sorted(scores.items(), key=lambda item: -item[1].mean):
        spread = "" if summary.std is None else f" ± {100 * summary.std:.2f}"
        typer.echo(f"{option} {value:<8g} validation {100 * summary.mean:.2f}{spread}% (n = {summary.n})")
    ties = sum(summary.mean == scores[best].mean for summary in scores.values()) - 1
    among = f" (first of {ties + 1} that are equal)" if ties else ""
    prose(
        f"Best on validation: {option} = {best:g}{among}; its test accuracy is {100 * test.mean:.2f}% (n = {test.n})."
    )
    typer.echo(f"To use it: --set method.options.{option}={best:g}")


def _summary(found: list[dict[str, Any]], split: str) -> Summary:
    from adaptive_labels.analysis import summarise

    summary = summarise([metrics[split]["top1"] for metrics in found])
    assert summary is not None  # there is at least one
    return summary
