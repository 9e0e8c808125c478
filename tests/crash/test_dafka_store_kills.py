"""A Dafka store that is killed before or after any of its effects loses nothing that it has acknowledged, and stores
nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from scribengin.dafka import DafkaConfig, DafkaProducer, DafkaStore, DafkaTower
from scribengin.log import LogNamespace
from scribengin.testing.failpoints import record_stops
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from tests.crash.dafka_store import LOGS, start_store
from tests.crash.stops import Stop, stops_to_try
from tests.integration.dafka.dafka_roles import LISTENING, config_of

GROUPS, RECORDS = 20, 40
"""What each producer publishes: several segments of `LOGS`."""
KILLS = [
    Stop("log.segment_create:after", "kill", 1),
    Stop("log.segment_write:after", "kill", 5),
    Stop("log.segment_sync:before", "kill", 5),
    Stop("log.segment_sync:after", "kill", 5),
    Stop("log.metadata:before", "kill", 2),
    Stop("log.metadata:after", "kill", 2),
]


@pytest.fixture
def config() -> Iterator[DafkaConfig]:
    with DafkaTower(LISTENING) as tower:
        yield config_of(tower)


@pytest.fixture
def logs(registry: Registry, tmp_path: Path) -> Iterator[LogNamespace]:
    LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
    with LogNamespace.open("/logs", registry=registry) as namespace:
        yield namespace


def publish(producer: DafkaProducer, group: int) -> Future[range]:
    return producer.publish_many([b"%d" % (group * RECORDS + n) for n in range(RECORDS)])


def publish_all(producer: DafkaProducer, process: ForkServerProcess) -> int:
    """Group after group, as long as the store lives, and the rest at once. Returns how many it has acknowledged."""
    acknowledged = 0
    for group in range(GROUPS):
        future = publish(producer, group)
        wait_until(lambda: future.done() or process.exitcode is not None, timeout_s=60)  # noqa: B023  used at once
        if future.done():
            acknowledged = future.result(0).stop
    return acknowledged


def check_kill(logs: LogNamespace, hosts: str, config: DafkaConfig, stop: Stop) -> None:
    """A store that dies there, and another one after it, have all of a producer."""
    with DafkaProducer("flights", config) as producer:
        name = f"dafka/flights/{producer.partition.address}"
        process = start_store(hosts, config, stop.name, stop.occurrence)
        acknowledged = publish_all(producer, process)
        process.kill()  # if it has not come by there so often
        process.join()
        if acknowledged:
            last = logs.last_record(name)
            assert last is not None, stop
            assert last.txid + 1 >= acknowledged, stop
        with DafkaStore(logs, config, log_config=LOGS, take_over=True) as store:
            producer.flush(60)
            store.check()
            assert store.stored[producer.partition] == (0, GROUPS * RECORDS), stop
    with logs.open_reader(name) as reader:
        found = [(record.txid, record.payload) for record in reader.read(GROUPS * RECORDS + 1)]
        while more := reader.read(1000):
            found += [(record.txid, record.payload) for record in more]
    assert found == [(n, b"%d" % n) for n in range(GROUPS * RECORDS)], stop


def test_a_store_killed_on_its_way_loses_nothing_acknowledged(
    logs: LogNamespace, registry_hosts: str, config: DafkaConfig
) -> None:
    for stop in KILLS:
        check_kill(logs, registry_hosts, config, stop)


@pytest.mark.full
def test_a_store_killed_at_any_effect_loses_nothing_acknowledged(
    logs: LogNamespace, registry_hosts: str, config: DafkaConfig
) -> None:
    with record_stops() as passed, DafkaStore(logs, config, log_config=LOGS), DafkaProducer("flights", config) as one:
        for group in range(GROUPS):
            publish(one, group).result(60)
    stops = stops_to_try(passed)
    assert {stop.name for stop in KILLS} <= set(Counter(passed))
    for stop in stops:
        check_kill(logs, registry_hosts, config, stop)
