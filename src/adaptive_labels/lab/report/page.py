"""The report's page: its templates, in which jinja2 escapes every text, its style and its script."""

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

LONG_TEXT = 160  # characters; a longer text shows its beginning, and opens to the whole


@cache
def templates() -> jinja2.Environment:
    """The templates of the page and its sections."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("adaptive_labels.lab.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.globals["LONG_TEXT"] = LONG_TEXT
    environment.filters["beginning"] = lambda text: next(iter(text[:LONG_TEXT].rsplit(maxsplit=1)), "")
    return environment


def render(template: str, values: Mapping[str, Any]) -> Markup:
    """A template filled with values; texts among them are escaped, drawings are not."""
    return Markup(templates().get_template(template).render(values))


def page(title: str, groups: Sequence[Any]) -> str:
    """A whole HTML document that loads nothing from a server and runs only the report's own script.

    The script is allowed by its hash, so that a script in the data would not run.
    """
    script = asset("report.js")
    values = {
        "title": title,
        "groups": groups,
        "style": Markup("".join(asset(name) for name in ("colours.css", "figures.css", "report.css"))),
        "script": Markup(script),
        "script_hash": base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii"),
    }
    return render("page.html", values)


def asset(name: str) -> str:
    """A file that belongs to the page: a style sheet, or its script."""
    return resources.files("adaptive_labels.lab.report").joinpath("assets", name).read_text(encoding="utf-8")


def is_png(content: object) -> bool:
    """Whether a text is a PNG in base64 and nothing else, so that it can stand in an attribute."""
    try:
        return base64.b64decode(str(content), validate=True).startswith(b"\x89PNG\r\n")
    except (binascii.Error, ValueError):
        return False
