"""A topic of Dafka is a source: producers that come and go are streams, live and from stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import scribengin.connectors.dafka.source as source_module
import scribengin.dafka.follower as follower_module
from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.model import Position
from scribengin.connectors.contract import (
    PAYLOAD,
    PlannedRange,
    RoundLimits,
    SourceStreamDescriptor,
    SourceStreamReader,
    StartAt,
)
from scribengin.connectors.dafka.config import DafkaSourceConfig
from scribengin.connectors.dafka.source import DafkaSource
from scribengin.dafka import DafkaProducer, DafkaTower
from scribengin.errors import (
    ConfigInvalid,
    DafkaClosed,
    DataflowError,
    PositionTruncated,
    SourceMissing,
    SystemUnreachable,
)
from scribengin.log import LogNamespace
from scribengin.testing import check_source
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin.testing.waiting import wait_until
from tests.contract.connectors.dafka_network import TOPIC, Network
from tests.integration.dafka.dafka_roles import LISTENING, asks_again_soon

__all__ = ["asks_again_soon"]

ALL = RoundLimits(10**6, 10**9)


@pytest.fixture
def network(memory_registry: MemoryRegistry, tmp_path: Path) -> Iterator[Network]:
    LogNamespace.bind("/logs", tmp_path / "logs", registry=memory_registry)
    with LogNamespace.open("/logs", registry=memory_registry) as logs, DafkaTower(LISTENING) as tower:
        network = Network(tower, logs)
        with network.opened:
            yield network


def payloads(plan: PlannedRange | None) -> list[bytes]:
    assert plan is not None
    return [one for split in plan.splits for batch in split.read() for one in batch[PAYLOAD].to_pylist()]


def numbered(first: int, end: int) -> list[bytes]:
    return [b"record %d" % n for n in range(first, end)]


@pytest.mark.long
def test_producers_are_streams_of_a_source(network: Network) -> None:
    network.store()
    for _ in range(2):
        network.append(network.producer(), [b"first"])
    check_source(network.settled, network.append)


def read_on(reader: SourceStreamReader, position: Position, count: int, each: int = 10**6) -> Position:
    """Rounds until so many records were read, which must be those numbered from the position on."""
    read: list[bytes] = []
    first = int(position["sequence"])
    while len(read) < count:
        assert reader.wait(position, 60.0)
        plan = reader.plan(position, RoundLimits(min(each, count - len(read)), 10**9))
        read += payloads(plan)
        assert plan is not None
        position = plan.end
    assert read == numbered(first, first + count)
    return position


def test_live_and_stored_records_are_one_stream(network: Network) -> None:
    stream = network.producer()
    producer = network.producers[stream]
    network.publish(stream, numbered(0, 50))  # no store has them: they come from the producer
    source = network.settled(held_bytes_max=1024)  # about a hundred of these records
    [descriptor] = source.streams()
    with closing(source.open_reader(descriptor)) as reader:
        assert reader.initial_position() == {"sequence": 0}
        position = read_on(reader, {"sequence": 0}, 50)
        store = network.store()
        network.append(stream, numbered(50, 3000))  # far more than is held: most of them pass by
        position = read_on(reader, position, 1500)
        producer.close(60)
        position = read_on(reader, position, 1450)  # the store alone has them
        assert reader.lag(position) == 0
        assert reader.plan(position, ALL) is None
        store.close()
        network.store()
        read_on(reader, {"sequence": 1234}, 1000, each=300)  # somebody goes back


def test_a_follower_that_has_failed_ends_its_readers_and_not_the_source(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tasks of a process share it. What failed may be over when they are tried again."""
    network.store()
    network.append(network.producer(), numbered(0, 10))
    source = network.settled()
    [descriptor] = source.streams()
    failed = source.follower()
    with closing(source.open_reader(descriptor)) as reader:

        def fails(_: float) -> None:
            raise MemoryError("no memory")

        monkeypatch.setattr(failed, "on_tick", fails)
        wait_until(lambda: failed.failure is not None)
        with pytest.raises(DafkaClosed, match="has ended: no memory"):
            reader.plan({"sequence": 0}, ALL)
    with closing(source.open_reader(descriptor)) as reader:
        read_on(reader, {"sequence": 0}, 10)
    source.close()
    with pytest.raises(DafkaClosed, match="was closed"):
        source.streams()


def test_a_producer_that_appears_later_is_a_stream_and_one_that_is_gone_still_is(network: Network) -> None:
    network.store()
    first = network.producer()
    network.append(first, numbered(0, 10))
    source = network.settled()
    assert [stream.name for stream in source.streams()] == [first]
    network.producers[first].close(60)
    second = network.producer()
    network.append(second, numbered(0, 5))
    found = source.streams()
    assert {stream.name for stream in found} == {first, second}
    for stream in found:
        with closing(source.open_reader(stream)) as reader:
            read_on(reader, reader.initial_position(), 10 if stream.name == first else 5)


def test_a_producer_that_stays_away_is_done_with_and_goes_on_where_it_stands_when_it_comes_back(
    network: Network,
) -> None:
    network.store()
    stream = network.producer()
    gone = network.producers[stream]
    network.append(stream, numbered(0, 10))
    source = network.settled(forgets_after_s=1.0)
    [descriptor] = source.streams()
    with closing(source.open_reader(descriptor)) as reader:
        position = read_on(reader, {"sequence": 0}, 10)
        wait_until(lambda: source.goes_on(descriptor, position))
        gone.close(60)
        wait_until(lambda: reader.ended(position))
        wait_until(lambda: not source.goes_on(descriptor, position))
        assert not reader.ended({"sequence": 9})
        assert source.goes_on(descriptor, {"sequence": 9})
        assert source.streams_leave
    back = DafkaProducer(TOPIC, network.config, resume=(gone.partition.address, 10))
    with closing(back):
        back.publish_many(numbered(10, 15)).result(60)
        wait_until(lambda: source.goes_on(descriptor, position))
        with closing(source.open_reader(descriptor)) as reader:
            position = read_on(reader, position, 5)
            wait_until(lambda: not reader.ended(position), what="it says that it is there, and publishes nothing")
    never = network.settled(forget_after_s=None)
    assert never.streams_leave  # those that were forgotten before have left their tasks
    assert never.goes_on(descriptor, position)
    with closing(never.open_reader(descriptor)) as reader:
        assert not reader.ended(position)


def test_a_producer_that_is_not_heard_has_gone_only_once_its_reader_has_listened_for_long(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the task of a worker that alone does not hear it would end as soon as it is run again."""
    network.store()
    stream = network.producer()
    network.append(stream, numbered(0, 10))
    network.producers[stream].close(60)
    source = network.settled(forget_after_s=600.0)
    [descriptor] = source.streams()
    clock = MovedClock()
    monkeypatch.setattr(source_module, "SYSTEM_CLOCK", clock)
    monkeypatch.setattr(follower_module, "SYSTEM_CLOCK", clock)
    with closing(source.open_reader(descriptor)) as early:
        assert not early.ended({"sequence": 10})
        clock.ahead_s = 1000.0
        assert early.ended({"sequence": 10})
        with closing(source.open_reader(descriptor)) as late:
            assert not late.ended({"sequence": 10})
            clock.ahead_s = 2000.0
            assert late.ended({"sequence": 10})


class MovedClock:
    """That of the system, so many seconds ahead."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return SYSTEM_CLOCK.monotonic_s() + self.ahead_s


@pytest.mark.parametrize("after_s", [0.5, 4.9])
def test_a_silence_that_is_none_is_refused_in_a_line(after_s: float) -> None:
    said = {"kind": "dafka", "topic": TOPIC, "forget_after_s": after_s}
    with pytest.raises(ConfigInvalid, match=r"forget_after_s: .* is too low: 5 or more") as refused:
        DafkaSourceConfig.parse(said, source="quiet.yaml")
    assert "\n" not in str(refused.value)


def test_latest_begins_behind_what_was_there(network: Network) -> None:
    network.store()
    stream = network.producer()
    network.append(stream, numbered(0, 10))
    source = network.settled(start="latest")
    [descriptor] = source.streams()
    network.append(stream, numbered(10, 15))
    with closing(source.open_reader(descriptor)) as reader:
        assert reader.initial_position() == {"sequence": 10}
        read_on(reader, {"sequence": 10}, 5)


def test_positions_are_found_by_name(network: Network) -> None:
    network.store()
    network.append(network.producer(), numbered(0, 10))
    source = network.settled()
    [stream] = source.streams()
    assert source.position_at(stream, StartAt("earliest")) == {"sequence": 0}
    assert source.position_at(stream, StartAt("latest")) == {"sequence": 10}
    unknown = stream.model_copy(update={"name": f"{stream.name}0"})  # nobody tells of it just now, and it was read once
    assert source.position_at(unknown, StartAt("latest"), {"sequence": 12}) == {"sequence": 12}
    assert source.position_at(stream, StartAt("offset", 4)) == {"sequence": 4}
    with pytest.raises(ConfigInvalid, match="has sequences from 0 to 9"):
        source.position_at(stream, StartAt("offset", 11))
    with pytest.raises(ConfigInvalid, match="cannot be rewound to time 5"):
        source.position_at(stream, StartAt("time", 5))
    with closing(source.open_reader(stream)) as reader, pytest.raises(DataflowError, match="is no position"):
        reader.plan({"offset": 3}, ALL)


@pytest.mark.usefixtures("asks_again_soon")
@pytest.mark.long
def test_what_retention_has_taken_is_said_or_passed_over(network: Network) -> None:
    store, stream, kept = network.store(), network.producer(), 40
    network.append(stream, numbered(0, 100))
    network.producers[stream].close(60)
    store.close()
    [log] = network.logs.names()
    with network.logs.open_reader(log) as stored:
        network.logs.truncate(log, stored.read(kept + 1)[-1].dlsn)
    network.store()
    source = network.settled()
    [descriptor] = source.streams()
    with closing(source.open_reader(descriptor)) as reader:
        plan = reader.plan({"sequence": 0}, ALL) if reader.wait({"sequence": 0}, 60.0) else None
        assert payloads(plan)[0] == b"record %d" % kept  # whoever begins takes what there is
        assert reader.wait({"sequence": 7}, 60.0)
        with pytest.raises(PositionTruncated, match=f"nobody keeps the records from 7 to {kept - 1} any more"):
            reader.plan({"sequence": 7}, ALL)
    source = network.settled(skip_gone=True)
    with closing(source.open_reader(descriptor)) as reader:
        assert reader.wait({"sequence": 7}, 60.0)
        assert payloads(reader.plan({"sequence": 7}, ALL))[0] == b"record %d" % kept
    for source in network.sources:
        for there in (0, kept, 99, 100):
            with closing(source.open_reader(descriptor)) as reader:
                reader.refuse_gone({"sequence": there})
        wait_until(lambda source=source: is_refused(source, descriptor, 7), what="who keeps the rest to have said so")


def is_refused(source: DafkaSource, descriptor: SourceStreamDescriptor, sequence: int) -> bool:
    """Whether a rewind to there is, by one who looks for the first time."""
    with closing(source.open_reader(descriptor)) as reader:
        try:
            reader.refuse_gone({"sequence": sequence})
        except PositionTruncated as error:
            return "nobody keeps the records" in str(error)
    return False


@pytest.mark.usefixtures("asks_again_soon")
def test_where_retention_has_taken_all_whoever_begins_stands_behind_it_and_is_done(network: Network) -> None:
    network.store()
    stream = network.producer()
    network.append(stream, numbered(0, 10))
    network.producers[stream].close(60)
    [log] = network.logs.names()
    network.logs.truncate(log, network.logs.end_dlsn(log))
    source = network.settled(forgets_after_s=0.1)
    [descriptor] = source.streams()
    with closing(source.open_reader(descriptor)) as reader:
        assert reader.wait({"sequence": 0}, 60.0)
        assert reader.plan({"sequence": 0}, ALL) == PlannedRange({"sequence": 0}, {"sequence": 10}, 0, ())
        wait_until(lambda: reader.ended({"sequence": 10}))
        assert reader.lag({"sequence": 10}) == 0
        wait_until(lambda: not source.goes_on(descriptor, {"sequence": 10}))


def test_nobody_there_is_one_line(network: Network) -> None:
    with pytest.raises(SourceMissing, match="no producer of topic 'flights' is known, and no store keeps records"):
        network.source().streams()
    silent = network.source(beacon={"pub_address": "tcp://127.0.0.1:9", "interval": 50, "timeout": 100})
    with pytest.raises(SystemUnreachable, match=r"^source 'in': no tower answers at tcp://127.0.0.1:9: start one$"):
        silent.streams()
