"""Looking at logs: what is sound is called sound, and whatever is wrong is found, all of it, without touching it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.base.model import plain_path
from scribengin.errors import InconsistentLog, LogNotFound, OwnershipAcquireFailed, RecoveryRefused
from scribengin.log import LogConfig, LogNamespace
from scribengin.log.clients import recover_log
from scribengin.log.inspect.log import SegmentReport
from scribengin.log.metadata.check import Finding
from scribengin.log.retention.compression import Codec
from scribengin.log.store.index import EntryPlace
from scribengin.testing.log_samples import bound_namespace, damage_segment, fill_log, payload_batch, segment_path
from scribengin_registry.contract import Registry
from tests.integration.cli_runner import whole_tree

LOG = "flights/0"
SMALL = LogConfig(segment_bytes_max=4096)
SEGMENTS = "/logs/logs/flights%2F0/segments"
COMMIT_LOG = "/scribengin/locks/commit-log"


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, config=SMALL)


def findings(namespace: LogNamespace) -> list[str]:
    """Everything that is wrong with the log."""
    inspection = namespace.inspect(LOG)
    found = [*inspection.metadata_check.findings]
    for report in inspection.segments():
        found.extend(report.findings)
    return [str(finding) for finding in found]


def reports(namespace: LogNamespace) -> list[SegmentReport]:
    return list(namespace.inspect(LOG).segments())


def files_of(namespace: LogNamespace) -> dict[str, bytes]:
    """Every file of the store, by name."""
    root = Path(namespace.descriptor.location)
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_sound_log_has_no_findings_and_its_counts_are_told(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, entries=7, rows=5)
    assert findings(namespace) == []
    found = reports(namespace)
    assert [report.entries for report in found] == [{"records": 3}, {"records": 3}, {"records": 1}]
    assert [report.records for report in found] == [15, 15, 5]
    assert [(report.first_txid, report.last_txid) for report in found] == [(0, 20), (30, 50), (60, 60)]
    assert [report.end.sequence for report in found] == [15, 30, 35]
    assert [report.bytes_beyond for report in found] == [0, 0, 0]


def test_an_empty_log_is_sound(namespace: LogNamespace) -> None:
    assert findings(namespace) == []
    assert reports(namespace) == []


def test_a_log_that_is_not_there_is_not_found(namespace: LogNamespace) -> None:
    with pytest.raises(LogNotFound):
        namespace.inspect("nope")


def test_inspection_changes_nothing(namespace: LogNamespace, registry: Registry) -> None:
    fill_log(namespace, LOG, entries=7)
    damage_segment(namespace, LOG, 2, 100)
    before = (files_of(namespace), whole_tree(registry))
    assert findings(namespace)
    assert list(namespace.inspect(LOG).entries())
    assert (files_of(namespace), whole_tree(registry)) == before


@pytest.mark.parametrize("copies", [None, "zstd"])
def test_a_log_is_sound_while_it_is_written_truncated_purged_and_compressed(
    namespace: LogNamespace, copies: Codec | None
) -> None:
    namespace.configure(LOG, LogConfig(segment_bytes_max=65_536, copy_codec=copies))
    stop = threading.Event()

    def write() -> None:
        with namespace.open_writer(LOG) as writer:
            while not stop.is_set():
                writer.write_bulk(payload_batch([b"x" * 100] * 7)).result(120)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        while namespace.inspect(LOG).metadata_check.head.max_segment < 6:
            assert writing.is_alive()
            assert findings(namespace) == []
            inspection = namespace.inspect(LOG)  # what is removed from here on is left out
            namespace.truncate(LOG, namespace.end_dlsn(LOG))
            namespace.purge(LOG)
            assert [finding for report in inspection.segments() for finding in report.findings] == []
    finally:
        stop.set()
        writing.join(120)
    assert findings(namespace) == []


def test_the_segment_in_progress_is_read_as_far_as_readers_see_it(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG, commit_log=COMMIT_LOG) as writer:
        writer.write(b"seen").result(120)
        writer.stage(payload_batch([b"staged", b"too"]))
        writer.prepare()
        (report,) = reports(namespace)
        assert (report.segment.in_progress, report.records, report.findings) == (True, 1, ())
        assert report.bytes_beyond > 0
        remainder = namespace.inspect(LOG).remainder(1)
        assert remainder is not None
        assert (remainder.staged_entry, remainder.staged_records, remainder.torn_bytes) == (1, 2, 0)
        writer.rollback_staged()
    assert findings(namespace) == []


def test_damage_in_any_segment_is_found_with_its_place(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, entries=9)
    damage_segment(namespace, LOG, 1, 4)
    damage_segment(namespace, LOG, 3, segment_path(namespace, LOG, 3).stat().st_size - 100)
    found = findings(namespace)
    assert len(found) == 2
    assert found[0].startswith("segment 1, entry 0 (byte 0): the checksum of the header does not hold; it goes on")
    assert found[1].startswith("segment 3, entry 2 ")
    assert found[1].endswith("the checksum of the body does not hold; its record is lost")
    assert sum(report.records for report in reports(namespace)) == 7


def test_transaction_ids_without_order_are_no_damage_where_they_were_allowed(namespace: LogNamespace) -> None:
    namespace.configure(LOG, LogConfig(check_txids=False))
    with namespace.open_writer(LOG) as writer:
        for txid in (5, 3, 4):
            writer.write(b"x", txid=txid).result(120)
    assert findings(namespace) == []
    namespace.configure(LOG, LogConfig(check_txids=True))
    assert findings(namespace) == []


def test_headers_alone_do_not_tell_of_a_damaged_body(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, entries=3)
    damage_segment(namespace, LOG, 1, 200)
    assert not any(report.findings for report in namespace.inspect(LOG).segments(bodies=False))
    assert any(report.findings for report in namespace.inspect(LOG).segments(bodies=True))


def test_a_missing_file_is_a_finding(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, entries=7)
    segment_path(namespace, LOG, 2).unlink()
    found = findings(namespace)
    assert len(found) == 1
    assert found[0].startswith("segment 2: its file ")
    assert found[0].endswith(" is missing")
    assert [report.file_bytes is None for report in reports(namespace)] == [False, True, False]


def test_a_file_that_was_cut_is_a_finding(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, entries=3)
    path = segment_path(namespace, LOG, 1)
    path.write_bytes(path.read_bytes()[:-500])
    assert len(findings(namespace)) == 1


def test_a_broken_index_is_told_and_is_no_damage(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write_bulk(payload_batch([b"x" * 1000] * 300)).result(120)
        for _ in range(5):
            writer.write_bulk(payload_batch([b"x" * 1000] * 100)).result(120)
    path = segment_path(namespace, LOG, 2).with_suffix(".idx")
    first_of_two = reports(namespace)
    assert all(report.index.wrong == 0 for report in first_of_two)
    path.write_bytes(b"\x01" * 16 + bytes(16))
    found = reports(namespace)[1]
    assert (found.index.rows, found.index.wrong, found.findings) in ((1, 1, ()), (0, 0, ()))
    path.write_bytes((0).to_bytes(8, "little") + (64).to_bytes(8, "little") + bytes(16))
    found = reports(namespace)[1]
    assert (found.index.rows, found.index.wrong, found.findings) == (1, 1, ())


def edited(registry: Registry, path: str, change: Callable[[dict[str, object]], object]) -> None:
    """Edit a node's JSON, as an operator might."""
    value = json.loads(registry.get(path).data)
    change(value)
    registry.set(path, json.dumps(value).encode())


def node(number: int) -> str:
    return f"{SEGMENTS}/logrecs_{number:018d}"


@pytest.mark.parametrize(
    ("break_it", "finding"),
    [
        (lambda r: r.delete(node(2)), "metadata: segment 2 is missing between segments 1 and 3"),
        (lambda r: r.delete(node(3)), "metadata: the head says that segment 3 is the last, the list ends with 2"),
        (lambda r: r.delete(node(1)), "metadata: the first record kept is in segment 1, the list begins with 2"),
        (lambda r: r.set(node(2), b"{}"), f"metadata: {plain_path(node(2))} does not hold a SegmentDescriptor"),
        (lambda r: edited(r, SEGMENTS, lambda h: h.update(max_segment=2)), "metadata: the head says that segment 2"),
        (lambda r: edited(r, SEGMENTS, lambda h: h.update(next_sequence=1)), "metadata: segment 3 ends before"),
        (lambda r: edited(r, node(2), lambda s: s.update(entries=99)), "segment 2: the registry says 99 entries"),
        (lambda r: edited(r, node(2), lambda s: s.update(bytes=10**15)), "segment 2, entry 3 (byte "),
        (
            lambda r: edited(r, node(2), lambda s: s.update(bytes=-64)),
            "segment 2: the registry says 3 entries, -64 bytes",
        ),
        (lambda r: edited(r, node(2), lambda s: s.update(segment=9)), f"segment 9: the node {node(2).split('/')[-1]}"),
        (lambda r: r.create(f"{SEGMENTS}/whatever", b"?"), f"metadata: {plain_path(SEGMENTS)}/whatever does not hold"),
    ],
    ids=[
        "gap",
        "end",
        "beginning",
        "unreadable",
        "head",
        "sequence",
        "counts",
        "too long",
        "negative",
        "swapped",
        "stranger",
    ],
)
def test_broken_metadata_is_a_finding_and_no_error(
    namespace: LogNamespace, registry: Registry, break_it: Callable[[Registry], object], finding: str
) -> None:
    """DistributedLog's TestDLCK: a check of a namespace names what is wrong with each log."""
    fill_log(namespace, LOG, entries=7)
    break_it(registry)
    found = findings(namespace)
    assert any(line.startswith(finding) for line in found), found


def test_entries_are_listed_with_what_is_wrong_where_it_is(namespace: LogNamespace) -> None:
    fill_log(namespace, LOG, entries=4)
    damage_segment(namespace, LOG, 1, 4)
    listed = [found for _segment, found in namespace.inspect(LOG).entries(1)]
    assert isinstance(listed[0], Finding)
    assert [place.header.entry for place in listed[1:] if isinstance(place, EntryPlace)] == [1, 2]
    segments = [segment.segment for segment, _found in namespace.inspect(LOG).entries()]
    assert segments == [1, 1, 1, 2]


def crashed(namespace: LogNamespace, *payloads: bytes, tail: bytes = b"") -> None:
    """A log whose writer died: `payloads` are durable, `tail` is torn, and nobody holds the lock."""
    writer = namespace.open_writer(LOG)
    writer.write_bulk(payload_batch(payloads)).result(120)
    writer.abort()
    with segment_path(namespace, LOG, 1).open("ab") as file:
        file.write(tail)


def test_recovering_completes_what_was_left_unfinished_and_says_what_it_found(namespace: LogNamespace) -> None:
    crashed(namespace, b"one", b"two", tail=b"\x01" * 100)
    segment_path(namespace, LOG, 1).with_suffix(".tail").unlink()
    found = recover_log(namespace, LOG)
    assert found is not None
    assert (found.segment.records, found.segment.in_progress) == (2, False)
    assert found.remainder is not None
    assert (found.remainder.unshown_records, found.remainder.torn_bytes, found.staged_committed) == (2, 100, None)
    assert recover_log(namespace, LOG) is None
    assert findings(namespace) == []


@pytest.mark.parametrize("committed", [True, False])
def test_recovering_asks_the_commit_log_about_a_staged_round(
    namespace: LogNamespace, registry: Registry, committed: bool
) -> None:
    writer = namespace.open_writer(LOG, commit_log=COMMIT_LOG)
    writer.write(b"before").result(120)
    writer.stage(payload_batch([b"s1", b"s2"]))
    staged = writer.prepare()
    assert staged is not None
    writer.abort()
    named = CommitDescriptor(kind="log", records=2, data=staged.model_dump(mode="json"))
    log = CommitLog(
        dataflow="d", task="t", owner="o", generation=1, epoch=1, round=1, committed=named if committed else None
    )
    registry.create(COMMIT_LOG, log.to_bytes(), parents=True)
    found = recover_log(namespace, LOG)
    assert found is not None
    assert found.staged_committed is committed
    assert found.remainder is not None
    assert found.remainder.staged_records == 2
    assert namespace.count(LOG) == (3 if committed else 1)
    assert findings(namespace) == []


def test_recovering_refuses_damage_and_cuts_nothing(namespace: LogNamespace) -> None:
    writer = namespace.open_writer(LOG)
    for payload in (b"one", b"two", b"three"):
        writer.write(payload).result(120)
    writer.abort()
    damage_segment(namespace, LOG, 1, 4)
    before = segment_path(namespace, LOG, 1).read_bytes()
    with pytest.raises(RecoveryRefused, match="nothing was cut"):
        recover_log(namespace, LOG)
    assert segment_path(namespace, LOG, 1).read_bytes() == before


def test_recovering_waits_for_the_writer_and_fences_it_only_when_told(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write(b"one").result(120)
        with pytest.raises(OwnershipAcquireFailed):
            recover_log(namespace, LOG, timeout_s=0)
        found = recover_log(namespace, LOG, steal=True)
        assert found is not None
        assert found.segment.records == 1
        writer.abort()


def test_recovering_refuses_metadata_that_contradicts_itself(namespace: LogNamespace, registry: Registry) -> None:
    fill_log(namespace, LOG, entries=7)
    registry.delete(node(2))
    with pytest.raises(InconsistentLog, match="segment 2 is missing"):
        recover_log(namespace, LOG)
