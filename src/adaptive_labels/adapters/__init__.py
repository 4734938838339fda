"""The methods inside trainers that people already use, one file per trainer; each needs an extra of its own."""
