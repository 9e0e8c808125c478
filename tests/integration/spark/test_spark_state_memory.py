"""State is on disk: what RocksDB holds of it in memory is bounded, however much of it there is and in how many stores.

Without a bound each store may have two write buffers of 64 MiB, which nothing empties before the next snapshot.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1800)]

STATE_MB, KEPT_MIB, PARTITIONS = 32, 320, 8
GROWS_MAX_MIB = 120
"""Since the first 64 MiB, which warm the JVM up: far more than may, and half of what is kept meanwhile."""
TRANSFORMATION = """
from pyspark.sql import functions as F

WIDE = "array_join(transform(sequence(1, 512), i -> sha2(concat(who, n, '-', i), 512)), '')"


def transform(inputs, context):
    return inputs["src"].select("n", F.expr(WIDE).alias("wide")).dropDuplicates(["wide"]).select("n")
"""
SCRIPT = """
import json, sys
from pathlib import Path
import psutil
from scribengin.spark.session import start_session, stop_session
from scribengin.testing.memory.registry import MemoryEnsemble
from tests.integration.state_flow import StateFlow

directory, state_mb, kept_mib, partitions = Path(sys.argv[1]), *map(int, sys.argv[2:])
spark = start_session("bounded", memory_mb=1024)
jvm, heap = psutil.Process(spark.sparkContext._gateway.proc.pid), spark._jvm.java.lang.Runtime.getRuntime()

def native_mib():
    "Of the JVM, without its heap and what the system can take back."
    memory = jvm.memory_info()
    return (memory.rss - memory.shared - heap.totalMemory()) >> 20

state = {"partitions": partitions, "memory_mb": state_mb, "unbounded": ["duplicates"], "watermarks": {}}
with MemoryEnsemble().connect() as registry:
    does = {"transformation": "wide:transform", "state": state, "round": {"records_max": 1000}}
    flow = StateFlow(registry, spark, directory, **does)
    flow.append("in/0", [(0, "first", n) for n in range(partitions)])
    with flow.owner() as owner:
        owner.take_over()
        assert owner.run_round() is not None
        flow.append("in/0", [(0, "key", n) for n in range(kept_mib * 16)])
        seen = [native_mib()]
        while owner.run_round() is not None:
            seen.append(native_mib())
        print(json.dumps({"rows": owner.state().rows, "seen": seen}))
        owner.release()
stop_session()
"""


def test_the_memory_that_state_takes_does_not_grow_with_the_state(tmp_path: Path) -> None:
    (tmp_path / "wide.py").write_text(TRANSFORMATION)
    (tmp_path / "tmp").mkdir()
    arguments = [str(tmp_path), *map(str, (STATE_MB, KEPT_MIB, PARTITIONS))]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == {"duplicates": KEPT_MIB * 16 + PARTITIONS}, "keys of 64 KiB"
    assert max(found["seen"]) - found["seen"][1] < GROWS_MAX_MIB, f"MiB outside of the heap: {found['seen']}"
