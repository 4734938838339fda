"""The training loop and what it needs: optimizers, schedules, checkpoints, progress."""
