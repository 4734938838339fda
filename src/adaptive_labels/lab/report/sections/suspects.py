"""Labels that look wrong, as a gallery by class pair: a section of the report, and a page of its own."""

from collections import defaultdict

from markupsafe import Markup

from adaptive_labels.lab.analysis.suspects import Suspect, Suspects
from adaptive_labels.lab.report.page import asset, is_png, templates
from adaptive_labels.lab.report.sections import Context, Values, section

SHOWN = 400
OF_A_PAIR = 4  # fewer of the same two classes are shown among the others


@section(80, title="Labels that look wrong", link="suspects")
def suspects_values(context: Context) -> Values:
    """What `alr suspects` found in the data of these runs."""
    galleries = [_render("gallery", found) for found in context.suspects if context.examples]
    return {"galleries": galleries} if galleries else None


def suspects_page(found: Suspects) -> str:
    """A whole page that loads nothing and runs nothing."""
    return str(_render("page", found, Markup(asset("colours.css"))))


def _render(macro: str, found: Suspects, *more: Markup) -> Markup:
    """A macro of the template, with the first suspects by class pair."""
    # A file of suspects may come from anywhere, so that its pictures are looked at.
    first = [suspect for suspect in found.suspects[:SHOWN] if suspect.png is None or is_png(suspect.png)]
    pairs: dict[str, list[Suspect]] = defaultdict(list)
    for suspect in first:
        pairs[f"{suspect.label} → {suspect.suggested}?"].append(suspect)
    groups = {words: some for words, some in pairs.items() if len(some) >= OF_A_PAIR}
    groups = dict(sorted(groups.items(), key=lambda group: -len(group[1])))
    if others := [suspect for some in pairs.values() if len(some) < OF_A_PAIR for suspect in some]:
        groups["Other pairs of classes" if groups else "All"] = others
    return Markup(getattr(templates().get_template("suspects.html").module, macro)(found, groups, len(first), *more))
