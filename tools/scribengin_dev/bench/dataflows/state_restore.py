"""How long a dataflow with much state takes from the death of its worker (SIGKILL) to its next output.

The next worker's Spark starts, the checkpoint is taken over, and the first batch loads all partitions of the state: it
has records that are new, and none that was there before may come out again.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from scribengin.log import DlsnRange, LogWriter
from scribengin_dev.bench.dataflows.flow import CORES, FlowBench, config_of, run_until_through
from scribengin_dev.bench.rows import Row
from scribengin_dev.harness.casualties import kill_worker
from scribengin_dev.harness.progress import FlowProgress, last_commit_ms

STATE_RESTORE = "state-restore"
_KEY_BYTES = 1024
"""A key is a record: numbers alone would be packed to nothing."""
_KEYS_AT_ONCE = 512
_UNACKNOWLEDGED_MAX = 8
_SCATTER = 0x9E3779B97F4A7C15
"""Odd: what is multiplied by it, modulo 2 ** 64, stays different."""
_NEW_KEYS = 100
"""After each death."""
_MIB = 1024 * 1024
STOP_S = 300.0
EACH_ONCE = """
from pyspark.sql import functions as F


def transform(inputs, context):
    return inputs["src"].dropDuplicates(["payload"]).select(F.substring("payload", 1, 8).alias("payload"))
"""


def state_restore(bench: FlowBench) -> Row:
    """The median of `scale.runs` deaths, one after the other."""
    place, scale, name = bench.place, bench.scale, STATE_RESTORE
    folder = bench.folder / name
    folder.mkdir()
    (folder / "once.py").write_text(EACH_ONCE)
    source = f"{name}-in"
    place.namespace.create(source)
    keys = max(scale.state_bytes // _KEY_BYTES, 1)
    config = config_of(
        name,
        {"kind": "log", "logs": source},
        {"kind": "log", "log": f"{name}-out"},
        sql=None,
        executors=1,
        transformation="once:transform",
        package=str(folder),
        state={"checkpoints": str(folder / "state"), "partitions": CORES, "unbounded": ["duplicates"]},
    )
    with place.namespace.open_writer(source) as writer:
        append_keys(writer, 0, keys, _KEY_BYTES)
        place.submit(config)
        with FlowProgress(place, config, "src") as flow:
            run_until_through(place, name, flow)
            on_disk_mib = size_bytes(folder / "state") / _MIB
            took_ms = [_next_output_ms(bench, flow, writer, keys + run * _NEW_KEYS) for run in range(scale.runs)]
    place.desire(name, "stopped")
    place.await_state(name, "stopped", timeout_s=STOP_S)
    said = (
        f"exactly once; {keys:,} keys of {_KEY_BYTES} bytes in {CORES} partitions, {on_disk_mib:,.0f} MiB in the "
        f"checkpoint, on this disk; one worker; from SIGKILL until {_NEW_KEYS} new keys are out; {len(took_ms)} times, "
        f"{min(took_ms):,.0f} to {max(took_ms):,.0f} ms"
    )
    return Row(name, "ms", median(took_ms), None, "nothing: recovery-local is the same without state", said)


def _next_output_ms(bench: FlowBench, flow: FlowProgress, writer: LogWriter, first: int) -> float:
    """Kill the worker, append keys that are new, and wait until they are out."""
    victim = kill_worker(bench.place, flow.dataflow)
    append_keys(writer, first, _NEW_KEYS, _KEY_BYTES)
    run_until_through(bench.place, flow.dataflow, flow)
    return last_commit_ms(flow) - victim.at_ms


def append_keys(writer: LogWriter, first: int, count: int, key_bytes: int, *, scattered: bool = False) -> None:
    """Keys by their numbers: each is there once, and cannot be compressed. `scattered`: they are in no order."""
    waiting: deque[Future[DlsnRange]] = deque()
    for start in range(first, first + count, _KEYS_AT_ONCE):
        waiting.append(writer.write_bulk(_keys(start, min(_KEYS_AT_ONCE, first + count - start), key_bytes, scattered)))
        if len(waiting) > _UNACKNOWLEDGED_MAX:
            waiting.popleft().result()
    for future in waiting:
        future.result()


def _keys(first: int, count: int, key_bytes: int, scattered: bool) -> pa.RecordBatch:
    rows = np.random.default_rng(first).integers(0, 256, (count, key_bytes), dtype=np.uint8)
    numbers = np.arange(first, first + count, dtype=np.uint64) * np.uint64(_SCATTER if scattered else 1)
    rows[:, :8] = numbers.astype(">u8").view(np.uint8).reshape(count, 8)
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(key_bytes), count, [None, pa.py_buffer(rows.tobytes())])
    return pa.record_batch([fixed.cast(pa.binary())], names=["payload"])


def size_bytes(directory: Path) -> int:
    """All files below it."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
