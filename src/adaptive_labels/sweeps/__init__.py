"""Lists of runs, onto local processes."""

from adaptive_labels.sweeps.pool import Event, Job, Outcome, run_jobs

__all__ = ["Event", "Job", "Outcome", "run_jobs"]
