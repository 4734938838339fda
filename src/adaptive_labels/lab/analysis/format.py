"""Figures as people read them."""

from collections.abc import Mapping

from adaptive_labels.lab.analysis.statistics import PairedDifference, Summary


def percent(fraction: float, digits: int = 1) -> str:
    """A fraction in percent, without the sign: 0.574 → 57.4; never "-0.0"."""
    text = f"{100 * fraction:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def percent_summary(summary: Summary | None, digits: int = 1) -> str:
    """Mean ± std in percent: "57.4 ± 0.2", or only the mean for one seed; empty without figures."""
    if summary is None:
        return ""
    mean = percent(summary.mean, digits)
    return mean if summary.std is None else f"{mean} ± {percent(summary.std, digits)}"


def digits_for(summaries: list[Summary | None]) -> int:
    """Decimals of a percentage: one, or two if the smallest standard deviation would be written as 0.0."""
    spreads = [summary.std for summary in summaries if summary is not None and summary.std]
    return 2 if spreads and min(spreads) < 0.0005 else 1


def p_value(p: float | None) -> str:
    """A p value with two or three decimals: "0.21", "0.004", "< 0.001"; empty for None."""
    if p is None:
        return ""
    if p < 0.001:
        return "< 0.001"
    return f"{p:.3f}" if p < 0.0995 else f"{p:.2f}"


def p_phrase(p: float) -> str:
    """ "p = 0.004" or "p < 0.001"."""
    text = p_value(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def difference(comparison: PairedDifference | None, digits: int = 1) -> str:
    """A signed difference in points with its interval: "+2.1 [+1.6, +2.6]"; empty without one."""
    text = points(comparison, digits)
    if comparison is None or comparison.low is None or comparison.high is None:
        return text
    return f"{text} [{signed(comparison.low, digits)}, {signed(comparison.high, digits)}]"


def points(comparison: PairedDifference | None, digits: int = 1) -> str:
    """A signed difference in points; empty without one."""
    return "" if comparison is None or comparison.difference is None else signed(comparison.difference, digits)


def signed(fraction: float, digits: int = 1) -> str:
    """A fraction in points with its sign; zero has none."""
    text = percent(fraction, digits)
    return f"+{text}" if float(text) > 0 else text.replace("-", "−")


def parameters(counts: Mapping[str, int]) -> str:
    """The network's parameters, and what the criterion adds to them: "11.17M + 0.1K"; empty without figures.

    What training held beyond both, a second network for example, stands in brackets.

    >>> parameters({"network": 11_172_170, "criterion": 90}), parameters({"network": 464_154, "criterion": 0})
    ('11.17M + 0.1K', '464K')
    >>> parameters({"network": 470_004, "criterion": 0, "training": 940_008})
    '470K (940K in training)'
    """
    if "network" not in counts:
        return ""
    criterion = counts.get("criterion", 0)
    text = short_count(counts["network"]) + (f" + {short_count(criterion)}" if criterion else "")
    held = counts.get("training", 0)
    return f"{text} ({short_count(held)} in training)" if held > counts["network"] + criterion else text


def short_count(count: int) -> str:
    """A number of parameters as papers write it: 90 → 0.1K, 9,900 → 10K, 11,172,170 → 11.17M.

    >>> [short_count(count) for count in (7, 90, 9_900, 464_154, 999_999, 25_557_032)]
    ['7', '0.1K', '10K', '464K', '1.00M', '25.56M']
    """
    if count < 50:
        return str(count)
    if count < 950:
        return f"{count / 1e3:.1f}K"
    return f"{count / 1e3:.0f}K" if count < 999_500 else f"{count / 1e6:.2f}M"
