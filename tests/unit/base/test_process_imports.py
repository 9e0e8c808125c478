"""What a process imports when it starts costs time in each, and memory for as long as it lives."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = "import sys, {module}; print(*(name for name in sys.modules if name.startswith({prefix!r})))"


def imported(module: str, prefix: str) -> list[str]:
    """The modules of that prefix that are there once `module` was imported."""
    command = [sys.executable, "-c", PROGRAM.format(module=module, prefix=prefix)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.split()


@pytest.mark.parametrize("module", ["scribengin.spark.transform.input", "scribengin.spark.transform.watched"])
def test_a_python_worker_of_spark_imports_no_connector(module: str) -> None:
    """There is one a core."""
    assert imported(module, "scribengin.connectors") == []


@pytest.mark.parametrize("module", ["scribengin.master.process", "scribengin_tools.cli.log", "scribengin.log.clients"])
def test_pandas_is_not_imported_before_somebody_has_to_do_with_it(module: str) -> None:
    """It takes 0.3 s. `pyarrow.array` imports it, at its first call."""
    assert imported(module, "pandas") == []
