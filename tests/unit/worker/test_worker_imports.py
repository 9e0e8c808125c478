"""Masters and workers start without what only some dataflows need."""

from __future__ import annotations

import subprocess
import sys

import pytest

FOR_SOME = ("asyncio", "confluent_kafka", "fsspec", "hdfs_native", "jpype", "pandas", "scribengin.dafka.state", "zmq")


@pytest.mark.parametrize("module", ["scribengin.master.process", "scribengin.worker.process"])
def test_a_process_loads_what_every_dataflow_needs(module: str) -> None:
    program = f"import sys, {module}; print([name for name in {FOR_SOME} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
