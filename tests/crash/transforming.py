"""A transformer in a process of its own, that is killed where a case wants it."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.context import ForkServerProcess

import pyarrow as pa

from scribengin.errors import EndOfStream
from scribengin.log import PAYLOAD, LogNamespace
from scribengin.log.clients import Transformer
from scribengin.testing.failpoints import at_failpoint, kill_this_process
from scribengin_registry.opening import connect

SOURCE, TARGET = "numbers", "copied"
_CONTEXT = multiprocessing.get_context("forkserver")


def start_transformer(hosts: str, stop: str, occurrence: int) -> ForkServerProcess:
    """Start one that takes the target over, and dies at that stop; without one it runs to the end of its source."""
    process = _CONTEXT.Process(target=_transform, args=(hosts, stop, occurrence))
    process.start()
    return process


def _transform(hosts: str, stop: str, occurrence: int) -> None:
    with (
        connect(hosts, session_timeout_s=100) as registry,
        at_failpoint(stop, kill_this_process, occurrence=occurrence),
    ):
        namespace = LogNamespace.open("/logs", registry=registry)
        transformer = Transformer(namespace, SOURCE, TARGET, _as_they_are, steal=True, records_max=3)
        try:
            while True:
                transformer.run_once()
                transformer.flush()  # so that the stops come in the same order every time
        except EndOfStream:
            transformer.close()
    os._exit(0)


def _as_they_are(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([PAYLOAD])
