"""Values given as texts, as in `--set key=value`."""

from typing import Any, get_origin

from adaptive_labels.config.checks import ConfigError, unwrap

_SWITCH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def parse(text: str, kind: Any, key: str) -> Any:
    """A text from the shell as the field's type; what does not parse is left for the type check to refuse."""
    inner, optional = unwrap(kind)
    text = text.strip()
    if optional and text.lower() == "none":
        return None
    if inner is bool:
        return _SWITCH.get(text.lower(), text)
    if inner in (int, float):
        return _number(text, inner)
    if get_origin(inner) is tuple:
        parts = [part for part in text.strip("[]()").split(",") if part.strip()]
        return [_number(part.strip(), float) for part in parts]
    if get_origin(inner) is dict:
        raise ConfigError(f"{key} is a table of settings: give one of them, as in {key}.NAME={text or 'VALUE'}")
    return _unquoted(text)


def _number(text: str, kind: type[int] | type[float]) -> int | float | str:
    try:
        return kind(text)
    except ValueError:
        return text


def guess(text: str) -> Any:
    """An option's value: none, true, false, a number, a list of those, or else a text."""
    text = text.strip()
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    if text.startswith("[") and text.endswith("]"):
        return [guess(part) for part in text[1:-1].split(",") if part.strip()]
    for kind in (int, float):
        number = _number(text, kind)
        if not isinstance(number, str):
            return number
    return _unquoted(text)


def _unquoted(text: str) -> str:
    quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text
