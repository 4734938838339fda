"""The parts of a report: each takes what `gather` read, and gives HTML."""
