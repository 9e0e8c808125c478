"""A stream from logs to logs whose driver, JVM and workers are killed in the middle: every record arrives once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scribengin.log import LogNamespace
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_read
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry

pytestmark = pytest.mark.spark

_LIMIT_S = 240
"""On a machine that is busy with everything else, a Spark session and its first micro-batch take minutes."""
_RECORDS = 1_500
"""Dozens of micro-batches, so that a kill that comes late still comes before the last one."""
PROGRAM = """
import sys
from scribengin.spark.log_format.format import register
from scribengin.spark.session.session import start_session

uri, checkpoint = sys.argv[1:]
spark = start_session("stream")
register(spark)
source = {"namespace": uri, "log": "in/*", "maxRecordsPerTrigger": "40"}
records = spark.readStream.format("scribengin-log").options(**source).load()
sink = {"namespace": uri, "log": "out", "checkpointLocation": checkpoint}
query = records.select("key", "payload").writeStream.format("scribengin-log").options(**sink)
query.trigger(availableNow=True).start().awaitTermination()
"""


def start(uri: str, directory: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, uri, str(directory / "checkpoint")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, cwd=directory, env=environment, start_new_session=True)


@pytest.mark.full
@pytest.mark.timeout(4 * _LIMIT_S)
def test_a_killed_stream_goes_on_and_writes_every_record_once(
    registry: Registry, registry_hosts: str, tmp_path: Path
) -> None:
    uri = f"distributedlog-file://{registry_hosts}/logs"
    namespace: LogNamespace = bound_namespace(registry, tmp_path / "store", "in/0", "in/1", "out")
    payloads = [b"%04d" % number for number in range(_RECORDS)]
    for number in range(2):
        with namespace.open_writer(f"in/{number}") as writer:
            writer.write_bulk(payload_batch(payloads[number::2])).result(120)
    process = start(uri, tmp_path)
    try:
        wait_until(
            lambda: process.poll() is not None or len(payloads_read(namespace, "out")) > 60, _LIMIT_S, "some output"
        )
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert len(payloads_read(namespace, "out")) < len(payloads)
    assert start(uri, tmp_path).wait(2 * _LIMIT_S) == 0
    found = payloads_read(namespace, "out")
    assert sorted(found) == payloads
    for number in range(2):
        assert [payload for payload in found if int(payload) % 2 == number] == payloads[number::2]
