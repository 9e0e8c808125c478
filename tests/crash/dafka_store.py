"""A Dafka store in a process of its own, that is killed where a case wants it."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerProcess

from scribengin.base.threads import pause
from scribengin.dafka import DafkaConfig, DafkaStore
from scribengin.log import LogConfig, LogNamespace
from scribengin.testing.failpoints import at_failpoint, kill_this_process
from scribengin_registry.opening import connect

LOGS = LogConfig(segment_bytes_max=8192)
"""So small that a store rolls segments under way."""
_CONTEXT = multiprocessing.get_context("forkserver")


def start_store(hosts: str, config: DafkaConfig, stop: str, occurrence: int) -> ForkServerProcess:
    """Start one that takes the logs over, and dies at that stop."""
    process = _CONTEXT.Process(target=_store, args=(hosts, config.model_dump(mode="json"), stop, occurrence))
    process.start()
    return process


def _store(hosts: str, config: object, stop: str, occurrence: int) -> None:
    with (
        connect(hosts, session_timeout_s=100) as registry,
        at_failpoint(stop, kill_this_process, occurrence=occurrence),
        LogNamespace.open("/logs", registry=registry) as namespace,
        DafkaStore(namespace, DafkaConfig.model_validate(config), log_config=LOGS, take_over=True) as store,
    ):
        while True:
            store.check()
            pause(0.1)
