"""Directories for tests that need more than one: each example of hypothesis has its own."""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory


def temporary_directory() -> TemporaryDirectory[str]:
    """A directory while the block lasts, in the place where pytest makes `tmp_path`: that may be memory."""
    return TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
