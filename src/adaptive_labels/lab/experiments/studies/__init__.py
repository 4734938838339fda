"""Studies: questions put as variants × tasks × seeds, run, kept as compact records, shown as tables."""
