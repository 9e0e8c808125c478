"""A registry that went back: a backup was restored that is older than the files of its logs.

Nothing that was acknowledged is deleted. What no node names is set aside, told, and taken back on request.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.base.names import log_command
from scribengin.errors import PositionTruncated
from scribengin.log import DLSN, LogConfig, LogNamespace
from scribengin.log.clients import recover_log
from scribengin.log.metadata.check import Finding
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import bound_namespace, payload_batch, payloads_read
from scribengin_registry.contract import Registry
from scribengin_tools.logs.checks import LogCheck, checks
from tests.dying import Stopped, stop_here
from tests.registry_copies import restore, saved

LOG = "flights/ä"
SMALL = LogConfig(segment_bytes_max=4096)
KINDS = [b"", bytes(range(256)), "Grüße, 世界".encode(), b"long" * 50_000]


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    return bound_namespace(registry, tmp_path / "store", LOG, config=SMALL)


def write(namespace: LogNamespace, first: int, count: int) -> list[bytes]:
    """Some batches of records of all kinds, by a writer of its own; three or so make a segment."""
    payloads: list[bytes] = []
    with namespace.open_writer(LOG) as writer:
        for number in range(first, first + count):
            batch = [b"%d" % number, *KINDS[: 3 + (number % 8 == 0)], bytes(1000)]
            writer.write_bulk(payload_batch(batch)).result(120)
            payloads += batch
    return payloads


def check(namespace: LogNamespace) -> LogCheck:
    (found,) = checks(namespace, [LOG], None, bodies=True)
    return found


def wrong(namespace: LogNamespace) -> list[Finding]:
    return list(check(namespace).findings)


def test_records_that_a_restored_registry_does_not_know_are_told_set_aside_and_taken_back(
    namespace: LogNamespace, registry: Registry
) -> None:
    before = write(namespace, 0, 5)
    backup = saved(registry)
    after = write(namespace, 5, 20) + write(namespace, 25, 3)
    files = len(namespace.segments(LOG))
    restore(registry, backup)
    assert payloads_read(namespace, LOG) == before
    told = wrong(namespace)
    assert len(told) == files - len(namespace.segments(LOG)) > 3
    recovery = log_command(namespace.path, "recover", LOG)
    assert all("the registry does not name" in finding.what and recovery in finding.what for finding in told)
    with namespace.open_writer(LOG):
        pass  # it writes nothing, but it looks
    assert len(wrong(namespace)) == len(told)  # set aside, not deleted
    found = recover_log(namespace, LOG)
    assert found is not None
    assert [segment.segment for segment in found.taken_back] == [s.segment for s in namespace.segments(LOG)][
        -len(told) :
    ]
    assert payloads_read(namespace, LOG) == before + after
    assert namespace.count(LOG) == len(before + after)
    assert not wrong(namespace)
    assert not check(namespace).strays
    assert recover_log(namespace, LOG) is None
    more = write(namespace, 40, 4)
    assert payloads_read(namespace, LOG) == before + after + more
    assert not wrong(namespace)


def test_records_that_were_set_aside_follow_those_that_were_written_since(
    namespace: LogNamespace, registry: Registry
) -> None:
    before = write(namespace, 0, 5)
    backup = saved(registry)
    lost = write(namespace, 5, 6)
    restore(registry, backup)
    since = write(namespace, 50, 7)
    assert payloads_read(namespace, LOG) == before + since
    assert wrong(namespace)
    for where in ("log.take_back:before", "log.take_back:after", "log.metadata:before", "log.metadata:after"):
        with pytest.raises(Stopped), at_failpoint(where, stop_here):
            recover_log(namespace, LOG)
    recover_log(namespace, LOG)
    assert payloads_read(namespace, LOG) == before + since + lost
    assert not wrong(namespace)
    assert recover_log(namespace, LOG) is None


def test_a_registry_that_went_back_twice_loses_nothing_either(namespace: LogNamespace, registry: Registry) -> None:
    backup = saved(registry)
    written = [write(namespace, 0, 4)]
    for number in (10, 20):
        restore(registry, backup)
        written.append(write(namespace, number, 4))
    restore(registry, backup)
    recover_log(namespace, LOG)
    assert sorted(payloads_read(namespace, LOG)) == sorted(payload for payloads in written for payload in payloads)
    assert not wrong(namespace)


def test_the_segment_that_was_being_written_when_the_backup_was_made_has_all_that_was_written_since(
    namespace: LogNamespace, registry: Registry
) -> None:
    with namespace.open_writer(LOG) as writer:
        writer.write(b"one").result(120)
        backup = saved(registry)
        writer.write(b"two").result(120)
    after = write(namespace, 0, 8)
    restore(registry, backup)
    assert wrong(namespace)
    recover_log(namespace, LOG)
    assert payloads_read(namespace, LOG) == [b"one", b"two", *after]
    assert not wrong(namespace)


def test_a_file_that_was_made_and_never_written_is_no_loss_and_removed(
    namespace: LogNamespace, registry: Registry
) -> None:
    with pytest.raises(Stopped), at_failpoint("log.segment_register:before", stop_here):
        write(namespace, 0, 1)
    assert not wrong(namespace)
    assert check(namespace).strays
    with namespace.open_writer(LOG, steal=True):
        pass
    assert not check(namespace).strays


def test_segments_that_were_purged_since_the_backup_are_told_and_given_up(
    namespace: LogNamespace, registry: Registry
) -> None:
    before = write(namespace, 0, 9)
    last = namespace.segments(LOG)[-1].segment
    namespace.register_reader(LOG, "early", DLSN(1, 0, 0))
    backup = saved(registry)
    namespace.truncate(LOG, DLSN(last, 0, 0), force=True)
    namespace.unregister_reader(LOG, "early")
    assert namespace.purge(LOG).segments == last - 1
    kept = payloads_read(namespace, LOG)
    restore(registry, backup)
    assert sum("is missing" in finding.what for finding in wrong(namespace)) == last - 1
    recover_log(namespace, LOG)
    assert payloads_read(namespace, LOG) == kept
    assert 0 < len(kept) < len(before)
    with pytest.raises(PositionTruncated):
        namespace.open_reader(LOG, DLSN(1, 1, 0))
    (finding,) = wrong(namespace)
    assert "reader 'early'" in finding.what
    assert "were given up" in finding.what


def test_a_reader_that_stands_ahead_of_its_log_is_told(namespace: LogNamespace, registry: Registry) -> None:
    write(namespace, 0, 3)
    backup = {path: data for path, data in saved(registry).items() if "readers" not in path}
    write(namespace, 3, 9)
    end = namespace.end_dlsn(LOG)
    namespace.register_reader(LOG, "ahead", end)
    readers = {path: data for path, data in saved(registry).items() if "/readers" in path}
    restore(registry, backup | readers)
    assert any("reader 'ahead'" in finding.what and "behind its end" in finding.what for finding in wrong(namespace))
    recover_log(namespace, LOG)
    assert not wrong(namespace)


@pytest.mark.parametrize("where", ["log.take_back:after", "log.segment_create:after", "log.segment_sync:before"])
@pytest.mark.parametrize("dies", [True, False])
def test_a_purge_takes_nothing_away_that_is_being_taken_back(
    namespace: LogNamespace, registry: Registry, where: str, dies: bool
) -> None:
    write(namespace, 0, 3)
    backup = saved(registry)
    lost = write(namespace, 100, 3)
    restore(registry, backup)
    write(namespace, 200, 9)
    last = namespace.segments(LOG)[-1]
    kept = write(namespace, 300, 1)
    namespace.truncate(LOG, DLSN(last.segment + 1, 0, 0))

    def purge(_stop: str) -> None:
        assert namespace.purge(LOG).segments > 3
        if dies:
            raise Stopped

    try:
        with at_failpoint(where, purge):
            recover_log(namespace, LOG)
    except Stopped:
        namespace.purge(LOG)
    recover_log(namespace, LOG, steal=True)
    assert payloads_read(namespace, LOG) == kept + lost
    assert not wrong(namespace)
