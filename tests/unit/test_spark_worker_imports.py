"""Spark starts a Python process a core for what it reads: each holds what it imports for as long as it lives."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = "import sys, {module}; print(*(name for name in sys.modules if name.startswith('scribengin.connectors')))"


@pytest.mark.parametrize("module", ["scribengin.spark.transform.input", "scribengin.spark.transform.watched"])
def test_a_python_worker_imports_no_connector(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == []
