"""Lists of runs, onto local processes."""

from adaptive_labels.experiments.executors.pool import Event, Job, Outcome, run_jobs

__all__ = ["Event", "Job", "Outcome", "run_jobs"]
