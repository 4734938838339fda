"""The losses in the trainers that people already use: one file per trainer, which imports it when it is imported."""
