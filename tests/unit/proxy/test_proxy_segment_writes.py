"""What a proxy does for writers elsewhere: which segments it makes, and when it closes what they have left open."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from scribengin.base.threads import background
from scribengin.errors import Fenced, LogWriteFailed, StoreUnreachable, WritersTooMany
from scribengin.log.store.contract import SEGMENT_MAX, SegmentName
from scribengin.proxy.wire import segments as wire
from scribengin.proxy.wire.answers import Answer, AskDone, Refused
from scribengin.proxy.writing import segments as writing
from scribengin.proxy.writing.segments import IDLE_S, SegmentWrites
from scribengin.testing.clocks import ManualClock
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.worker.failures import Remedy, remedy_for
from scribengin_registry.errors import RegistryUnreachable

LOG, OTHER = "orders/eu", "flights/0"


class Place:
    """A proxy's writes over a namespace in memory. Its logs have had one owner."""

    def __init__(self, stack: ExitStack) -> None:
        self.clock = ManualClock()
        self.ensemble = MemoryEnsemble()
        self.registry = stack.enter_context(self.ensemble.connect())
        disk = MemoryDisk(f"disk {id(self)}")
        self.namespace = stack.enter_context(bound_namespace(self.registry, disk.name, LOG, OTHER, store=MEMORY_STORE))
        self.take(LOG, OTHER)
        self.writes = stack.enter_context(SegmentWrites(self.namespace, "a proxy", self.clock))

    def take(self, *logs: str) -> None:
        """Logs get another owner, who does nothing."""
        for log in logs:
            self.namespace.open_writer(log).close()

    def named(self, segment: int = 1, epoch: int = 1, log: str = LOG) -> SegmentName:
        return SegmentName(self.namespace._metadata(log).descriptor().directory, segment, epoch)

    def ask(self, op: str, name: SegmentName, **fields: object) -> Answer:
        request = wire.about_segment(op, name, **{"handle": "a", "fsync": True, **fields})
        if op in (wire.APPEND, wire.SAVE_INDEX):
            request = replace(request, data=pa.py_buffer(b""))
        return self.writes.asked[op][1](request)

    def done(self, op: str, name: SegmentName, **fields: object) -> None:
        assert isinstance(self.ask(op, name, **fields), AskDone)

    def refused(self, op: str, name: SegmentName, **fields: object) -> Exception:
        answer = self.ask(op, name, **fields)
        assert isinstance(answer, Refused), answer
        return answer.error

    def expect_writable(self) -> None:
        """Somebody becomes the log's next writer, and writes."""
        with self.namespace.open_writer(LOG) as writer:
            writer.write(b"1").result(120)
        assert payloads_read(self.namespace, LOG) == [b"1"]

    def sweep(self) -> int:
        """Long after the last step. How many segments are open then."""
        self.clock.advance_s(IDLE_S)
        self.writes.sweep()
        return self.writes.open_segments


@pytest.fixture
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack)


def expect_awaited(error: Exception, said: str) -> None:
    """A dataflow waits for the proxies after that, as after the death of one, and does not fail for it."""
    assert type(error) is StoreUnreachable
    assert said in str(error)
    assert remedy_for(error).remedy is Remedy.AWAY


@pytest.mark.parametrize("epoch", [2, wire.EPOCH_MAX])
@pytest.mark.parametrize("op", [wire.CREATE, wire.ANNOUNCE, wire.FENCE, wire.SAVE_INDEX])
def test_no_segment_has_an_epoch_that_the_registry_has_not_given(place: Place, op: str, epoch: int) -> None:
    """Who came after that would have no epoch left, and nobody could write the log any more."""
    name = place.named(7, epoch)
    for made in (name, name.copied("zstd-0"), name._replace(directory=f"{name.directory}/aside")):
        said = str(place.refused(op, made, kind="positions"))
        assert said.startswith(f"no file is made for segment {made}: no writer of log 'orders/eu' has had its epoch")
    assert place.writes.open_segments == 0
    place.expect_writable()


def test_nobody_waits_for_a_registry_that_is_away_to_keep_an_index(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a hint. Who asked again for as long as the registry is away would close a reader that long."""
    name, asked = place.named(), []

    def gone(_writes: SegmentWrites, log: str) -> None:
        asked.append(log)
        raise RegistryUnreachable("no server answered")

    monkeypatch.setattr(SegmentWrites, "_head", gone)
    assert place.ask(wire.SAVE_INDEX, name, kind="positions") == AskDone({"kept": False})
    assert asked == [LOG], "it goes as it is asked"
    place.ensemble.suspend(place.registry)
    assert place.ask(wire.SAVE_INDEX, name, kind="positions") == AskDone({"kept": False})
    assert asked == [LOG], "a registry that is known to be away is not waited for once"
    place.ensemble.resume(place.registry)
    monkeypatch.undo()
    place.done(wire.CREATE, name)
    assert place.ask(wire.SAVE_INDEX, name, kind="positions") == AskDone({"kept": True})


def test_a_segment_that_is_there_is_fenced_whatever_its_epoch(place: Place) -> None:
    """As by who deletes a log whose metadata contradicts itself. It has a file of that name."""
    name = place.named(7, 9)
    place.namespace._store.create(name, fsync=True).close()
    place.done(wire.FENCE, name)


@pytest.mark.parametrize("changed", [{"segment": 2}, {"epoch": wire.EPOCH_MAX}, {"directory": "another"}])
def test_a_segment_that_is_moved_stays_its_logs_with_its_number_and_its_epoch(
    place: Place, changed: dict[str, Any]
) -> None:
    """Another directory of that name is that of no log: there it may have had any epoch."""
    name = place.named()
    another = name._replace(directory=name.directory.rpartition("-")[0] + "-0a1b")
    place.namespace._store.create_log(another.directory)
    source = another if "directory" in changed else name
    place.done(wire.CREATE, source)
    to = source._replace(**changed) if source is name else name
    assert "it stays its log's" in str(place.refused(wire.MOVE, source, to=list(to[:4])))
    place.done(wire.SYNC, source, step=1)
    place.expect_writable()


def test_a_segment_that_the_registry_has_forgotten_is_set_aside_and_brought_back(place: Place) -> None:
    """A registry that went back has given a lower epoch than files have."""
    name = place.named(1, 9)
    there = name._replace(directory=f"{name.directory}/aside")
    place.namespace._store.create(name, fsync=True).close()
    place.done(wire.MOVE, name, to=list(there[:4]))
    place.done(wire.MOVE, there, to=list(name[:4]))
    assert place.namespace._store.names(name.directory) == [name]


@pytest.mark.parametrize(
    ("segment", "epoch"), [(True, 1), (1, True), (SEGMENT_MAX + 1, 1), (1, 2**63), (1, 2**64 - 1), (-1, 1), (1, 1.0)]
)
def test_a_number_that_no_segment_has_names_none(segment: object, epoch: object) -> None:
    with pytest.raises(ValueError, match="no segment is called"):
        wire.segment_named("log-0", segment, epoch, "")
    assert wire.segment_named("log-0", SEGMENT_MAX, wire.EPOCH_MAX, "").epoch == wire.EPOCH_MAX


@pytest.mark.parametrize(
    "tail",
    [[1, 1, 1], [1, 1, 1, 1, 1], [-1, 1, 1, 1], [1, 2**32, 1, 1], [1, 1, 2**63, 1], [1, 1, 1, "1"], [1, 1, 1, 1.0], 7],
)
def test_what_no_tail_is_is_not_shown(place: Place, tail: object) -> None:
    """A store that had no room for the numbers would fail, and be asked again."""
    name = place.named()
    place.done(wire.CREATE, name)
    with pytest.raises((ValueError, TypeError)):  # as the service knows what is no question
        place.ask(wire.SHOW, name, step=1, tail=tail)
    place.done(wire.SHOW, name, step=1, tail=[0, 0, -999, 0])


def test_a_log_that_no_node_names_yet_may_have_segments_of_any_epoch(place: Place) -> None:
    """As one that is being copied from another namespace."""
    name = SegmentName(place.named().directory.rpartition("-")[0] + "-0a1b", 4, 9)
    place.namespace._store.create_log(name.directory)
    place.done(wire.CREATE, name)


@pytest.mark.parametrize("op", [wire.FENCE, wire.REMOVE, wire.MOVE, wire.DELETE_LOG])
def test_what_takes_a_segment_away_closes_it(place: Place, op: str) -> None:
    name, other = place.named(), place.named(log=OTHER)
    place.done(wire.CREATE, name)
    place.done(wire.CREATE, other, handle="b")
    aside = [f"{name.directory}/aside", *name[1:4]]
    place.done(op, name, directory=name.directory, to=aside)
    assert place.writes.open_segments == 1
    assert type(place.refused(wire.SYNC, name, step=1)) is Fenced
    place.done(wire.SYNC, other, handle="b", step=1)


def test_a_fence_does_not_wait_for_the_disk(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    name = place.named()
    place.done(wire.CREATE, name)
    segment = place.writes._open["a"]
    closed: list[str] = []
    monkeypatch.setattr(segment.appender, "close", lambda: closed.append("the segment"))

    def fence(_stop: str) -> None:
        place.done(wire.FENCE, name)
        assert not closed, "its sync is under way"

    with at_failpoint("log.segment_sync:before", fence):
        assert type(place.refused(wire.SYNC, name, step=1)) is Fenced
    assert closed == ["the segment"]
    assert not segment.lock.locked()


def test_segments_of_writers_that_are_gone_are_closed_and_no_others(place: Place) -> None:
    place.done(wire.CREATE, place.named(), handle="a")
    place.done(wire.CREATE, place.named().copied("zstd-0"), handle="copy")
    place.done(wire.CREATE, place.named(log=OTHER), handle="other")
    place.writes.sweep()
    assert place.writes.open_segments == 3, "all of them were used a moment ago"
    assert place.sweep() == 2, "whoever makes a copy does something all the time"
    place.take(LOG)
    assert place.sweep() == 1
    expect_awaited(place.refused(wire.SYNC, place.named(), step=1), "is not open at the proxy a proxy any more")
    place.done(wire.SYNC, place.named(log=OTHER), handle="other", step=1)
    place.namespace.delete(OTHER)
    assert place.sweep() == 0


def test_a_segment_that_was_completed_is_closed_though_nobody_said_so(place: Place) -> None:
    name = place.named(1, 2)
    with place.namespace.open_writer(LOG) as writer:
        writer.write(b"1").result(120)
        place.done(wire.CREATE, place.named(2, 2), handle="spare")
        place.done(wire.CREATE, name.copied("lz4-0"), handle="x")
        place.done(wire.CLOSE, name.copied("lz4-0"), handle="x")
        assert place.sweep() == 1, "it is to be the next segment"
    place.namespace._store.remove(name)
    place.done(wire.CREATE, name, handle="b")
    assert place.sweep() == 1
    assert "b" not in place.writes._open


def test_more_segments_than_a_proxy_has_room_for_take_none_away(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "OPEN_MAX", 2)
    place.done(wire.CREATE, place.named(), handle="a")
    place.done(wire.CREATE, place.named(2), handle="b")
    error = place.refused(wire.CREATE, place.named(log=OTHER), handle="c")
    assert isinstance(error, WritersTooMany)
    assert isinstance(error, StoreUnreachable), "a dataflow waits, and a roll is put off"
    place.done(wire.CREATE, place.named(2), handle="b")
    for handle, name in (("a", place.named()), ("b", place.named(2))):
        place.done(wire.SYNC, name, handle=handle, step=1)
    place.take(LOG)
    place.clock.advance_s(IDLE_S)
    place.done(wire.CREATE, place.named(log=OTHER), handle="c")
    assert place.writes.open_segments == 1


def test_a_segment_that_is_asked_for_again_while_it_is_made_is_made_once(place: Place) -> None:
    name = place.named()
    answers: list[Answer] = []
    again = background("again", lambda: answers.append(place.ask(wire.CREATE, name)))
    waiting = threading.Event()
    reserved = place.writes._reserved

    def asked_again(handle: str, segment: writing._WrittenSegment) -> writing._WrittenSegment:
        found = reserved(handle, segment)
        if found is not segment:
            waiting.set()
        return found

    def ask_again(_stop: str) -> None:
        again.start()
        assert waiting.wait(60), "it knows of the first attempt"
        assert not answers, "and waits for it"

    place.writes._reserved = asked_again  # type: ignore[method-assign]
    with at_failpoint("log.segment_create:before", ask_again):
        place.done(wire.CREATE, name)
    again.join(60)
    assert answers == [AskDone()]
    place.done(wire.SYNC, name, step=1)


def test_a_segment_that_cannot_be_made_leaves_nothing_and_may_be_tried_again(place: Place) -> None:
    def refuse(_stop: str) -> None:
        raise OSError(28, "No space left on device")

    with at_failpoint("log.segment_create:before", refuse):
        assert isinstance(place.refused(wire.CREATE, place.named()), LogWriteFailed)
    assert place.writes.open_segments == 0
    place.done(wire.CREATE, place.named())


def test_a_segment_that_is_made_as_the_proxy_ends_is_left_for_the_next_one(place: Place) -> None:
    """By its name it is not to be told from one that another proxy has made anew meanwhile."""
    with at_failpoint("log.segment_create:after", lambda _stop: place.writes.close()):
        expect_awaited(place.refused(wire.CREATE, place.named()), "the proxy ends")
    assert place.namespace._store.names(place.named().directory) == [place.named()]
    assert place.writes.open_segments == 0


def test_a_log_that_cannot_be_read_keeps_no_others_segments_open(place: Place) -> None:
    place.done(wire.CREATE, place.named(), handle="damaged")
    place.done(wire.CREATE, place.named(log=OTHER), handle="other")
    place.namespace.delete(OTHER)
    metadata = place.namespace._metadata(LOG)
    head = metadata.registry.get(metadata.segments_path).data
    metadata.registry.set(metadata.segments_path, b"{")
    assert place.sweep() == 1
    metadata.registry.set(metadata.segments_path, head)
    place.done(wire.SYNC, place.named(), handle="damaged", step=1)


def test_only_the_writer_of_a_segment_closes_it(place: Place) -> None:
    place.done(wire.CREATE, place.named())
    place.done(wire.CLOSE, place.named(2))
    place.done(wire.CLOSE, place.named(), handle="nobody's")
    place.done(wire.SYNC, place.named(), step=1)
    with pytest.raises(ValueError, match="is the handle of"):
        place.ask(wire.CREATE, place.named(2))
    place.done(wire.CLOSE, place.named())
    assert place.writes.open_segments == 0
