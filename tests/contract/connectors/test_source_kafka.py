"""Kafka topics as a source: the contract, where reading starts, and what is an error. On a real broker,
where the other side is kafka-python (tests/servers/kafka_side.py), and on the Kafka in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors.contract import RoundLimits
from scribengin.connectors.kafka.source.config import KafkaSourceConfig
from scribengin.connectors.kafka.source.hanging import LOOK_EVERY_S, OPEN_MAX_S
from scribengin.connectors.kafka.source.source import KafkaSource
from scribengin.errors import ConfigInvalid, DataflowError, PositionTruncated, RangeGone, SourceMissing
from scribengin.testing import check_source
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.kafka import KafkaServer
from tests.contract.connectors.clocks import LaterClock
from tests.contract.connectors.kafka_ranges import ALL, elsewhere, everything, names, numbered, payloads, reader, rows
from tests.servers.kafka_memory import MemorySide
from tests.servers.kafka_side import KafkaSide

TIMEOUT_S = 60.0
KEPT = {"retention_ms": "-1"}
"""For records with old timestamps: the broker would drop them at its next look."""
Open = Callable[..., KafkaSource]


CLUSTERS = [pytest.param("broker", marks=pytest.mark.servers), "memory"]
Side = KafkaSide | MemorySide


@pytest.fixture(scope="module", params=CLUSTERS)
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    if request.param == "memory":
        with MemorySide("in-memory:2").serving() as memory:
            yield memory
        return
    kafka: KafkaServer = request.getfixturevalue("kafka")
    side = KafkaSide(kafka.bootstrap)
    yield side
    side.close()


@pytest.fixture
def source(side: Side) -> Iterator[Open]:
    """Opens sources, and closes them after the test."""
    opened: list[KafkaSource] = []

    def open_source(has_tasks: bool = False, **settings: Any) -> KafkaSource:
        value = {"kind": "kafka", "bootstrap": side.bootstrap, "mirror_offsets": False, **settings}
        config = KafkaSourceConfig.parse(value, source="a test")
        opened.append(KafkaSource("in", config, "flow", SYSTEM_CLOCK, lambda: has_tasks))
        return opened[-1]

    yield open_source
    for each in opened:
        each.close()


def test_it_keeps_the_contract(side: Side) -> None:
    side.create("contract", partitions=2)
    config = KafkaSourceConfig.parse(
        {"kind": "kafka", "bootstrap": side.bootstrap, "topics": "contract"}, source="a test"
    )

    clock = LaterClock()

    def append(stream: str, values: Sequence[bytes]) -> None:
        side.send("contract", values, partition=int(stream.rpartition("/")[2]))
        clock.later_s += 0.01  # looks that are closer to each other share an answer

    check_source(lambda: KafkaSource("in", config, "flow", clock, lambda: False), append)


# -- which topics


def test_names_patterns_and_new_partitions_are_streams_in_the_order_that_people_count(side: Side, source: Open) -> None:
    for topic in ("flights-10", "flights-2", "flightsx"):
        side.create(topic)
    assert names(source(topics="flights-2")) == ["flights-2/0"]
    opened = source(pattern=r"flights-\d+")
    assert names(opened) == ["flights-2/0", "flights-10/0"]
    side.add_partitions("flights-2", 3)
    side.create("flights-3")
    assert names(opened) == ["flights-2/0", "flights-2/1", "flights-2/2", "flights-3/0", "flights-10/0"]
    assert names(source(topics=["flightsx"], pattern="flights-3")) == ["flights-3/0", "flightsx/0"]


def test_a_topic_that_is_not_there_is_named_with_those_that_are(side: Side, source: Open) -> None:
    side.create("there")
    with pytest.raises(SourceMissing, match=r"source 'in': there is no topic 'nowhere' at .*\(there are: ") as caught:
        source(topics=["there", "nowhere"]).streams()
    named = re.findall(r"\(there are: (.*)\)", str(caught.value))[0].split(", ")
    assert set(named) - {"..."} <= {name.partition("/")[0] for name in names(source(pattern=".*"))}
    assert "..." in named or "there" in named
    with pytest.raises(SourceMissing, match=r"there is no topic that matches 'nothing\.\*'"):
        source(pattern="nothing.*").streams()


def test_kafkas_own_topics_match_no_pattern(source: Open, side: Side) -> None:
    side.create("mine")
    assert all(not name.startswith("__") for name in names(source(pattern=".*")))


# -- what a record becomes


def test_everything_that_a_record_has_is_a_column(side: Side, source: Open) -> None:
    side.create("columns", **KEPT)
    headers = [("a", b"1"), ("b", b""), ("a", b"2")]
    side.send_record("columns", b"value", key=b"key", timestamp_ms=1_700_000_000_123, headers=headers)
    side.send_record("columns", b"", timestamp_ms=1_700_000_000_124)
    side.send_record("columns", None, key=b"gone", timestamp_ms=1_700_000_000_125)
    opened = reader(source(topics="columns"))
    full, empty, tombstone = rows(opened.plan(opened.initial_position(), ALL))
    assert full == {
        "txid": None,
        "channel": None,
        "key": b"key",
        "payload": b"value",
        "topic": "columns",
        "partition": 0,
        "offset": 0,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC),
        "timestamp_type": "create",
        "headers": [{"key": key, "value": value} for key, value in headers],
    }
    assert (empty["key"], empty["payload"], empty["offset"], empty["headers"]) == (None, b"", 1, [])
    assert (tombstone["key"], tombstone["payload"], tombstone["offset"]) == (b"gone", None, 2)


def test_tombstones_can_be_dropped_and_the_broker_may_be_the_one_to_stamp(side: Side, source: Open) -> None:
    side.create("stamped", message_timestamp_type="LogAppendTime")
    side.send("stamped", [b"1", None, b"2", None], key=b"k")
    opened = reader(source(topics="stamped", tombstones="drop"))
    plan = opened.plan(opened.initial_position(), ALL)
    assert [(row["payload"], row["timestamp_type"]) for row in rows(plan)] == [(b"1", "append"), (b"2", "append")]
    assert plan is not None
    assert opened.lag(plan.end) == 0


# -- where reading starts, and ends


def test_a_partition_without_a_position_is_read_from_where_the_config_says(side: Side, source: Open) -> None:
    side.create("starts", partitions=2, **KEPT)
    for n in range(10):
        side.send_record("starts", b"%d" % n, timestamp_ms=1_700_000_000_000 + n)
    assert everything(reader(source(topics="starts"))) == numbered(0, 10)
    assert everything(reader(source(topics="starts", start={"starts": {"0": 7}}))) == numbered(7, 10)
    assert everything(reader(source(topics="starts", start=1_700_000_000_006))) == numbered(6, 10)
    assert everything(reader(source(topics="starts", start="2023-11-14T22:13:20.008Z"))) == numbered(8, 10)
    assert everything(reader(source(topics="starts", start="2033-01-01"))) == []


def test_latest_is_the_end_at_the_first_split_and_what_comes_later_is_read_whole(side: Side, source: Open) -> None:
    side.create("latest")
    side.send("latest", numbered(0, 3))
    first = source(topics="latest", start="latest").streams()
    side.send("latest", numbered(3, 5))
    side.add_partitions("latest", 2)
    side.send("latest", numbered(5, 7), partition=1)
    later = source(topics="latest", start="latest", has_tasks=True)
    streams = [first[0], later.streams()[1]]
    assert [everything(later.open_reader(stream)) for stream in streams] == [numbered(3, 5), numbered(5, 7)]


def test_offsets_that_cannot_be_meant_are_refused(side: Side, source: Open) -> None:
    side.create("offsets")
    side.send("offsets", numbered(0, 3))
    with pytest.raises(ConfigInvalid, match="`start` names partition offsets/1, which is none of its 1 partitions"):
        source(topics="offsets", start={"offsets": {1: 0}}).streams()
    with pytest.raises(ConfigInvalid, match="`start` says offset 4, and the partition ends at 3"):
        reader(source(topics="offsets", start={"offsets": {0: 4}})).initial_position()


@pytest.mark.parametrize("until", ["latest", 1_700_000_000_006, {"bounded": {0: 6}}])
def test_a_bounded_source_ends_at_its_bound(side: Side, source: Open, until: Any) -> None:
    if "bounded" not in side.topics:
        side.create("bounded", **KEPT)
        for n in range(6):
            side.send_record("bounded", b"%d" % n, timestamp_ms=1_700_000_000_000 + n)
    end = 6 if until != "latest" else side.end("bounded")
    opened = reader(source(topics="bounded", until=until))
    side.send_record("bounded", b"later", timestamp_ms=1_700_000_000_007)
    start = opened.initial_position()
    assert opened.lag(start) == end
    assert not opened.ended(start)
    plan = opened.plan(start, ALL)
    assert plan is not None
    assert len(payloads(plan)) == end
    assert opened.ended(plan.end)
    assert (opened.plan(plan.end, ALL), opened.wait(plan.end, 0.0), opened.lag(plan.end)) == (None, False, 0)


def test_a_time_that_has_passed_without_a_record_ends_what_is_there(side: Side, source: Open) -> None:
    side.create("quiet", **KEPT)
    side.send_record("quiet", b"1", timestamp_ms=1_600_000_000_000)
    opened = reader(source(topics="quiet", until="2023-01-01"))
    plan = opened.plan(opened.initial_position(), ALL)
    assert payloads(plan) == [b"1"]
    assert plan is not None
    assert opened.ended(plan.end)
    assert not reader(source(topics="quiet", until="2200-01-01")).ended(plan.end)


def test_an_open_transaction_may_still_hold_what_is_before_the_time(side: Side, source: Open) -> None:
    side.create("open", **KEPT)
    with side.transactional("open-1") as producer:
        producer.begin_transaction()
        producer.send("open", b"1", timestamp_ms=1_600_000_000_000)
        producer.flush()
        opened = reader(source(topics="open", until="2023-01-01"))
        start = opened.initial_position()
        assert opened.plan(start, ALL) is None
        assert not opened.ended(start)
        producer.commit_transaction()
    wait_until(lambda: opened.plan(start, ALL) is not None, TIMEOUT_S, "the transaction to be visible")
    plan = opened.plan(start, ALL)
    assert plan is not None
    assert payloads(plan) == [b"1"]
    wait_until(lambda: opened.ended(plan.end), TIMEOUT_S, "the end")


# -- what is not there any more


def expired(side: Side, topic: str) -> None:
    """A topic of ten records whose first four are gone."""
    side.create(topic)
    side.send(topic, numbered(0, 10))
    side.delete_records(topic, 4)


def test_an_expired_offset_is_an_error_that_names_the_choices(side: Side, source: Open) -> None:
    expired(side, "expired")
    opened = reader(source(topics="expired"))
    expected = (
        r"source 'in', partition expired/0: offset 2 is wanted, and the first one that is still there is 4 "
        r"\(offsets 4 to 10 are there now\)\. Choose: `on_expired: earliest` goes on at 4, .*latest` at 10;"
    )
    with pytest.raises(PositionTruncated, match=expected):
        opened.plan({"offset": 2}, ALL)
    assert payloads(opened.plan({"offset": 4}, ALL)) == numbered(4, 10)


def test_what_is_skipped_by_choice_is_told(side: Side, source: Open, caplog: pytest.LogCaptureFixture) -> None:
    expired(side, "skipped")
    earliest = reader(source(topics="skipped", on_expired="earliest"))
    assert payloads(earliest.plan({"offset": 2}, ALL)) == numbered(4, 10)
    assert "going on at offset 4, as `on_expired: earliest` says, 2 offsets were skipped" in caplog.text
    latest = reader(source(topics="skipped", on_expired="latest"))
    plan = latest.plan({"offset": 2}, ALL)
    assert payloads(plan) == []
    assert plan is not None
    assert plan.end["offset"] == 10
    assert "going on at offset 10, as `on_expired: latest` says, 8 offsets were skipped" in caplog.text


def test_a_range_that_expires_after_it_was_planned_is_planned_again(side: Side, source: Open) -> None:
    side.create("raced")
    side.send("raced", numbered(0, 10))
    opened = reader(source(topics="raced"))
    plan = opened.plan(opened.initial_position(), ALL)
    side.delete_records("raced", 4)
    with pytest.raises(RangeGone, match="raced/0: the records from offset 0 on are gone since they were planned"):
        payloads(elsewhere(plan))


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(side: Side, source: Open) -> None:
    side.create("anew")
    side.send("anew", numbered(0, 3))
    opened = reader(source(topics="anew"))
    plan = opened.plan(opened.initial_position(), ALL)
    assert plan is not None
    side.delete("anew")
    side.create("anew")
    side.send("anew", numbered(100, 110))
    with pytest.raises(PositionTruncated, match="the topic was deleted and made anew since offset 3 was reached"):
        opened.plan(plan.end, ALL)
    going_on = reader(source(topics="anew", on_expired="earliest"))
    assert payloads(going_on.plan(plan.end, ALL)) == numbered(100, 110)


def test_a_partition_that_ends_before_its_position_has_lost_records(side: Side, source: Open) -> None:
    side.create("short")
    side.send("short", numbered(0, 3))
    with pytest.raises(DataflowError, match="everything before offset 5 was read, and the partition ends at 3 now"):
        reader(source(topics="short")).plan({"offset": 5}, ALL)


def test_a_topic_that_was_deleted_is_an_error_that_names_it(side: Side, source: Open) -> None:
    side.create("deleted")
    opened = reader(source(topics="deleted"))
    start = opened.initial_position()
    side.delete("deleted")
    with pytest.raises(DataflowError, match="deleted/0"):
        opened.plan(start, ALL)


@pytest.mark.parametrize("position", [{"segment": 1}, {"offset": -1}, {"offset": "1"}, {"offset": True}])
def test_something_else_is_no_position(side: Side, source: Open, position: dict[str, Any]) -> None:
    if "positions" not in side.topics:
        side.create("positions")
    with pytest.raises(DataflowError, match=r"partition positions/0: .* is no position in a partition"):
        reader(source(topics="positions")).plan(position, ALL)


# -- gaps


def test_what_a_transaction_aborted_is_passed_over_and_an_open_one_holds_back_its_partition_only(
    side: Side, source: Open
) -> None:
    side.create("transactions", partitions=2)
    opened = source(topics="transactions")
    first, second = reader(opened, "transactions/0"), reader(opened, "transactions/1")
    with side.transactional("writer") as writer:
        for fate in (writer.commit_transaction, writer.abort_transaction, writer.commit_transaction):
            writer.begin_transaction()
            for n in range(5):
                writer.send("transactions", f"{fate.__name__} {n}".encode(), partition=0)
            writer.flush()
            fate()
        side.await_markers()
        wanted = [f"commit_transaction {n}".encode() for n in range(5)]
        for limits in (ALL, RoundLimits(1, 10**9), RoundLimits(4, 10**9)):
            assert everything(first, limits) == wanted + wanted
        end = first.initial_position() | {"offset": 18}
        assert (first.plan(end, ALL), first.lag(end)) == (None, 0)
        writer.begin_transaction()
        writer.send("transactions", b"open", partition=0)
        writer.flush()
        side.send("transactions", [b"behind it"])
        side.send("transactions", [b"beside it"], partition=1)
        assert (first.plan(end, ALL), first.wait(end, 0.3)) == (None, False)
        assert everything(second) == [b"beside it"]
        writer.commit_transaction()
    assert first.wait(end, TIMEOUT_S)
    assert everything(first) == [*wanted, *wanted, b"open", b"behind it"]
    uncommitted = everything(reader(source(topics="transactions", isolation="read_uncommitted")))
    assert uncommitted[5:10] == [f"abort_transaction {n}".encode() for n in range(5)]


def test_what_a_transaction_that_hangs_holds_back_is_lag_and_is_said_once(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    side.create("hanging")
    clock = LaterClock()
    value = {"kind": "kafka", "bootstrap": side.bootstrap, "topics": "hanging", "mirror_offsets": False}
    opened = KafkaSource("in", KafkaSourceConfig.parse(value, source="a test"), "flow", clock, lambda: False)
    with closing(opened), side.transactional("hangs") as writer:
        stream = reader(opened)
        side.send("hanging", numbered(0, 3))
        end = stream.initial_position() | {"offset": 3}
        writer.begin_transaction()
        writer.send("hanging", b"open", partition=0)
        writer.flush()
        side.send("hanging", numbered(0, 4))
        lags = []
        for later_s in (0, LOOK_EVERY_S, OPEN_MAX_S - 1, 1, LOOK_EVERY_S):
            clock.later_s += later_s
            lags.append(stream.lag(end))
        assert lags == [0, 0, 0, 5, 5]
        [told] = [record.getMessage() for record in caplog.records if "holds back" in record.getMessage()]
        assert re.match(
            r"source 'in', partition hanging/0: a transaction of another producer has been open for 9\d\d s, and holds "
            r"back 5 offsets from 3 on; if it hangs, end it: `kafka-transactions.sh "
            rf"--bootstrap-server {side.bootstrap} abort --topic hanging --partition 0 --start-offset 3`$",
            told,
        )
        writer.abort_transaction()
        side.await_markers()
        clock.later_s += 1
        assert stream.lag(end) == 6  # with the marker: all of it can be read
        assert everything(stream) == numbered(0, 3) + numbered(0, 4)
        clock.later_s += OPEN_MAX_S + LOOK_EVERY_S
        assert stream.lag(end | {"offset": 9}) == 0
        assert sum("holds back" in record.getMessage() for record in caplog.records) == 1


def test_a_range_of_nothing_but_aborted_records_is_passed(side: Side, source: Open) -> None:
    side.create("aborted")
    opened = reader(source(topics="aborted"))
    with side.transactional("aborter") as writer:
        writer.begin_transaction()
        for _ in range(20):
            writer.send("aborted", b"never", partition=0)
        writer.flush()
        writer.abort_transaction()
    plan = opened.plan(opened.initial_position(), RoundLimits(7, 10**9))
    assert payloads(plan) == []
    assert everything(opened, RoundLimits(7, 10**9)) == []


@pytest.mark.parametrize("side", CLUSTERS[:1], indirect=True, scope="module")  # only brokers compact
def test_the_holes_of_a_compacted_topic_hold_nobody_up(side: Side, source: Open) -> None:
    side.create("compacted", cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01")
    for n in range(40):
        side.send("compacted", [b"%d" % n], key=b"k%d" % (n % 4))
    opened = reader(source(topics="compacted"))
    rolled = iter(range(40, 10**6))

    def is_compacted() -> bool:
        side.send("compacted", [b"%d" % next(rolled)], key=b"roll")  # a segment is rolled by what comes after it
        return len(everything(opened)) < 20

    wait_until(is_compacted, TIMEOUT_S, "the log cleaner")
    for limits in (ALL, RoundLimits(3, 10**9), RoundLimits(1, 10**9)):
        found = [int(payload or b"") for payload in everything(opened, limits)]
        assert found == sorted(set(found))
        assert set(range(36, 40)) <= set(found)


# -- limits and sizes


def test_a_round_of_large_records_keeps_its_bytes(side: Side, source: Open) -> None:
    side.create("large")
    side.send("large", [b"x" * 10] * 300 + [b"y" * 100_000] * 300)
    opened = reader(source(topics="large"))
    position = opened.initial_position()
    sizes, records = [], 0
    while (plan := opened.plan(position, RoundLimits(10**6, 4 * 1024 * 1024))) is not None:
        found = payloads(plan)
        sizes.append(sum(len(payload or b"") for payload in found))
        records += len(found)
        position = plan.end
    assert records == 600
    assert max(sizes) <= 4 * 1024 * 1024


def test_a_config_that_means_nothing_is_refused_in_one_line() -> None:
    wrong = {
        "give topics": {},
        "is no regular expression": {"pattern": "("},
        "'nowhere' is not of the form host:port": {"topics": "t", "bootstrap": "nowhere"},
        "'group.id' is set by Scribengin: a source has `group` for that": {"topics": "t", "client": {"group.id": "g"}},
        "'soon' is neither earliest, latest, a time as in": {"topics": "t", "start": "soon"},
        "an offset is 0 or more": {"topics": "t", "start": {"t": {0: -1}}},
        "until: earliest would read nothing": {"topics": "t", "until": "earliest"},
    }
    for message, settings in wrong.items():
        with pytest.raises(ConfigInvalid, match=re.escape(message)) as caught:
            KafkaSourceConfig.parse({"kind": "kafka", "bootstrap": "h:1", **settings}, source="a test")
        assert "\n" not in str(caught.value)
