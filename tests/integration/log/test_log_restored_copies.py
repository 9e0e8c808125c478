"""A registry that went back behind the copies of a log's segments, or behind all that it lists: what is there is found.

The backup was made at any time: before a copy was made, before what it was made of went, while the segment was written.
"""

from __future__ import annotations

import pytest

from scribengin.errors import RecoveryRefused
from scribengin.log import DLSN, LogNamespace
from scribengin.log.clients import recover_log
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import fill_log, payloads_read
from tests.dying import Stopped, stop_here
from tests.registry_copies import restore, saved
from tests.servers.cold import HOUR_S, LOG, ColdLog

pytestmark = pytest.mark.usefixtures("unmaintained")

KEPT: dict[str, dict[str, object]] = {
    "cold": {"hot_hours": 1},
    "compressed": {"cold_url": None, "hot_hours": None, "copy_codec": "zstd", "raw_retention_hours": 1},
    "compressed and cold": {"hot_hours": 1, "copy_codec": "lz4", "raw_retention_hours": 0},
}


def write(namespace: LogNamespace, first: int, count: int) -> list[bytes]:
    payloads = [b"%04d" % number + bytes(1500) for number in range(first, first + count)]
    with namespace.open_writer(LOG) as writer:
        for payload in payloads:
            writer.write(payload).result(120)
    return payloads


def only_copies(cold_log: ColdLog) -> None:
    """Make the copies that the log's configuration wants, and let go of what they were made of."""
    cold_log.namespace.compress(LOG)
    cold_log.namespace.offload(LOG)
    for _ in range(3):
        cold_log.clock.advance_s(2 * HOUR_S)
        cold_log.namespace.purge(LOG)
    assert all(segment.file != segment.raw_file for segment in cold_log.namespace.segments(LOG))


def check_found(cold_log: ColdLog, payloads: list[bytes]) -> None:
    """All is there, places in it are what they were, and it goes on."""
    namespace = cold_log.namespace
    assert payloads_read(namespace, LOG) == payloads
    assert [*namespace.inspect(LOG).out_of_place()] == []
    assert recover_log(namespace, LOG) is None
    payloads += write(namespace, 9000, 4)
    only_copies(cold_log)
    assert payloads_read(namespace, LOG) == payloads
    assert cold_log.findings() == []
    head = namespace.info(LOG).head
    assert head.bytes == sum(segment.file_bytes for segment in namespace.segments(LOG))


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("moment", ["before the copies", "before what they were made of went"])
def test_segments_that_are_there_as_copies_alone_are_read_from_these(cold_log: ColdLog, kept: str, moment: str) -> None:
    payloads = fill_log(cold_log.namespace, LOG, 9)
    cold_log.namespace.configure(LOG, cold_log.config(**KEPT[kept]))
    backup = saved(cold_log.registry)
    cold_log.namespace.compress(LOG)
    cold_log.namespace.offload(LOG)
    if moment != "before the copies":
        backup = saved(cold_log.registry)
    only_copies(cold_log)
    restore(cold_log.registry, backup)
    assert sum("which the registry does not know" in one for one in cold_log.findings()) == 3
    found = recover_log(cold_log.namespace, LOG)
    assert found is not None
    assert found.restored.from_cold + found.restored.from_copies == 3
    assert (found.restored.from_copies == 3) == (kept == "compressed")
    check_found(cold_log, payloads)


@pytest.mark.parametrize("where", ["", "log.metadata:before", "log.metadata:after", "log.segment_move:after"])
@pytest.mark.parametrize("kept", KEPT)
def test_the_segment_that_was_written_when_the_backup_was_made_is_completed_by_its_copy(
    cold_log: ColdLog, kept: str, where: str
) -> None:
    namespace = cold_log.namespace
    namespace.configure(LOG, cold_log.config(**KEPT[kept]))
    payloads = [b"%04d" % number + bytes(1500) for number in range(12)]
    with namespace.open_writer(LOG) as writer:
        for number, payload in enumerate(payloads):
            writer.write(payload).result(120)
            if number == 3:
                backup = saved(cold_log.registry)
    only_copies(cold_log)
    before = [segment.start_sequence for segment in namespace.segments(LOG)]
    restore(cold_log.registry, backup)
    unfinished = namespace.segments(LOG)[-1]
    assert unfinished.in_progress
    if where:
        for occurrence in (1, 2, 3):
            try:
                with at_failpoint(where, stop_here, occurrence=occurrence):
                    recover_log(namespace, LOG, steal=True)
            except Stopped:
                pass
    recover_log(namespace, LOG, steal=True)
    assert [segment.start_sequence for segment in namespace.segments(LOG)] == before
    assert not namespace.segments(LOG)[unfinished.segment - 1].in_progress
    check_found(cold_log, payloads)


def test_a_copy_that_a_crash_has_left_unfinished_is_not_taken_for_the_whole_one(cold_log: ColdLog) -> None:
    namespace = cold_log.namespace
    namespace.configure(LOG, cold_log.config())
    with namespace.open_writer(LOG) as writer:
        for number in range(2):
            writer.write(b"%04d" % number + bytes(1500)).result(120)
        backup = saved(cold_log.registry)
        payloads = [b"0000" + bytes(1500), b"0001" + bytes(1500), b"last", bytes(3000)]
        for payload in payloads[2:]:
            writer.write(payload).result(120)
    only_copies(cold_log)
    for length in (1700, 100):
        content = cold_log.files.read(cold_log.path(1), 0, length)
        cold_log.files.put(f"{cold_log.where()}/{1:018d}-1.cold-{length:012d}.log", content)
    restore(cold_log.registry, backup)
    recover_log(namespace, LOG, steal=True)
    assert payloads_read(namespace, LOG) == payloads


def test_a_copy_that_does_not_hold_completes_nothing(cold_log: ColdLog) -> None:
    namespace = cold_log.namespace
    namespace.configure(LOG, cold_log.config())
    with namespace.open_writer(LOG) as writer:
        writer.write(b"first").result(120)
        backup = saved(cold_log.registry)
        writer.write(bytes(5000)).result(120)
    only_copies(cold_log)
    cold_log.damage(1, 300)
    restore(cold_log.registry, backup)
    with pytest.raises(RecoveryRefused, match=r"segment 1 is in cold storage alone.*does not hold"):
        recover_log(namespace, LOG, steal=True)
    assert namespace.segments(LOG)[-1].in_progress


# -- all that is listed was purged since


@pytest.mark.parametrize("where", ["", "log.metadata:before", "log.metadata:after", "log.take_back:after"])
@pytest.mark.parametrize("unfinished", [True, False])
def test_a_log_of_which_all_that_is_listed_was_purged_begins_with_what_is_there(
    cold_log: ColdLog, unfinished: bool, where: str
) -> None:
    namespace = cold_log.namespace
    payloads = [b"%04d" % number + bytes(1500) for number in range(14)]
    with namespace.open_writer(LOG) as writer:
        for payload in payloads[:5]:
            writer.write(payload).result(120)
        backup = saved(cold_log.registry)
        if not unfinished:
            writer.close()
            backup = saved(cold_log.registry)
    with namespace.open_writer(LOG) as writer:
        for payload in payloads[5:]:
            writer.write(payload).result(120)
    listed = namespace.segments(LOG)
    first = listed[-2]
    namespace.truncate(LOG, DLSN(first.segment, 0, 0))
    assert namespace.purge(LOG).segments == len(listed) - 2
    kept = payloads[first.start_sequence :]
    assert payloads_read(namespace, LOG) == kept
    restore(cold_log.registry, backup)
    before = namespace.segments(LOG)
    assert before[-1].in_progress == unfinished
    assert before[-1].segment < first.segment
    for occurrence in range(1, 5 if where else 1):
        try:
            with at_failpoint(where, stop_here, occurrence=occurrence):
                recover_log(namespace, LOG, steal=True)
        except Stopped:
            pass
    found = recover_log(namespace, LOG, steal=True)
    assert where or (found is not None and found.restored.given_up == len(before))
    after = namespace.segments(LOG)
    assert [(one.segment, one.start_sequence) for one in after] == [
        (one.segment, one.start_sequence) for one in listed[-2:]
    ]
    assert namespace.first_dlsn(LOG) == DLSN(first.segment, 0, 0)
    namespace.configure(LOG, cold_log.config())
    check_found(cold_log, kept)


def test_a_log_none_of_whose_files_is_there_is_left_alone(cold_log: ColdLog) -> None:
    namespace = cold_log.namespace
    with namespace.open_writer(LOG) as writer:
        writer.write(bytes(5000)).result(120)
        writer.write(b"last").result(120)
        backup = saved(cold_log.registry)
    directory = cold_log.directory()
    restore(cold_log.registry, backup)
    for name in namespace._store.names(directory):
        namespace._store.remove(name)
    before = namespace.segments(LOG)
    with pytest.raises(RecoveryRefused, match="bring the file back"):
        recover_log(namespace, LOG, steal=True)
    assert namespace.segments(LOG) == before
