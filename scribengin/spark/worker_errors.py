"""What Spark's Python workers raise of ours: the driver is told by name, and takes the names from here."""

from __future__ import annotations


class SplitUnreadable(Exception):
    """Raised in a Python worker only; the driver reads the split again to have the error itself."""


class OutputUnwritable(Exception):
    """Raised in a Python worker only: its output file cannot be written (a full disk)."""


WORKER_TROUBLE = tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in (SplitUnreadable, OutputUnwritable))
"""What the text of such an error begins with, in what Spark tells of a job that has failed."""
