"""Strict types and ranges for the fields of a configuration, with sentences for what is refused."""

import dataclasses
import math
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from adaptive_labels.errors import UserError, did_you_mean


class ConfigError(UserError):
    """A setting that cannot be used: one sentence with its key, its value and what is allowed."""


@dataclass(frozen=True)
class Rule:
    """What a value must satisfy, and the words that say so."""

    allowed: str
    test: Callable[[Any], bool]


def hints_of(kind: type) -> dict[str, Any]:
    """The resolved types of a dataclass's fields, by name."""
    return get_type_hints(kind)


def validate(config: Any, prefix: str) -> None:
    """Bring every field to its type and test its rule, whichever way the object was made."""
    hints = hints_of(type(config))
    for item in dataclasses.fields(config):
        key, value = prefix + item.name, getattr(config, item.name)
        value = _typed(value, hints[item.name], key)
        rule: Rule | None = item.metadata.get("rule")
        if rule is not None and value is not None and not rule.test(value):
            raise ConfigError(f"{key} is {value!r}: allowed is {rule.allowed}")
        object.__setattr__(config, item.name, value)


def _typed(value: Any, kind: Any, key: str) -> Any:
    """`value` as `kind`, or a ConfigError; 1 is accepted for a float and a list for a tuple, nothing else is bent."""
    inner, optional = unwrap(kind)
    if value is None and optional:
        return None
    if get_origin(inner) is Literal:
        if value in get_args(inner) and isinstance(value, str):
            return value
        raise ConfigError(f"{key} is {value!r}: {_words(kind)}{did_you_mean(value, get_args(inner))}")
    if get_origin(inner) is tuple and isinstance(value, list | tuple):
        parts = get_args(inner)
        if parts[-1] is Ellipsis or len(value) == len(parts):
            return tuple(_typed(part, parts[0], key) for part in value)
    elif get_origin(inner) is dict and isinstance(value, Mapping):
        return {name: _plain_in(item, f"{key}.{name}") for name, item in _text_keys(value, key)}
    elif inner is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif isinstance(inner, type) and isinstance(value, inner) and (inner is bool or not isinstance(value, bool)):
        return value
    raise ConfigError(f"{key} is {value!r}: {_words(kind)}")


def unwrap(kind: Any) -> tuple[Any, bool]:
    """The type without its None, and whether it had one."""
    if get_origin(kind) in (Union, types.UnionType):
        (inner,) = (part for part in get_args(kind) if part is not type(None))
        return inner, True
    return kind, False


def _words(kind: Any) -> str:
    """What a type allows, in words."""
    inner, optional = unwrap(kind)
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    if get_origin(inner) is Literal:
        words = ", ".join(get_args(inner))
    elif get_origin(inner) is tuple:
        parts = get_args(inner)
        words = "a list of numbers" if parts[-1] is Ellipsis else f"a list of {len(parts)} numbers"
    elif dataclasses.is_dataclass(inner) or get_origin(inner) is dict:
        words = "a table of settings"
    else:
        words = names[inner]
    return f"allowed is {words}" + (" or none" if optional else "")


def _plain_in(value: Any, key: str) -> Any:
    """An option's value, copied; only what JSON can hold and give back unchanged."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, list | tuple):
        return [_plain_in(item, key) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain_in(item, f"{key}.{name}") for name, item in _text_keys(value, key)}
    raise ConfigError(f"{key} is {value!r}: allowed are texts, finite numbers, true, false, none, and lists of them")


def _text_keys(value: Mapping[Any, Any], key: str) -> Iterable[tuple[str, Any]]:
    for name in value:
        if not isinstance(name, str):
            raise ConfigError(f"{key} has the key {name!r}: allowed is a text")
    return value.items()


def refuse_unknown(values: Mapping[str, Any], known: Iterable[str], prefix: str) -> None:
    """Raise for the first key that does not exist, with the nearest one that does."""
    for name in values:
        if name not in known:
            raise ConfigError(f"unknown setting {prefix}{name}{did_you_mean(name, known, prefix)}")
