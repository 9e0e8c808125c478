"""What made readers of other log stores lose their users' trust, each a test: a tail reader that silently stops after a
roll, a segment skipped on a cleanly closed log, a read-ahead that delivers twice."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from scribengin.errors import EndOfStream
from scribengin.log import DLSN, LogConfig, LogNamespace, LogReader, LogWriter, ReadAhead
from scribengin.log.metadata.segments import LogMetadata, LogState, SegmentDescriptor
from scribengin.log.read.catalog import LogCatalog
from scribengin.log.read.cursor import EntryCursor
from scribengin.log.store.contract import Tail
from scribengin.log.store.file import FileView
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import bound_namespace, fill_log, payload_batch, payloads_left, payloads_of
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry, Watch

LOG = "flights/0"
AHEAD = [None, ReadAhead(entries_max=2, bytes_max=100_000)]


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(segment_bytes_max=4096))


def write(writer: LogWriter, first: int, count: int) -> list[bytes]:
    payloads = [b"%06d" % n + bytes(1000) for n in range(first, first + count)]
    for payload in payloads:
        writer.write(payload).result(120)
    return payloads


@pytest.mark.parametrize("ahead", AHEAD, ids=["in turn", "ahead"])
def test_a_tail_reader_goes_on_after_every_roll(
    namespace: LogNamespace, elsewhere: LogNamespace, ahead: ReadAhead | None
) -> None:
    """DistributedLog issue 244: immediate flush, rolling by size, and readNext returned null for ever."""
    with elsewhere.open_writer(LOG) as writer, namespace.open_reader(LOG, read_ahead=ahead) as reader:
        for n in range(20):  # the reader is at the end each time, also at the end of a segment that is just full
            payloads = write(writer, n, 1)
            batch = reader.read_batch(timeout_s=120)
            assert batch is not None
            assert payloads_of(batch) == payloads
            assert reader.read_batch() is None
        assert len(elsewhere.segments(LOG)) > 5


def test_a_tail_reader_goes_on_after_a_roll_that_it_was_not_told_of(
    registry: Registry, namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DistributedLog's TestAsyncReaderWriter, testAsyncReadMissingLogSegmentsNotification."""
    unwatched = LogMetadata.state

    def deaf(self: LogMetadata, known: LogState | None = None, watch: Watch | None = None) -> object:
        return unwatched(self, known, None)

    monkeypatch.setattr(LogMetadata, "state", deaf)
    clock = ManualClock()
    patient = LogNamespace.open(namespace.path, registry=registry, clock=clock)
    with namespace.open_writer(LOG) as writer, patient.open_reader(LOG) as reader:
        assert reader.read() == []
        payloads = write(writer, 0, 10)
        assert reader.read() == []
        clock.advance_s(61)
        assert payloads_left(reader)[:3] == payloads[:3]
        clock.advance_s(61)
        payloads += write(writer, 10, 3)
        clock.advance_s(61)
        assert reader.position > DLSN(3, 0, 0)
        assert payloads_left(reader)[-3:] == payloads[-3:]


@pytest.mark.parametrize("sealed", [False, True])
def test_the_last_entries_of_a_segment_that_is_completed_meanwhile_are_not_skipped(
    namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    """BookKeeper issue 2898: between two looks of the reader the segment grows, is completed, and the next one stands
    there. Whoever decides with both looks goes to the next segment, or says that the log has ended."""
    look = FileView.tail
    writer = namespace.open_writer(LOG)
    payloads = write(writer, 0, 1)
    reader = namespace.open_reader(LOG)
    assert payloads_left(reader) == payloads
    stale = catalog_of(reader)._stale
    meanwhile = threading.Event()

    def tail(self: FileView) -> Tail | None:
        seen = look(self)
        if not meanwhile.is_set():
            meanwhile.set()
            payloads.extend(write(writer, 1, 1 if sealed else 4))
            if sealed:
                writer.mark_end_of_stream()
            wait_until(stale.is_set, what="the reader to be told")
        return seen

    monkeypatch.setattr(FileView, "tail", tail)
    found = payloads[:1]
    with pytest.raises(EndOfStream) if sealed else reader:
        while len(found) < 5:
            batch = reader.read_batch(timeout_s=120)
            assert batch is not None
            found += payloads_of(batch)
    assert meanwhile.is_set()
    assert found == payloads
    writer.close()
    reader.close()


def test_a_log_that_is_written_and_sealed_meanwhile_has_not_ended_yet(
    namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same between "there is no next segment" and "the log is sealed"."""
    payloads = fill_log(namespace, LOG, 2)
    reader = namespace.open_reader(LOG)
    assert payloads_left(reader) == payloads
    stale = catalog_of(reader)._stale
    look = LogCatalog.segment
    meanwhile = threading.Event()

    def segment(self: LogCatalog, number: int, state: LogState | None = None) -> SegmentDescriptor | None:
        seen = look(self, number, state)
        if self is catalog_of(reader) and seen is None and not meanwhile.is_set():
            meanwhile.set()
            writer = namespace.open_writer(LOG)
            payloads.extend(write(writer, 2, 1))
            writer.mark_end_of_stream()
            wait_until(stale.is_set, what="the reader to be told")
        return seen

    monkeypatch.setattr(LogCatalog, "segment", segment)
    batch = reader.read_batch(timeout_s=120)
    assert batch is not None
    assert payloads_of(batch) == payloads[2:]
    assert meanwhile.is_set()
    with pytest.raises(EndOfStream):
        reader.read_batch()
    reader.close()


@pytest.mark.parametrize("ahead", AHEAD, ids=["in turn", "ahead"])
@pytest.mark.parametrize("when", ["before it looks", "while it looks"])
def test_a_reader_that_has_read_everything_survives_that_it_is_purged(
    namespace: LogNamespace,
    elsewhere: LogNamespace,
    monkeypatch: pytest.MonkeyPatch,
    ahead: ReadAhead | None,
    when: str,
) -> None:
    """It stands behind the last record of a segment that is gone: nothing that it wanted is."""
    payloads = fill_log(namespace, LOG, 2)
    reader = namespace.open_reader(LOG, read_ahead=ahead)
    assert payloads_left(reader) == payloads
    stale = catalog_of(reader)._stale
    purged = threading.Event()

    def purge() -> None:
        purged.set()
        elsewhere.truncate(LOG, elsewhere.end_dlsn(LOG))
        with elsewhere.open_writer(LOG) as writer:
            payloads.extend(write(writer, 2, 4))
        elsewhere.truncate(LOG, DLSN(2, 0, 0))
        elsewhere.purge(LOG)
        wait_until(stale.is_set, what="the reader to be told")

    if when == "before it looks":
        purge()
    else:
        look = EntryCursor._look

        def look_late(self: EntryCursor) -> bool:
            if not purged.is_set():
                purge()
            return look(self)

        monkeypatch.setattr(EntryCursor, "_look", look_late)
    found: list[bytes] = []
    while len(found) < 4:
        found += [record.payload for record in reader.read(timeout_s=120)]
    assert found == payloads[2:]
    assert namespace.segments(LOG)[0].segment == 2
    reader.close()


@pytest.mark.parametrize("ahead", AHEAD, ids=["in turn", "ahead"])
def test_no_segment_of_a_cleanly_closed_log_is_skipped(
    namespace: LogNamespace, elsewhere: LogNamespace, ahead: ReadAhead | None
) -> None:
    """BookKeeper issue 2898 from the outside: each writer closes cleanly, and the reader is somewhere each time."""
    found: list[bytes] = []
    payloads: list[bytes] = []
    with namespace.open_reader(LOG, read_ahead=ahead) as reader:
        for n in range(12):
            with elsewhere.open_writer(LOG) as writer:
                payloads += write(writer, len(payloads), 1 + n % 4)
            while len(found) < len(payloads) - n % 3:
                found += [record.payload for record in reader.read(1 + n % 2, timeout_s=120)]
        while len(found) < len(payloads):
            found += [record.payload for record in reader.read(1, timeout_s=120)]
    assert found == payloads


@pytest.mark.parametrize("entries_max", [1, 2, 3])
def test_a_read_ahead_that_pauses_and_resumes_delivers_everything_once(
    namespace: LogNamespace, entries_max: int
) -> None:
    """BookKeeper pull request 1973: paused because it was full, the read-ahead read an entry again when it went on."""
    namespace.create("large", LogConfig(segment_bytes_max=400_000, entry_bytes_max=50_000))
    payloads = [b"%06d" % n + bytes(994) for n in range(2_000)]
    found: list[bytes] = []
    with (
        namespace.open_writer("large") as writer,
        namespace.open_reader("large", read_ahead=ReadAhead(entries_max=entries_max, bytes_max=80_000)) as reader,
    ):
        for start in range(0, 2_000, 400):
            writer.write_bulk(payload_batch(payloads[start : start + 400])).result(120)
            for records_max in (7, 100, 3, 1, 60):  # stops in the middle of what was read ahead
                found += [record.payload for record in reader.read(records_max, timeout_s=120)]
                assert len(found) - 1 == int(found[-1][:6])
        found += payloads_left(reader)
    assert found == payloads


def test_a_position_behind_a_read_ahead_is_that_of_the_reader(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 7, 3)
    found: list[bytes] = []
    position = DLSN.INITIAL
    while len(found) < len(payloads):  # a new reader each time: what was read ahead is given up
        with namespace.open_reader(LOG, position, read_ahead=ReadAhead()) as reader:
            found += [record.payload for record in reader.read(2)]
            position = reader.position
    assert found == payloads


def catalog_of(reader: LogReader) -> LogCatalog:
    return reader._catalog
