"""Labels that look wrong, as a gallery by class pair: a section of the report, and a page of its own."""

import base64
import binascii
from collections import defaultdict
from typing import Any

from jinja2 import Environment, StrictUndefined

from adaptive_labels.lab.analysis.suspects import Suspect, Suspects
from adaptive_labels.lab.report.page import asset
from adaptive_labels.lab.report.sections import Context, section

SHOWN = 400


@section(80, title="Labels that look wrong", link="suspects")
def suspects_section(context: Context) -> str:
    """What `alr suspects` found in the data of these runs."""
    return "".join(_render("gallery", found) for found in context.suspects) if context.examples else ""


def suspects_page(found: Suspects) -> str:
    """A whole page that loads nothing and runs nothing."""
    return _render("page", found, style=asset("colours.css"))


def _render(macro: str, found: Suspects, **more: Any) -> str:
    """A macro of the template; all texts of the data are escaped."""
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(asset("suspects.html"))
    first = [suspect for suspect in found.suspects[:SHOWN] if _is_picture(suspect.png)]
    pairs: dict[tuple[str, str], list[Suspect]] = defaultdict(list)
    for suspect in first:
        pairs[suspect.label, suspect.suggested].append(suspect)
    by_size = sorted(pairs.items(), key=lambda pair: -len(pair[1]))
    return str(getattr(template.module, macro)(found, by_size, len(first), *more.values()))


def _is_picture(png: str | None) -> bool:
    """Whether this is a PNG in base64, or none at all: a file of suspects may come from anywhere."""
    try:
        return png is None or base64.b64decode(png, validate=True).startswith(b"\x89PNG")
    except (binascii.Error, ValueError):
        return False
