"""Numbered records: what a sender sends again stands in the log once, whoever wrote it and however that ended."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from scribengin.errors import ConfigInvalid, DamagedEntry, LogError, OverCapacity, RecordTooLarge, SenderUnknown
from scribengin.log import LogConfig, LogNamespace, LogWriter
from scribengin.log.clients import recover_log
from scribengin.log.write.results import SlotRange
from scribengin.testing.clocks import ManualClock
from scribengin.testing.failpoints import at_failpoint, record_stops
from scribengin.testing.log_samples import damage_segment, payload_batch, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from tests.registry_copies import restore, saved
from tests.servers.memory import LogPlace

LOG = "flights/0"
A, B = b"a" * 16, b"b" * 16


@pytest.fixture
def place(memory_registry: MemoryRegistry) -> LogPlace:
    return LogPlace(memory_registry, MemoryDisk("disk of the senders"))


@pytest.fixture
def namespace(place: LogPlace) -> LogNamespace:
    return place.bound(LOG)


def send(
    writer: LogWriter, number: int, *payloads: bytes, sender: bytes = A, answered: int = 0
) -> Future[tuple[SlotRange, ...]]:
    return writer.write_numbered(payload_batch(payloads), sender=sender, number=number, answered=answered)


def test_what_is_sent_again_is_told_where_it_stands(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG, senders=True) as writer:
        first = send(writer, 1, b"1").result(120)
        assert send(writer, 1, b"1").result(120) == first
        both = send(writer, 1, b"1", b"2").result(120)
        assert both[0] == first[0]
        assert send(writer, 1, b"other", sender=B).result(120) != first
    assert payloads_read(namespace, LOG) == [b"1", b"2", b"other"]


def test_the_next_writer_knows_what_the_one_before_has_written(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG, senders=True) as writer:
        places = send(writer, 1, b"1", b"2").result(120)
    with namespace.open_writer(LOG, senders=True) as writer:
        assert send(writer, 1, b"1", b"2", b"3").result(120)[0] == places[0]
    with namespace.open_writer(LOG) as plain:
        plain.write(b"of nobody").result(120)
    with namespace.open_writer(LOG, senders=True) as writer:
        assert send(writer, 2, b"2", answered=1).result(120) == (SlotRange(places[0].first._replace(slot=1), 1),)
        with pytest.raises(SenderUnknown):
            send(writer, 5, b"5")
    assert payloads_read(namespace, LOG) == [b"1", b"2", b"3", b"of nobody"]


def test_small_requests_of_many_senders_share_an_entry(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG, senders=True) as writer:
        entered, go = threading.Event(), threading.Event()

        def hold(_stop: str) -> None:
            entered.set()
            assert go.wait(120)

        with at_failpoint("log.segment_sync:before", hold):
            send(writer, 1, b"first")
            assert entered.wait(120)
            futures = [send(writer, 1, b"%d" % n, sender=b"%016d" % n) for n in range(50)]
            go.set()
            places = [future.result(120)[0].first for future in futures]
    assert len({(place.segment, place.entry) for place in places}) == 1
    assert [place.slot for place in places] == list(range(50))


def test_segments_that_follow_hold_the_table_too(place: LogPlace) -> None:
    namespace = place.bound(LOG, config=LogConfig(segment_bytes_max=4096))
    with namespace.open_writer(LOG, senders=True) as writer:
        early = send(writer, 1, b"of B", sender=B).result(120)
        for number in range(1, 20):
            send(writer, number, bytes(1500), answered=number - 1).result(120)
    assert len(namespace.segments(LOG)) > 3
    with namespace.open_writer(LOG, senders=True) as writer:
        assert send(writer, 1, b"of B", sender=B).result(120) == early
        assert send(writer, 19, bytes(1500), answered=18).result(120)
    assert len(payloads_read(namespace, LOG)) == 20


class LeapingClock(ManualClock):
    """Lets `leap_s` pass right after the look of that number from now on."""

    leap_s = 11.0
    look: int | None = None

    def monotonic_s(self) -> float:
        now_s = super().monotonic_s()
        if self.look is not None:
            self.look -= 1
            if self.look == 0:
                self.advance_s(self.leap_s)
        return now_s


@pytest.mark.parametrize("look", range(1, 5))
def test_a_segment_that_becomes_due_while_a_group_is_written_holds_the_table_too(place: LogPlace, look: int) -> None:
    place.bound(LOG, config=LogConfig(segment_age_max_s=10))
    clock = LeapingClock()
    namespace = LogNamespace.open("/logs", registry=place.registry, clock=clock)
    writer = namespace.open_writer(LOG, senders=True)
    early = send(writer, 1, b"of A").result(120)
    clock.look = look
    send(writer, 1, b"of B", sender=B).result(120)
    assert clock.look <= 0, "it leapt while that was written"
    writer.abort()
    with namespace.open_writer(LOG, senders=True) as successor:
        assert send(successor, 1, b"of A").result(120) == early
    assert payloads_read(namespace, LOG) == [b"of A", b"of B"]


def test_what_was_truncated_and_purged_is_known_still(place: LogPlace) -> None:
    namespace = place.bound(LOG)
    with namespace.open_writer(LOG, senders=True) as writer:
        sent = send(writer, 1, b"1").result(120)
    namespace.truncate(LOG, namespace.end_dlsn(LOG))
    namespace.purge(LOG)
    with namespace.open_writer(LOG, senders=True) as writer:
        assert send(writer, 1, b"1").result(120) == sent
    assert payloads_read(namespace, LOG) == []


def test_what_others_have_truncated_since_does_not_stay_for_what_is_known_of_senders(place: LogPlace) -> None:
    place.bound(LOG)
    clock = ManualClock()
    namespace = LogNamespace.open("/logs", registry=place.registry, clock=clock)
    with namespace.open_writer(LOG, senders=True) as writer:
        sent = send(writer, 1, b"1").result(120)
    for number in range(3):
        with namespace.open_writer(LOG) as plain:
            plain.write(b"%d of nobody" % number).result(120)
    namespace.truncate(LOG, namespace.end_dlsn(LOG))
    namespace.purge(LOG)
    with namespace.open_writer(LOG, senders=True) as writer:
        assert send(writer, 1, b"1").result(120) == sent, "it may be sent again still"
    assert len(namespace.segments(LOG)) == 4
    clock.advance_s(24 * 3600)
    namespace.purge(LOG)
    assert namespace.segments(LOG) == ()


def test_what_is_known_outlives_the_raw_file(place: LogPlace) -> None:
    namespace = place.bound(LOG)
    with namespace.open_writer(LOG, senders=True) as writer:
        sent = send(writer, 1, b"1").result(120)
    assert namespace.compress(LOG, "zstd") == 1
    namespace.configure(LOG, LogConfig(copy_codec="zstd", raw_retention_hours=0))
    namespace.purge(LOG)
    assert namespace.segments(LOG)[0].raw_dropped_ms is not None
    with namespace.open_writer(LOG, senders=True) as writer:
        assert send(writer, 1, b"1").result(120) == sent


def test_what_is_taken_back_into_a_log_whose_registry_went_back_is_known(place: LogPlace) -> None:
    namespace = place.bound(LOG)
    with namespace.open_writer(LOG, senders=True) as writer:
        send(writer, 1, b"1").result(120)
    backup = saved(place.registry)
    with namespace.open_writer(LOG, senders=True) as writer:
        sent = send(writer, 2, b"2", answered=1).result(120)
        of_b = send(writer, 1, b"of B", sender=B).result(120)
    with namespace.open_writer(LOG) as plain:
        plain.write(b"of nobody").result(120)
    restore(place.registry, backup)
    namespace = LogNamespace.open("/logs", registry=place.registry)
    recover_log(namespace, LOG)
    with namespace.open_writer(LOG, senders=True) as writer:
        assert send(writer, 2, b"2", answered=1).result(120) == sent
        assert send(writer, 1, b"of B", sender=B).result(120) == of_b
    assert payloads_read(namespace, LOG) == [b"1", b"2", b"of B", b"of nobody"]


def test_a_batch_larger_than_an_entry_is_found_whole(place: LogPlace) -> None:
    namespace = place.bound(LOG, config=LogConfig(entry_bytes_max=1024))
    payloads = [bytes([n]) * 400 for n in range(20)]
    with namespace.open_writer(LOG, senders=True) as writer:
        places = send(writer, 1, *payloads).result(120)
    assert len(places) > 1
    with namespace.open_writer(LOG, senders=True) as writer:
        assert send(writer, 1, *payloads).result(120) == places
    assert payloads_read(namespace, LOG) == payloads


def test_what_is_refused_has_no_number(place: LogPlace) -> None:
    namespace = place.bound(LOG, config=LogConfig(record_bytes_max=10, outstanding_writes_max=3))
    with namespace.open_writer(LOG, senders=True) as writer:
        with pytest.raises(RecordTooLarge):
            send(writer, 1, bytes(11))
        with pytest.raises(OverCapacity):
            send(writer, 1, *[b"x"] * 4)
        assert send(writer, 1, b"1").result(120)


def test_a_writer_takes_numbers_or_stages(namespace: LogNamespace) -> None:
    with pytest.raises(ConfigInvalid, match="not both"):
        namespace.open_writer(LOG, senders=True, commit_log="commits")
    with namespace.open_writer(LOG) as writer, pytest.raises(LogError, match="senders=True"):
        send(writer, 1, b"1")


def test_damage_to_what_is_known_is_told(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG, senders=True) as writer:
        send(writer, 1, b"1").result(120)
    damage_segment(namespace, LOG, 1, 10)
    with pytest.raises(DamagedEntry, match="numbers of senders"):
        namespace.open_writer(LOG, senders=True)
    namespace.open_writer(LOG).close()


class _Died(BaseException):
    """The process is gone."""


def _script(namespace: LogNamespace) -> list[bytes]:
    """Two senders send, and a segment is rolled; what was sent, in the order of each."""
    with namespace.open_writer(LOG, senders=True) as writer:
        for number in range(1, 5):
            send(writer, number, b"A%d" % number + bytes(1500), answered=number - 1).result(120)
            send(writer, number, b"B%d" % number, sender=B, answered=number - 1).result(120)
    return [b"A1", b"B1", b"A2", b"B2", b"A3", b"B3", b"A4", b"B4"]


def _stops() -> list[tuple[str, int]]:
    with MemoryRegistryOfItsOwn() as place, record_stops() as passed:
        _script(place.bound(LOG, config=LogConfig(segment_bytes_max=4096)))
    counts: dict[str, int] = {}
    found = []
    for stop in passed:
        counts[stop] = counts.get(stop, 0) + 1
        if stop.startswith(("log.seg", "log.metadata", "log.tail")):
            found.append((stop, counts[stop]))
    return found


class MemoryRegistryOfItsOwn:
    """A place that is nobody else's."""

    def __enter__(self) -> LogPlace:
        self._session = MemoryEnsemble().connect()
        self._disk = MemoryDisk(f"disk {id(self)}")
        return LogPlace(self._session, self._disk)

    def __exit__(self, *_: object) -> None:
        self._session.close()


@pytest.mark.parametrize("power_fails", [False, True])
def test_a_writer_that_dies_anywhere_is_followed_by_one_that_knows(power_fails: bool) -> None:
    """At every stop on the way of a group, a segment and a roll: both senders go on with what was not answered."""
    stops = _stops()
    assert len(stops) > 20
    for stop, occurrence in stops:
        with MemoryRegistryOfItsOwn() as place:
            namespace = place.bound(LOG, config=LogConfig(segment_bytes_max=4096))
            answered = _until_death(namespace, stop, occurrence)
            if power_fails:
                assert isinstance(place.location, MemoryDisk)
                place.location.crash(occurrence)
            with namespace.open_writer(LOG, senders=True, steal=True) as writer:
                for sender, letter in ((A, b"A"), (B, b"B")):
                    done = answered[letter]
                    rest = [letter + b"%d" % n + (bytes(1500) if letter == b"A" else b"") for n in range(done + 1, 5)]
                    if rest:
                        writer.write_numbered(
                            payload_batch(rest), sender=sender, number=done + 1, answered=done
                        ).result(120)
            seen = [payload[:2] for payload in payloads_read(namespace, LOG)]
            for letter in (b"A", b"B"):
                assert [one for one in seen if one.startswith(letter)] == [letter + b"%d" % n for n in range(1, 5)], (
                    stop,
                    occurrence,
                )


def _until_death(namespace: LogNamespace, stop: str, occurrence: int) -> dict[bytes, int]:
    """Send until the writer dies at the stop; up to where each sender was answered."""
    answered = {b"A": 0, b"B": 0}

    def die(_stop: str) -> None:
        raise _Died

    with at_failpoint(stop, die, occurrence=occurrence):
        try:
            writer = namespace.open_writer(LOG, senders=True)
            for number in range(1, 5):
                for sender, letter, size in ((A, b"A", 1500), (B, b"B", 0)):
                    payload = letter + b"%d" % number + bytes(size)
                    writer.write_numbered(
                        payload_batch([payload]), sender=sender, number=number, answered=number - 1
                    ).result(120)
                    answered[letter] = number
            writer.close()
        except _Died:
            pass
    return answered
