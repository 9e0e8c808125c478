"""Truncation: what was given up is an error to whoever still wants it, and nobody else notices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scribengin.errors import (
    InconsistentLog,
    PositionTruncated,
)
from scribengin.log import DLSN, LogConfig, LogNamespace, TransactionId
from scribengin.log.metadata.segments import LogMetadata, LogState
from scribengin.log.read.cursor import EntryCursor
from scribengin.log.store.contract import SegmentName, SegmentView
from scribengin.log.store.file import FileSegmentStore
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import (
    bound_namespace,
    fill_log,
    payloads_left,
    payloads_planned,
    payloads_read,
)
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry, Watch

LOG = "flights/0"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, config=LogConfig(segment_bytes_max=4096))


def test_a_truncated_position_is_an_error_and_the_start_is_what_is_kept(
    namespace: LogNamespace, elsewhere: LogNamespace
) -> None:
    payloads = fill_log(namespace, LOG, 7, 3)
    with namespace.open_reader(LOG, DLSN(1, 0, 0)) as reader:
        reader.read(1)
        assert elsewhere.truncate(LOG, DLSN(2, 1, 2))

        def truncated() -> bool:
            try:
                return reader.plan(DLSN(1, 0, 1), 1, 1) is None
            except PositionTruncated:
                return True

        wait_until(truncated, what="the truncation to be seen")
        late = DLSN(2, 1, 1)
        for call in (reader.read_batch, lambda: reader.lag(late), lambda: namespace.open_reader(LOG, late)):
            with pytest.raises(PositionTruncated, match="the first record kept is"):
                call()
        assert payloads_planned(reader, DLSN(2, 1, 2), 100) == [payloads[14:]]
    assert payloads_read(namespace, LOG) == payloads[14:]
    with namespace.open_reader(LOG, TransactionId(0)) as reader:
        assert payloads_left(reader) == payloads[14:]
    assert namespace.first_dlsn(LOG) == DLSN(2, 1, 2)
    assert namespace.count(LOG) == 7
    assert namespace.count(LOG, DLSN(2, 2, 0), DLSN(3, 0, 1)) == 4


def test_truncating_forgets_no_more_than_it_says(namespace: LogNamespace) -> None:
    payloads = fill_log(namespace, LOG, 7, 3)
    assert not namespace.truncate(LOG, DLSN.INVALID)
    assert not namespace.truncate(LOG, DLSN.INITIAL)
    assert namespace.truncate(LOG, DLSN(1, 2, 0))
    assert not namespace.truncate(LOG, DLSN(1, 1, 0))
    assert payloads_read(namespace, LOG) == payloads[6:]
    with pytest.raises(InconsistentLog):
        namespace.truncate(LOG, DLSN(9, 0, 0))
    assert namespace.truncate(LOG, namespace.end_dlsn(LOG))
    assert payloads_read(namespace, LOG) == []
    assert namespace.last_record(LOG) is None
    with namespace.open_writer(LOG) as writer:
        writer.write(b"next").result(120)
    assert payloads_read(namespace, LOG) == [b"next"]
    last = namespace.last_record(LOG)
    assert last is not None
    assert last.sequence_id == 21


def test_truncating_under_a_writer_does_not_fence_it(namespace: LogNamespace, elsewhere: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        for n in range(10):
            writer.write(b"%06d" % n + bytes(1000)).result(120)
            if n == 5:
                assert elsewhere.truncate(LOG, DLSN(2, 0, 0))
    assert len(payloads_read(namespace, LOG)) == 7


def test_a_truncation_that_another_has_overtaken_changed_nothing(namespace: LogNamespace) -> None:
    """It has looked, and before it could say so another truncated further."""
    fill_log(namespace, LOG, 9)
    seen: list[bool] = []

    def overtake(_stop: str) -> None:
        if not seen:
            seen.append(True)
            assert namespace.truncate(LOG, DLSN(3, 0, 0))

    with at_failpoint("log.metadata:before", overtake):
        assert namespace.truncate(LOG, DLSN(2, 0, 0)) is False
    assert namespace.first_dlsn(LOG) == DLSN(3, 0, 0)


def test_what_is_counted_while_it_is_truncated_and_purged_is_what_is_left(
    namespace: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = fill_log(namespace, LOG, 12)
    namespace.truncate(LOG, DLSN(1, 1, 0))
    opened, first = FileSegmentStore.open, namespace.segments(LOG)[0].file

    purged: list[SegmentName] = []

    def purged_before(store: FileSegmentStore, name: SegmentName, **options: bool) -> SegmentView:
        if name == first and not purged:
            purged.append(name)
            namespace.truncate(LOG, DLSN(3, 0, 0))
            namespace.purge(LOG)
        return opened(store, name, **options)

    monkeypatch.setattr(FileSegmentStore, "open", purged_before)
    assert namespace.count(LOG) == len(payloads_read(namespace, LOG)) < len(payloads)


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda logs, at: payloads_read(logs, LOG), id="read"),
        pytest.param(lambda logs, at: logs.open_reader(LOG, at).close(), id="open"),
        pytest.param(lambda logs, at: logs.count(LOG), id="count all"),
        pytest.param(lambda logs, at: logs.count(LOG, at), id="count from there"),
        pytest.param(lambda logs, at: logs.info(LOG), id="info"),
        pytest.param(lambda logs, at: planned(logs, at), id="plan"),
        pytest.param(lambda logs, at: EntryCursor(logs._catalog(LOG), at, skip_damaged=False).next(), id="cursor"),
    ],
)
def test_who_stands_at_the_end_of_a_segment_that_is_purged_under_the_look_has_lost_nothing(
    namespace: LogNamespace, look: Callable[[LogNamespace, DLSN], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_log(namespace, LOG, 12)
    ended = namespace.segments(LOG)[1]
    end = DLSN(ended.segment, ended.entries, 0)
    assert namespace.truncate(LOG, end)
    state, purging = LogMetadata.state, False

    def purged_behind(metadata: LogMetadata, known: LogState | None = None, watch: Watch | None = None) -> LogState:
        nonlocal purging
        found = state(metadata, known, watch)
        if not purging and found.head.begin <= ended.segment:
            purging = True
            assert namespace.purge(LOG).segments == 2
            purging = False
        return found

    monkeypatch.setattr(LogMetadata, "state", purged_behind)
    look(namespace, end)
    monkeypatch.undo()
    assert namespace.first_dlsn(LOG) == DLSN(ended.segment + 1, 0, 0)


def planned(logs: LogNamespace, start: DLSN) -> None:
    with logs.open_reader(LOG) as reader:
        assert reader.plan(start, 1, 1) is not None
