"""Checks of the criteria's arguments: each message names the argument, the value and what is allowed."""

import math
from collections.abc import Sequence


def check_number(
    name: str, value: float, low: float = -math.inf, high: float = math.inf, *, open_low: bool = False
) -> float:
    """``value`` as a float in [low, high], or in (low, high] with ``open_low``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    inside = (value > low if open_low else value >= low) and value <= high
    if not math.isfinite(value) or not inside:
        if low == -math.inf and high == math.inf:
            allowed = "finite"
        elif high == math.inf:
            allowed = f"finite and {'above' if open_low else 'at least'} {low:g}"
        else:
            allowed = f"in {'(' if open_low else '['}{low:g}, {high:g}]"
        raise ValueError(f"{name} must be {allowed}, got {value}")
    return float(value)


def check_choice(name: str, value: str, choices: Sequence[str]) -> str:
    """``value`` if it is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value
