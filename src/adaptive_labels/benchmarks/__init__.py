"""This machine's figures, as ratios to a named reference measured in the same minutes."""
