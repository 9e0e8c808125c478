"""A read that the registry, the store or Ctrl-C cuts short: what it had collected is handed out, or left to whoever
goes on where the reader stands."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa
import pytest

from scribengin.errors import LogClosed, StoreUnreachable
from scribengin.log import LogConfig, LogNamespace, LogReader, ReadAhead
from scribengin.log.metadata.reader_lock import SubscriberLock
from scribengin.log.read.batches import records_of
from scribengin.log.read.catalog import SegmentReader
from scribengin.log.store.index import EntryPlace
from scribengin.testing.log_samples import bound_namespace, fill_log, payloads_left
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin_registry.errors import RegistryUnreachable

LOG = "log"
AHEAD = pytest.mark.parametrize("ahead", [None, ReadAhead(entries_max=2)], ids=["in turn", "ahead"])


class Place:
    """A log of three segments with three records each, and a session of readers."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.disk = MemoryDisk("reads")
        config = LogConfig(segment_bytes_max=4096)
        writing = bound_namespace(self.ensemble.connect(), self.disk.name, LOG, store=MEMORY_STORE, config=config)
        self.payloads = fill_log(writing, LOG, 9)
        assert len(writing.segments(LOG)) == 3
        self.session = self.ensemble.connect()
        self.logs = LogNamespace.open("/logs", registry=self.session)

    def registry_goes_away(self) -> None:
        self.session._session_timeout_s = 0.0  # no call waits for it to come back
        self.ensemble.suspend(self.session)

    def registry_comes_back(self) -> None:
        self.session._session_timeout_s = 10.0
        self.ensemble.resume(self.session)


@pytest.fixture
def place() -> Place:
    return Place()


@AHEAD
@pytest.mark.parametrize("look", range(1, 10))
def test_nothing_is_lost_when_the_lock_cannot_be_looked_at(
    place: Place, monkeypatch: pytest.MonkeyPatch, look: int, ahead: ReadAhead | None
) -> None:
    check, looks = SubscriberLock.check, itertools.count()

    def cut_off(lock: SubscriberLock) -> None:
        if next(looks) == look:
            place.registry_goes_away()
        check(lock)

    monkeypatch.setattr(SubscriberLock, "check", cut_off)
    with place.logs.open_reader(LOG, subscriber="billing", read_ahead=ahead) as reader:
        found = [record.payload for record in reader.read(1000)]
        assert found == place.payloads[:look]
        with pytest.raises(RegistryUnreachable):
            reader.read(1000)
        place.registry_comes_back()
        assert found + payloads_left(reader) == place.payloads


@AHEAD
def test_an_outage_while_a_segment_is_looked_up_passes(place: Place, ahead: ReadAhead | None) -> None:
    with place.logs.open_reader(LOG, read_ahead=ahead) as reader:
        found = [record.payload for record in reader.read(1)]
        place.registry_goes_away()
        found += [record.payload for record in reader.read(1000)]
        assert found == place.payloads[: len(found)]
        assert len(found) < len(place.payloads)
        for _ in range(2):
            with pytest.raises(RegistryUnreachable):
                reader.read(1)
        place.registry_comes_back()
        assert found + payloads_left(reader) == place.payloads


def test_what_comes_before_an_entry_that_cannot_be_read_is_handed_out(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_body = SegmentReader.stored_body

    def unreachable(segment: SegmentReader, entry: EntryPlace) -> pa.Buffer:
        if (segment.segment.segment, entry.header.entry) == (2, 1):
            raise StoreUnreachable("the store is away")
        return stored_body(segment, entry)

    monkeypatch.setattr(SegmentReader, "stored_body", unreachable)
    with place.logs.open_reader(LOG, read_ahead=ReadAhead()) as reader:
        assert [record.payload for record in reader.read(1000)] == place.payloads[:4]
        with pytest.raises(StoreUnreachable):
            reader.read(1000)


def interrupted(call: Callable[..., object], at: int) -> Callable[..., object]:
    """As `call`, with Ctrl-C right behind the call of that number."""
    calls = itertools.count(1)

    def calling(*args: object, **options: object) -> object:
        answer = call(*args, **options)
        if next(calls) == at:
            raise KeyboardInterrupt
        return answer

    return calling


@AHEAD
@pytest.mark.parametrize("where", ["a batch is found", "records are made"])
def test_who_was_interrupted_is_told_where_to_go_on(
    place: Place, monkeypatch: pytest.MonkeyPatch, where: str, ahead: ReadAhead | None
) -> None:
    with place.logs.open_reader(LOG, read_ahead=ahead) as reader:
        found = [record.payload for record in reader.read(2)]
        if where == "a batch is found":
            monkeypatch.setattr(LogReader, "_next_batch", interrupted(LogReader._next_batch, 3))
        else:
            monkeypatch.setattr("scribengin.log.read.reader.records_of", interrupted(records_of, 3))
        with pytest.raises(KeyboardInterrupt):
            reader.read(1000)
        with pytest.raises(LogClosed, match=rf"open a new reader at {reader.position}$"):
            reader.read(1000)
        begin = reader.position
    with place.logs.open_reader(LOG, begin) as reader:
        assert found + payloads_left(reader) == place.payloads
