"""`alr bench`: times on this machine, as ratios to a named reference measured in turns with them."""
