"""From a configuration to finished runs: one run, comparisons, studies, prediction and suspects."""
