"""What readers know of a log: its segments, as the registry last said, and how far each may be read.

The registry is asked again only after its watch fired, or once a minute. A segment in progress shows its growth in its
`.tail` file, which is looked at every time: so a reader that follows a log costs the registry next to nothing.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Literal, TypeVar

import pyarrow as pa

from scribengin.base.clock import Clock
from scribengin.errors import (
    ColdSegmentMissing,
    DamagedEntry,
    InconsistentLog,
    LogError,
    LogNotFound,
    PositionTruncated,
    SegmentsMoved,
)
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.entry import HEADER_BYTES, Damage, EntryHeader, read_body
from scribengin.log.metadata.segment_list import READ_AT_ONCE_MAX
from scribengin.log.metadata.segments import LogDescriptor, LogMetadata, LogState, SegmentDescriptor, SegmentsHead
from scribengin.log.store.cold import ColdLocation
from scribengin.log.store.contract import SegmentLocation, SegmentStore, SegmentView, Tail
from scribengin.log.store.index import DamagePlace, EntryPlace, SegmentIndex, walk
from scribengin_registry.contract import SessionState
from scribengin_registry.errors import RegistryUnreachable, SessionLost

_T = TypeVar("_T")
Writer = Literal["there", "none", "died"]
"""Of a log; died: nobody holds it, and whoever did has left a segment unfinished."""
_OPEN_SEGMENTS_MAX = 4
_POLL_S_MIN = 0.0005
_POLL_S_MAX = 0.100
_POLL_SHARE = 1 / 8
"""Who is not told looks again after this share of the time that nothing has come: what comes is seen that much later at
most, and a log where nothing happens costs ten looks a second."""
_TOLD_POLL_S = 0.100
"""How often a reader looks by itself that would be told of a change."""
_RECHECK_S = 60.0
"""After so long without news of the metadata it is asked for its version: the price of one lost notification is a
minute, and not a reader that stands still for ever."""


def damaged(
    log: str, segment: int, entry: int, offset: int, damage: Damage, cold: ColdLocation | None = None
) -> DamagedEntry:
    """The error of a reader that cannot go on. It names the file, where that is in `cold` storage."""
    return DamagedEntry(
        f"log '{log}': the entry at segment {segment}, entry {entry} (byte {offset}) is damaged: {damage.reason}; "
        f"restore {cold or 'its file'} from a copy, or truncate the log behind it",
        position=str(DLSN(segment, entry, 0)),
        offset=offset,
    )


def misplaced(header: EntryHeader, *, entry: int, epoch: int, sequence: int | None) -> Damage | None:
    """Why an entry that holds by itself is not the one that belongs there: `sequence` is what comes next after the one
    before it, if that is known."""
    if (header.entry, header.epoch) != (entry, epoch):
        return Damage(f"entry {header.entry} of epoch {header.epoch} stands there")
    if sequence is not None and header.sequence != sequence:
        return Damage(f"its first sequence id is {header.sequence}, and {sequence} comes next")
    return None


def _kept_numbers(head: SegmentsHead) -> range:
    """The numbers of the segments that may hold records that are kept."""
    return range(max(head.first.segment, head.begin), head.max_segment + 1)


class SegmentReader:
    """One segment, open for reading up to an end that the caller knows. Not thread-safe."""

    def __init__(self, log: str, store: SegmentStore, segment: SegmentDescriptor) -> None:
        self.segment = segment
        self._store = store
        self._log = log
        self._view = store.open(segment.file)
        self._index = SegmentIndex(self._view, store.load_index(segment.file))

    @property
    def view(self) -> SegmentView:
        return self._view

    @property
    def location(self) -> SegmentLocation:
        """Where another process opens it, as of now: proxies that serve it come and go while it is open here."""
        return self._store.location(self.segment.file)

    def entries(self, offset: int, end: int, entry: int, sequence: int | None = None) -> Iterator[EntryPlace]:
        """The entries in [offset, end), the first of which is `entry`, with the record `sequence` if that is known.

        Raises DamagedEntry when it gets to damage.
        """
        for place in walk(self._view, offset, end):
            if isinstance(place, DamagePlace):
                raise self._damaged(entry, place.offset, place.damage)
            wrong = misplaced(place.header, entry=entry, epoch=self.segment.epoch, sequence=sequence)
            if wrong is not None:
                raise self._damaged(entry, place.offset, wrong)
            yield place
            entry, sequence = entry + 1, place.header.end_sequence

    def body(self, place: EntryPlace) -> pa.RecordBatch:
        """The body of an entry, mapped. Raises DamagedEntry."""
        return self.checked(place, self.decoded(place, self.stored_body(place)))

    def stored_body(self, place: EntryPlace) -> pa.Buffer:
        """The body of an entry as stored, mapped and not yet looked at."""
        return self._view.read(place.offset + HEADER_BYTES, place.header.body_bytes)

    def decoded(self, place: EntryPlace, stored: pa.Buffer) -> pa.RecordBatch | Damage:
        """What `stored_body` returned, verified. Thread-safe."""
        return read_body(place.header, stored, decoded_bytes_max=self.segment.decoded_bytes_max)

    def checked(self, place: EntryPlace, body: pa.RecordBatch | Damage) -> pa.RecordBatch:
        """`body`, which is that of the entry. Raises DamagedEntry."""
        if isinstance(body, Damage):
            raise self._damaged(place.header.entry, place.offset, body)
        return body

    def _damaged(self, entry: int, offset: int, damage: Damage) -> DamagedEntry:
        self._view.doubt()
        return damaged(self._log, self.segment.segment, entry, offset, damage, self.cold)

    @property
    def cold(self) -> ColdLocation | None:
        """Where it is, if that is cold storage."""
        return ColdLocation(self.segment.file) if self.segment.file.place else None

    def find_entry(self, entry: int, end: int) -> EntryPlace | None:
        """Where `entry` stands; None if the segment ends before it."""
        row = self._index.before_entry(entry, end)
        return self._first(row.entry, row.offset, end, lambda place: place.header.entry >= entry)

    def find_sequence(self, sequence: int, end: int) -> EntryPlace | None:
        """The entry that holds the record `sequence`; None if the segment ends before it."""
        row = self._index.before_sequence(sequence, end)
        return self._first(row.entry, row.offset, end, lambda place: place.header.end_sequence > sequence)

    def find_txid(self, txid: int, end: int) -> EntryPlace | None:
        """The first entry with a record whose transaction id is at least `txid`; None if there is none."""
        row = self._index.before_txid(txid, end)
        return self._first(
            row.entry, row.offset, end, lambda p: p.header.carries_records and p.header.last_txid >= txid
        )

    def load_keys(self) -> bytes:
        """The key index as it was kept; empty if it was not."""
        return self._store.load_index(self.segment.file, "keys")

    def save_keys(self, index: bytes) -> None:
        """Keep the key index of a completed segment, if that is possible."""
        self._store.save_index(self.segment.file, index, "keys")

    def close(self) -> None:
        """Close the files, and keep the index if that of a completed segment was missing, short or wrong."""
        if not self.segment.in_progress and self._index.outgrew_kept:
            self._store.save_index(self.segment.file, self._index.to_bytes())
        self._view.close()

    def _first(self, entry: int, offset: int, end: int, wanted: Callable[[EntryPlace], bool]) -> EntryPlace | None:
        return next((place for place in self.entries(offset, end, entry) if wanted(place)), None)


class TailWatch:
    """Sets an event when more of a segment may be visible: of one segment at a time, the one that is being written."""

    def __init__(self, event: threading.Event) -> None:
        self._event = event
        self._view: SegmentView | None = None
        self._stop: Callable[[], None] | None = None

    @property
    def active(self) -> bool:
        """Whether anybody will tell."""
        return self._stop is not None

    def follow(self, view: SegmentView | None) -> bool:
        """Watch this segment instead of the one before, and say whether a watch has just begun."""
        if view is self._view and self.active:
            return False
        self._end()
        self._view = view
        self._stop = None if view is None else view.watch_tail(self._event)
        return self.active

    def _end(self) -> None:
        stop = self._stop
        self._stop = None  # first: Ctrl-C may come in the middle, and `__exit__` after it
        if stop is not None:
            stop()

    def __enter__(self) -> TailWatch:
        return self

    def __exit__(self, *_error: object) -> None:
        self._end()


class LogCatalog:
    """The segments of one log, for one reader. Not thread-safe, but for the watch.

    Without `follow` it stays as it was first read, and sets no watch; `close` takes back those of one that follows.
    """

    def __init__(
        self, metadata: LogMetadata, store: SegmentStore, log: LogDescriptor, clock: Clock, *, follow: bool
    ) -> None:
        self.log = log
        self._follow = follow
        self._metadata = metadata
        self._store = store
        self._clock = clock
        stale = self._stale = threading.Event()
        wake = self._wake = threading.Event()
        """Set by whoever has something to tell a waiting reader."""

        def changed(_change: object) -> None:  # not a method: a catalog that nobody closed is not kept by its watch
            stale.set()
            wake.set()

        self._changed = changed
        self._state: LogState | None = None
        self._checked_s = 0.0
        self._news_s = clock.monotonic_s()
        """When something came last, or was told of."""
        self._readers: OrderedDict[int, SegmentReader] = OrderedDict()

    @property
    def namespace(self) -> str:
        """The path of the namespace that the log is in."""
        return self._metadata.namespace

    def state(self) -> LogState:
        """The log's metadata, as of the last change that was seen. Raises LogNotFound, InconsistentLog."""
        state = self._state
        if state is not None and not self._out_of_date(state):
            return state
        self._stale.clear()  # before the look: what changes from here on is looked at again
        try:
            state = self._metadata.state(state, self._changed if self._follow else None)
        except (RegistryUnreachable, SessionLost):
            self._stale.set()
            if state is None or not self._follow:
                raise
            return state  # it has just gone away: what is known holds as far as it goes
        except BaseException:
            self._stale.set()
            raise
        if state.head.directory != self.log.directory:
            self._stale.set()
            raise LogNotFound(
                f"log '{self.log.name}' was deleted, and created again; open a new reader to read the new one"
            )
        self._state = state
        self._checked_s = self._clock.monotonic_s()
        return state

    def _out_of_date(self, state: LogState) -> bool:
        """Whether the registry is to be asked again. Who follows a log goes on with what it knows while no registry
        answers: what grows, grows in files."""
        stale = self._stale.is_set()
        if not stale and not self._follow:
            return False
        now_s = self._clock.monotonic_s()
        if not stale and now_s - self._checked_s < _RECHECK_S:
            return False  # as nearly always, and many times a second
        if self._follow and self._metadata.registry.state is SessionState.SUSPENDED:
            return False
        return stale or self._overlooked(state, now_s)

    def _overlooked(self, state: LogState, now_s: float) -> bool:
        """Whether the metadata changed and nobody said so. Asks the registry."""
        self._checked_s = now_s
        try:
            return self._metadata.head()[1] != state.head_version
        except (RegistryUnreachable, SessionLost):
            return False  # it is asked again in a minute, or told of the end of the outage before that

    def segment(self, number: int, state: LogState | None = None) -> SegmentDescriptor | None:
        """The segment of that number, if there is one yet; as `state` has it, or as the log has it now.

        Raises PositionTruncated for one that was purged, InconsistentLog for one that should be there.
        """
        state = state or self.state()
        first = state.head.begin
        if number > state.head.max_segment:
            return None
        if number < min(first, state.head.first.segment):
            raise self._truncated(DLSN(number, 0, 0), state.head.first)
        if number < first:
            raise InconsistentLog(f"log '{self.log.name}': segment {number} is gone, the log begins with {first}")
        try:
            return state.segments[number - first]
        except SegmentsMoved:
            self._stale.set()
            return self.segment(number)

    def settled(self, look: Callable[[], _T]) -> _T:
        """What `look` comes to while nobody gives up the log's beginning: it is begun again if somebody did meanwhile.

        A position may be the end of a segment that a purge has just removed: nothing of it was lost, and the metadata
        that says so is not the one that the look began with. Raises what `look` raises.
        """
        while True:
            first = self.state().head.first
            try:
                return look()
            except PositionTruncated:
                if self.state().head.first == first:
                    raise
            except ColdSegmentMissing as error:
                raise self.gone(error) from None

    def kept(self, *, newest_first: bool = False) -> Iterator[SegmentDescriptor]:
        """All segments that may hold records that are kept, read as they are wanted. One that is given up meanwhile is
        left out."""
        numbers = _kept_numbers(self.state().head)
        for number in self._read_ahead(numbers[::-1] if newest_first else numbers):
            with suppress(PositionTruncated):
                segment = self.segment(number)
                if segment is not None:
                    yield segment

    def kept_from(self, wanted: Callable[[SegmentDescriptor], bool]) -> Iterator[SegmentDescriptor]:
        """Those from the first on for which `wanted` holds, as it then does for all that follow. Reads a few."""
        while True:
            state = self.state()
            numbers = _kept_numbers(state.head)
            try:
                at = bisect_left(numbers, True, key=lambda number: wanted(state.segments[number - state.head.begin]))
                break
            except SegmentsMoved:
                self._stale.set()
        for number in self._read_ahead(numbers[at:]):
            segment = self.segment(number)
            if segment is not None:
                yield segment

    def _read_ahead(self, numbers: range) -> Iterator[int]:
        """These numbers, with a growing part of the segments asked for together: the first few cost no more."""
        done, step = 0, 1
        for at, number in enumerate(numbers):
            if at == done:
                page, begin = numbers[at : at + step], self.state().head.begin
                with suppress(SegmentsMoved):  # the look that follows finds out
                    self.state().segments[max(0, min(page) - begin) : max(0, max(page) + 1 - begin)]
                done, step = at + step, min(2 * step, READ_AT_ONCE_MAX)
            yield number

    def reader(self, segment: SegmentDescriptor) -> SegmentReader:
        """A reader of the segment; the last few stay open. Raises LogNotFound if its file is gone."""
        reader = self._readers.pop(segment.segment, None)
        if reader is not None and reader.segment.file != segment.file:  # readers use a copy of it alone by now
            reader.close()
            reader = None
        if reader is None:
            reader = self._opened(segment)
            if len(self._readers) >= _OPEN_SEGMENTS_MAX:
                self._readers.popitem(last=False)[1].close()
        self._readers[segment.segment] = reader
        return reader

    def _opened(self, segment: SegmentDescriptor) -> SegmentReader:
        while True:
            try:
                return SegmentReader(self.log.name, self._store, segment)
            except LogNotFound as error:
                self._stale.set()  # it was purged, or a copy is read by now, and nobody has said so yet
                now = self.segment(segment.segment)
                if now is None or now.file == segment.file:
                    raise self.gone(error) from None
                segment = now

    def gone(self, error: LogNotFound) -> LogError:
        """The error of who misses a file of the log. Where cold storage has lost one, there still is the log, and who
        reads it cannot go on, or the segment was truncated since."""
        if not isinstance(error, ColdSegmentMissing):
            return error
        self._stale.set()
        first = self.state().head.first
        if error.segment < first.segment:
            return self._truncated(DLSN(error.segment, 0, 0), first)
        return DamagedEntry(
            f"log '{self.log.name}', segment {error.segment}: {error}; or truncate the log behind it",
            position=str(DLSN(error.segment, 0, 0)),
        )

    def end(self, segment: SegmentDescriptor, beyond: int | None = None) -> Tail:
        """How far the segment may be read just now; for who has read so many entries, whether `beyond` that."""
        if segment.in_progress:
            view = self.reader(segment).view
            tail = view.tail() if beyond is None else view.tail_beyond(beyond)
            return tail if tail is not None else Tail(0, 0, self.state().head.last_txid, segment.start_sequence)
        followed = self._readers.get(segment.segment)
        if followed is not None:
            followed.view.leave_tail()
        return Tail(segment.file_bytes, segment.entries, segment.last_txid, segment.end_sequence)

    def end_sequence(self) -> int:
        """The sequence id that the next record gets."""
        return self.settled(self._end_sequence)

    def _end_sequence(self) -> int:
        state = self.state()
        segment = state.in_progress
        return state.head.next_sequence if segment is None else self.end(segment).sequence

    def end_position(self) -> DLSN:
        """The position behind the last visible record."""
        return self.settled(self._end_position)

    def _end_position(self) -> DLSN:
        state = self.state()
        if not state.segments:
            return DLSN(state.head.max_segment + 1, 0, 0)
        last = self.segment(state.head.max_segment, state)
        assert last is not None, "it is listed"
        return DLSN(last.segment, self.end(last).entries, 0)

    def check_position(self, position: DLSN) -> DLSN:
        """Where to read on from `position`: there, or from the first record kept if what was given up lies before both.

        Raises PositionTruncated if a record at or behind it was given up, InconsistentLog for a position the log never
        had.
        """
        return self.settled(lambda: self._checked(position))

    def _checked(self, position: DLSN) -> DLSN:
        head = self.state().head
        if head.given_up_to <= position < head.first:
            return head.first
        if self._normal(position) < head.first:
            raise self._truncated(position, head.first)
        last = self.segment(position.segment)
        if last is None:
            beyond = position > DLSN(head.max_segment + 1, 0, 0)
        else:
            beyond = not last.in_progress and position.entry > last.entries
        if beyond:
            raise InconsistentLog(
                f"log '{self.log.name}': {position} lies behind its end, so it is no position of this log"
            )
        return position

    def _truncated(self, position: DLSN, first: DLSN) -> PositionTruncated:
        return PositionTruncated(
            f"log '{self.log.name}': {position} was truncated, the first record kept is {first}; "
            "start from there, from a transaction id, or from the end"
        )

    def _normal(self, position: DLSN) -> DLSN:
        """The end of a completed segment is the beginning of the next: no record lies between the two."""
        segment = self.segment(position.segment)
        ended = segment is not None and not segment.in_progress and position.entry >= segment.entries
        return DLSN(position.segment + 1, 0, 0) if ended else position

    def sequence_at(self, position: DLSN) -> int:
        """The sequence id of the first record at or behind `position`. Raises as `check_position`, DamagedEntry."""
        return self.settled(lambda: self._sequence_at(position))

    def _sequence_at(self, position: DLSN) -> int:
        position = self.check_position(position)
        segment = self.segment(position.segment)
        if segment is None:
            return self.end_sequence()
        end = self.end(segment)
        if position.entry >= end.entries:
            return end.sequence
        if position == (segment.segment, 0, 0):
            return segment.start_sequence  # nothing is read: it may be far away
        place = self.reader(segment).find_entry(position.entry, end.end)
        if place is None:
            return end.sequence
        return min(place.header.sequence + position.slot, place.header.end_sequence)

    def position_of(self, sequence: int) -> DLSN:
        """Where the record `sequence` stands; the end if there is none yet. Raises DamagedEntry."""
        for segment in self.kept_from(lambda segment: sequence < self.end(segment).sequence):
            end = self.end(segment)
            if sequence < end.sequence:
                place = self.reader(segment).find_sequence(sequence, end.end)
                if place is not None:
                    return DLSN(segment.segment, place.header.entry, sequence - place.header.sequence)
        return self.end_position()

    def await_change(self, look: Callable[[], _T | None], timeout_s: float) -> _T | None:
        """What `look` returns, as soon as it is not None, or None after the timeout.

        Looks at once, after a change of metadata or of the tail, and where nobody tells of those at intervals that
        grow while nothing happens.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        with TailWatch(self._wake) as watch:
            while True:
                self._wake.clear()
                found = look()
                now_s = self._clock.monotonic_s()
                if found is not None:
                    self._news_s = now_s
                left_s = deadline_s - now_s
                if found is not None or left_s <= 0:
                    return found
                if self._watches_anew(watch):
                    continue  # what was written before the watch began is not told of
                told = watch.active or self._only_metadata_grows()
                if self._wake.wait(min(_TOLD_POLL_S if told else self._poll_s(now_s), left_s)):
                    self._news_s = self._clock.monotonic_s()  # as when somebody begins to write: more may come soon

    def _poll_s(self, now_s: float) -> float:
        return min(max(_POLL_S_MIN, _POLL_SHARE * (now_s - self._news_s)), _POLL_S_MAX)

    def _watches_anew(self, watch: TailWatch) -> bool:
        """Let `watch` follow the segment that is being written, and say whether that is another one than before."""
        segment = self.state().in_progress
        return watch.follow(None if segment is None else self.reader(segment).view)

    def _only_metadata_grows(self) -> bool:
        """Whether no segment is being written: then the registry's watch tells of all that comes."""
        return self._follow and self.state().in_progress is None

    def writer(self) -> Writer:
        """Whether anybody holds the log open for writing. Asks the registry."""
        before = self._metadata.head()
        if self._metadata.registry.find(self._metadata.lock_path) is not None:
            return "there"
        unfinished = before[0].in_progress and self._metadata.head() == before  # nobody has come or gone in between
        return "died" if unfinished else "none"

    def wake(self) -> None:
        """Make whoever waits in `await_change` look at once. From any thread."""
        self._wake.set()

    def close(self) -> None:
        """Close all files, and follow no more. Idempotent."""
        self._metadata.registry.unwatch(self._changed)
        while self._readers:
            self._readers.popitem()[1].close()
