"""Everything behind the command `alr`: data, networks, training, runs, comparisons, reports."""
