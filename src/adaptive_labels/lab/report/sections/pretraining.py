"""What a pretrained encoder was trained on: results on data that it has seen are too good."""

from adaptive_labels.lab.report.page import paragraph
from adaptive_labels.lab.report.sections import Context, section


@section(5, title="", link="pretraining")
def pretraining_section(context: Context) -> str:
    """The sentences that the runs have on it; empty for networks from scratch."""
    notes: dict[str, None] = {}
    for record in context.data.group.counted:
        stored = (record.run.result or {}).get("pretraining")
        notes |= dict.fromkeys(map(str, stored)) if isinstance(stored, list) else {}
    return "".join(paragraph(note, "note") for note in notes)
