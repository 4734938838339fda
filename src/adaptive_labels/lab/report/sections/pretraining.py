"""What a pretrained encoder was trained on: results on data that it has seen are too good."""

from adaptive_labels.lab.report.sections import Context, Values, section


@section(5, link="pretraining")
def pretraining_values(context: Context) -> Values:
    """The sentences that the runs have on it; none for networks from scratch."""
    stored = [(record.run.result or {}).get("pretraining") for record in context.data.group.counted]
    notes = dict.fromkeys(str(note) for notes in stored if isinstance(notes, list) for note in notes)
    return {"notes": list(notes)} if notes else None
