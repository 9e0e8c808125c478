"""`python -m scribengin_dev.demo.roles JOB`: a store or a producer of the demo, in a process that can be killed.

It ends when its input does, so nothing outlives the demo. What it says are lines of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pyarrow.feather as feather

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dafka import DafkaConfig, DafkaProducer, DafkaStore
from scribengin.log import LogNamespace
from scribengin_dev.harness.producer import due
from scribengin_registry.opening import connect

TOPIC = "flights"
STORED = f"dafka/{TOPIC}/"
"""Where the store keeps the topic's producers, a log each."""
_PUBLISHED_MAX = 1_000
_TICK_S = 0.1

Job = Mapping[str, Any]


def _store(job: Job) -> None:
    """Keep all topics, until the demo ends."""
    config = DafkaConfig.parse(job["network"], source="the demo")
    with (
        connect(job["hosts"]) as registry,
        LogNamespace.open(job["namespace"], registry=registry) as logs,
        DafkaStore(logs, config, prefix=STORED.partition("/")[0], take_over=True) as store,
    ):
        _say(address=store.address)
        sys.stdin.read()


def _producer(job: Job) -> None:
    """Publish the records of `file` from `first` on: `at_once` of them now, the others at their pace once `go` is said.
    With an `address` it is the producer that had it, and `first` the sequence with which it goes on."""
    config = DafkaConfig.parse(job["network"], source="the demo")
    contents = feather.read_table(job["file"])["payload"].to_pylist()
    done: int = job["first"]
    going_on = _said_go()
    with DafkaProducer(TOPIC, config, resume=(job["address"], done) if job["address"] else None) as producer:
        _say(address=producer.partition.address)

        def publish(until: int) -> None:
            nonlocal done
            while done < until:
                more = contents[done : min(until, done + _PUBLISHED_MAX)]
                done += len(more)
                producer.publish_many(more).add_done_callback(_say_acknowledged)

        at_once = min(done + job["at_once"], len(contents))
        publish(at_once)
        going_on.wait()
        begun_s = SYSTEM_CLOCK.monotonic_s()
        while done < len(contents):
            publish(due(SYSTEM_CLOCK.monotonic_s() - begun_s, job["duration_s"], at_once, len(contents)))
            threading.Event().wait(_TICK_S)


def _said_go() -> threading.Event:
    """Set once the demo says so. This process ends with its input."""
    going_on = threading.Event()

    def listen() -> None:
        for _line in sys.stdin:
            going_on.set()
        os._exit(1)

    threading.Thread(target=listen, name="input", daemon=True).start()
    return going_on


def _say_acknowledged(published: Future[range]) -> None:
    if published.exception() is None:
        _say(acknowledged=published.result().stop)


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


_ROLES: Mapping[str, Callable[[Job], None]] = {"store": _store, "producer": _producer}


def main(text: str) -> None:
    """Do the job."""
    job = json.loads(text)
    _ROLES[job["role"]](job)
    os._exit(0)  # at once: a thread that waits for input is in the way of an orderly end


if __name__ == "__main__":
    main(sys.argv[1])
