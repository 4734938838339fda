"""What `adaptive_labels.compare` returns."""

from collections.abc import Sequence

from adaptive_labels import analysis
from adaptive_labels.runs import RunFolder


class Compared(list[RunFolder]):
    """The runs of a comparison, which print as its table and verdict."""

    @property
    def records(self) -> Sequence[analysis.Record]:
        """The runs with their metrics, for tables and statistics."""
        return analysis.read_records(self)

    def table(self, format: str = "text") -> str:
        """One row per method, as ``alr table`` prints it: text, markdown, latex, csv or json."""
        return analysis.table(self.records, format)

    @property
    def verdict(self) -> str:
        """Which method is best on validation, and by how much."""
        return "\n".join(analysis.verdict(group) for group in analysis.group_records(self.records))

    def __str__(self) -> str:
        return f"{self.table()}\n{self.verdict}"
