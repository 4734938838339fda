"""Strict types and ranges for the fields of a configuration, and values given as texts (`--set key=value`)."""

import dataclasses
import math
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from adaptive_labels.errors import UserError, did_you_mean

_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class ConfigError(UserError):
    """A setting that cannot be used: one sentence with its key, its value and what is allowed."""


class Rule(NamedTuple):
    """What a value must satisfy, and the words that say so."""

    allowed: str
    test: Callable[[Any], bool]


class Section:
    """Base of a configuration's dataclasses: brings every field to its type and tests its rule."""

    _prefix = ""

    def __init_subclass__(cls, prefix: str = "") -> None:
        cls._prefix = prefix

    def __post_init__(self: Any) -> None:
        kinds = get_type_hints(type(self))
        for item in dataclasses.fields(self):
            key = self._prefix + item.name
            value = typed(getattr(self, item.name), kinds[item.name], key)
            rule: Rule | None = item.metadata.get("rule")
            if rule is not None and value is not None and not rule.test(value):
                raise ConfigError(f"{key} is {value!r}: allowed is {rule.allowed}")
            object.__setattr__(self, item.name, value)


def typed(value: Any, kind: Any, key: str) -> Any:
    """`value` as `kind`, or a ConfigError.

    An int will do for a float, a list for a tuple, a table for a dataclass; no other type is converted.
    """
    inner, optional = _unwrap(kind)
    outer, hint = get_origin(inner), ""
    if value is None and optional:
        return None
    if inner is Any:
        return _plain(value, key)
    if outer is Literal:
        if isinstance(value, str) and value in get_args(inner):
            return value
        hint = did_you_mean(value, get_args(inner))
    elif outer is tuple:
        parts = get_args(inner)
        if isinstance(value, list | tuple) and (parts[-1] is Ellipsis or len(value) == len(parts)):
            return tuple(typed(part, parts[0], key) for part in value)
    elif isinstance(value, Mapping) and outer is dict:
        items = _plain(value, key).items()
        return {name: typed(item, get_args(inner)[1], f"{key}.{name}") for name, item in items}
    elif isinstance(value, Mapping) and isinstance(inner, type) and issubclass(inner, Section):
        prefix, known = f"{key}." if key else "", get_type_hints(inner)
        for name in value:
            if name not in known:
                raise ConfigError(f"unknown setting {prefix}{name}{did_you_mean(name, known, prefix)}")
        return inner(**value)
    elif inner is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif isinstance(inner, type) and isinstance(value, inner) and (inner is bool or not isinstance(value, bool)):
        return value
    raise ConfigError(f"{key} is {value!r}: allowed is {_words(inner)}{' or none' if optional else ''}{hint}")


def _unwrap(kind: Any) -> tuple[Any, bool]:
    """The type without its None, and whether it had one."""
    if get_origin(kind) in (Union, types.UnionType):
        (inner,) = (part for part in get_args(kind) if part is not type(None))
        return inner, True
    return kind, False


def _words(kind: Any) -> str:
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return ", ".join(parts)
    if get_origin(kind) is tuple:
        things = "numbers" if parts[0] in (int, float) else "names" if parts[0] is str else "values"
        return f"a list of {things}" if parts[-1] is Ellipsis else f"a list of {len(parts)} {things}"
    return _NAMES.get(kind, "a table of settings")


def _plain(value: Any, key: str) -> Any:
    """An option's value, copied; only what JSON can hold and give back unchanged."""
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, key) for item in value]
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise ConfigError(f"{key} has the key {name!r}: allowed is a text")
        return {name: _plain(item, f"{key}.{name}") for name, item in value.items()}
    raise ConfigError(f"{key} is {value!r}: allowed are texts, finite numbers, true, false, none, and lists of them")


# -------------------------------------------------------------------------------------------------- values as texts


def parse(text: str, kind: Any, key: str) -> Any:
    """A text as the field's type; what does not parse is left for `typed` to refuse."""
    inner, optional = _unwrap(kind)
    text = text.strip()
    if optional and text.lower() == "none":
        return None
    if inner is bool:
        return {**_SWITCH, "1": True, "0": False}.get(text.lower(), text)
    if inner in (int, float):
        return _number(text, inner)
    if get_origin(inner) is tuple:
        listed = [part.strip() for part in text.strip("[]()").split(",") if part.strip()]
        return [_number(part, float) for part in listed] if get_args(inner)[0] in (int, float) else listed
    if get_origin(inner) is dict:
        raise ConfigError(f"{key} is a table of settings: give one of them, as in {key}.NAME={text or 'VALUE'}")
    return _unquoted(text)


def guess(text: str) -> Any:
    """An option's value: none, true or false in any of their words, a number, a list of those, or else a text."""
    text = text.strip()
    if text.lower() in ("none", *_SWITCH):
        return _SWITCH.get(text.lower())
    if text.startswith("[") and text.endswith("]"):
        return [guess(part) for part in text[1:-1].split(",") if part.strip()]
    number = _number(text, int, float)
    return _unquoted(text) if isinstance(number, str) else number


def _number(text: str, *kinds: Callable[[str], int | float]) -> int | float | str:
    """The text as the first of these types that takes it, or as it is."""
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _unquoted(text: str) -> str:
    quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text
