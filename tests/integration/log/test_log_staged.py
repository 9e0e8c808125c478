"""Rounds staged in a log: invisible until committed, judged by their commit log, and never half there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.base.model import node_name
from scribengin.errors import Fenced, InconsistentLog, LogError, LogWriteFailed, RecoveryRefused
from scribengin.log import LogConfig, LogNamespace, LogWriter, StagedRange
from scribengin.testing.failpoints import at_failpoint
from scribengin.testing.log_samples import payload_batch, payloads_read
from scribengin_registry.contract import Registry

LOG = "out/0"
COMMIT_LOG = "/scribengin/locks/commit-log"


class Crash(BaseException):
    """Ends a writer at a stop, as the end of its process would."""


def crash(_stop: str) -> None:
    raise Crash


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> LogNamespace:
    LogNamespace.bind("/logs", tmp_path / "store", registry=registry)
    registry.create(COMMIT_LOG, commit_log(None).to_bytes(), parents=True)
    made = LogNamespace.open("/logs", registry=registry)
    made.create(LOG)
    return made


def commit_log(staged: StagedRange | None) -> CommitLog:
    committed = None
    if staged is not None:
        committed = CommitDescriptor(kind="log", records=staged.records, data=staged.model_dump())
    return CommitLog(dataflow="d", task="t", owner="o", generation=1, epoch=1, round=1, committed=committed)


def open_writer(namespace: LogNamespace) -> LogWriter:
    return namespace.open_writer(LOG, steal=True, commit_log=COMMIT_LOG)


def stage(writer: LogWriter, *payloads: bytes) -> StagedRange:
    writer.stage(payload_batch(payloads))
    staged = writer.prepare()
    assert staged is not None
    return staged


def test_a_staged_round_is_invisible_until_it_is_committed(namespace: LogNamespace) -> None:
    with open_writer(namespace) as writer:
        writer.write(b"before").result(120)
        writer.stage(payload_batch([b"1", b"2"]))
        writer.stage(payload_batch([b"3"]))
        assert payloads_read(namespace, LOG) == [b"before"]
        staged = writer.prepare()
        assert staged is not None
        assert (staged.log, staged.segment, staged.first_entry, staged.last_entry, staged.records) == (LOG, 1, 1, 2, 3)
        assert payloads_read(namespace, LOG) == [b"before"]
        assert namespace.count(LOG) == 1
        writer.commit_staged(staged)
        assert payloads_read(namespace, LOG) == [b"before", b"1", b"2", b"3"]
        writer.write(b"after").result(120)
    assert payloads_read(namespace, LOG) == [b"before", b"1", b"2", b"3", b"after"]
    assert len(namespace.segments(LOG)) == 1


def test_preparing_nothing_gives_nothing_and_preparing_twice_gives_the_same(namespace: LogNamespace) -> None:
    with open_writer(namespace) as writer:
        assert writer.prepare() is None
        writer.stage(payload_batch([]))
        assert writer.prepare() is None
        assert stage(writer, b"x") == writer.prepare()


def test_a_rolled_back_round_is_gone_and_the_next_goes_on_in_a_new_segment(namespace: LogNamespace) -> None:
    with open_writer(namespace) as writer:
        writer.write(b"before", txid=5).result(120)
        staged = stage(writer, b"dropped")
        writer.rollback_staged()
        writer.rollback_staged()
        with pytest.raises(InconsistentLog, match="rolled them back"):
            writer.commit_staged(staged)
    with open_writer(namespace) as writer:
        writer.write(b"after", txid=6).result(120)
    assert payloads_read(namespace, LOG) == [b"before", b"after"]
    assert [segment.records for segment in namespace.segments(LOG)] == [1, 1]


def test_transaction_ids_of_a_round_that_was_rolled_back_do_not_count(namespace: LogNamespace) -> None:
    with open_writer(namespace) as writer:
        stage(writer, b"dropped")  # at the present time
        writer.rollback_staged()
        writer.write(b"x", txid=1).result(120)
    assert payloads_read(namespace, LOG) == [b"x"]


def test_nothing_else_is_written_while_a_round_is_staged(namespace: LogNamespace) -> None:
    with open_writer(namespace) as writer:
        staged = stage(writer, b"x")
        for call in (
            lambda: writer.write(b"y"),
            lambda: writer.write_bulk(payload_batch([b"y"])),
            writer.mark_end_of_stream,
        ):
            with pytest.raises(LogError, match="a round is staged"):
                call()
        writer.commit_staged(staged)
        writer.write(b"y")
    assert payloads_read(namespace, LOG) == [b"x", b"y"]


def test_only_a_writer_with_a_commit_log_can_stage(namespace: LogNamespace) -> None:
    with namespace.open_writer(LOG) as writer, pytest.raises(LogError, match="commit_log"):
        writer.stage(payload_batch([b"x"]))


def test_a_large_round_is_staged_in_several_groups_and_never_rolls(namespace: LogNamespace) -> None:
    namespace.create("large", LogConfig(entry_bytes_max=1024, segment_bytes_max=4096))
    payloads = [b"%04d" % n + bytes(900) for n in range(700)]
    with namespace.open_writer("large", commit_log=COMMIT_LOG) as writer:
        for start in range(0, 700, 100):
            writer.stage(payload_batch(payloads[start : start + 100]))
        staged = writer.prepare()
        assert staged is not None
        assert (staged.segment, staged.last_entry) == (1, 699)
        writer.commit_staged(staged)
        writer.write(b"next").result(120)
    assert payloads_read(namespace, "large") == [*payloads, b"next"]
    assert [segment.segment for segment in namespace.segments("large")] == [1, 2]


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "not committed"])
def test_the_commit_log_decides_about_a_round_whose_owner_is_gone(
    namespace: LogNamespace, registry: Registry, committed: bool
) -> None:
    writer = open_writer(namespace)
    writer.write(b"before").result(120)
    staged = stage(writer, b"1", b"2")
    if committed:
        registry.set(COMMIT_LOG, commit_log(staged).to_bytes())
    writer.abort()
    before = registry.get(COMMIT_LOG).version
    with namespace.open_writer(LOG) as plain:
        plain.write(b"after").result(120)
    assert payloads_read(namespace, LOG) == [b"before", *([b"1", b"2"] if committed else []), b"after"]
    assert registry.get(COMMIT_LOG).version == before + 1, "whoever judges a round fences its commit log first"


def test_a_judge_is_asked_instead_of_the_commit_log(namespace: LogNamespace, registry: Registry) -> None:
    writer = open_writer(namespace)
    staged = stage(writer, b"x")
    writer.abort()
    version = registry.get(COMMIT_LOG).version
    namespace.open_writer(LOG, lookup=lambda segment: staged if segment.segment == 1 else None).close()
    assert payloads_read(namespace, LOG) == [b"x"]
    assert registry.get(COMMIT_LOG).version == version


@pytest.mark.parametrize("content", [None, b"no commit log"], ids=["missing", "unreadable"])
def test_without_its_commit_log_a_staged_round_is_not_judged(
    namespace: LogNamespace, registry: Registry, content: bytes | None
) -> None:
    writer = open_writer(namespace)
    writer.write(b"before").result(120)
    staged = stage(writer, b"x")
    writer.abort()
    registry.delete(COMMIT_LOG)
    if content is not None:
        registry.create(COMMIT_LOG, content, parents=True)
    for _ in range(2):
        with pytest.raises(RecoveryRefused, match="commit log /scribengin/locks/commit-log"):
            namespace.open_writer(LOG)
    registry.create(COMMIT_LOG, parents=True) if content is None else None
    registry.set(COMMIT_LOG, commit_log(staged).to_bytes())
    namespace.open_writer(LOG).close()
    assert payloads_read(namespace, LOG) == [b"before", b"x"]


def test_staged_entries_of_a_segment_that_names_no_commit_log_are_not_judged(
    namespace: LogNamespace, registry: Registry
) -> None:
    writer = open_writer(namespace)
    stage(writer, b"x")
    writer.abort()
    (segment,) = namespace.segments(LOG)
    node = f"{namespace.path}/logs/{node_name(LOG)}/segments/{segment.node}"
    registry.set(node, segment.model_copy(update={"commit_log": None}).to_bytes())
    with pytest.raises(RecoveryRefused, match="names no commit log"):
        namespace.open_writer(LOG)


def test_a_missing_commit_log_is_no_obstacle_when_nothing_is_staged(
    namespace: LogNamespace, registry: Registry
) -> None:
    writer = open_writer(namespace)
    writer.commit_staged(stage(writer, b"x"))
    writer.abort()
    registry.delete(COMMIT_LOG)
    namespace.open_writer(LOG).close()
    assert payloads_read(namespace, LOG) == [b"x"]


def test_a_committed_round_that_the_segment_lost_is_refused(namespace: LogNamespace, registry: Registry) -> None:
    writer = open_writer(namespace)
    writer.write(b"before").result(120)
    staged = stage(writer, b"x")
    registry.set(COMMIT_LOG, commit_log(staged).to_bytes())
    writer.abort()
    (segment,) = namespace.segments(LOG)
    path = Path(namespace.descriptor.location) / f"{segment.file}.log"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RecoveryRefused, match="have committed, none are there"):
        namespace.open_writer(LOG)


def test_committing_is_idempotent_for_this_writer_and_the_next(namespace: LogNamespace, registry: Registry) -> None:
    writer = open_writer(namespace)
    first = stage(writer, b"1")
    writer.commit_staged(first)
    writer.commit_staged(first)
    second = stage(writer, b"2")
    registry.set(COMMIT_LOG, commit_log(second).to_bytes())
    writer.commit_staged(first)
    assert payloads_read(namespace, LOG) == [b"1"]
    writer.abort()
    with open_writer(namespace) as successor:
        for _ in range(2):
            successor.commit_staged(first)
            successor.commit_staged(second)
            successor.recover(second)
    assert payloads_read(namespace, LOG) == [b"1", b"2"]


def test_recover_commits_what_is_named_and_rolls_back_the_rest(namespace: LogNamespace) -> None:
    with open_writer(namespace) as writer:
        writer.recover(None)
        first = stage(writer, b"1")
        writer.recover(first)
        assert payloads_read(namespace, LOG) == [b"1"]
        writer.stage(payload_batch([b"dropped"]))
        writer.recover(first)
        stage(writer, b"dropped, too")
        writer.recover(first)
        stage(writer, b"dropped as well")
        writer.recover(None)
        second = stage(writer, b"2")
        writer.commit_staged(second)
    assert payloads_read(namespace, LOG) == [b"1", b"2"]


def test_a_round_of_a_log_that_was_deleted_since_is_not_looked_for(namespace: LogNamespace) -> None:
    with open_writer(namespace) as writer:
        staged = stage(writer, b"old")
        writer.commit_staged(staged)
    namespace.delete(LOG)
    namespace.create(LOG)
    with open_writer(namespace) as writer:
        writer.recover(staged)
        writer.commit_staged(stage(writer, b"new"))
    assert payloads_read(namespace, LOG) == [b"new"]


def test_closing_leaves_a_staged_round_to_be_judged(namespace: LogNamespace, registry: Registry) -> None:
    writer = open_writer(namespace)
    staged = stage(writer, b"x")
    writer.close()
    assert namespace.info(LOG).writer is None
    assert payloads_read(namespace, LOG) == []
    registry.set(COMMIT_LOG, commit_log(staged).to_bytes())
    open_writer(namespace).close()
    assert payloads_read(namespace, LOG) == [b"x"]


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "not committed"])
@pytest.mark.parametrize("late", ["stage", "prepare", "commit", "rollback"])
def test_a_stale_owner_can_neither_show_nor_hide_a_round(
    namespace: LogNamespace, registry: Registry, committed: bool, late: str
) -> None:
    stale = open_writer(namespace)
    stale.write(b"before").result(120)
    stale.stage(payload_batch([b"x"]))
    staged = stale.prepare() if late != "prepare" else None
    if committed and staged is not None:
        registry.set(COMMIT_LOG, commit_log(staged).to_bytes())
    owner = open_writer(namespace)
    calls: dict[str, Callable[[], object]] = {
        "stage": lambda: (stale.rollback_staged(), stage(stale, b"late")),
        "prepare": stale.prepare,
        "commit": lambda: stale.commit_staged(staged) if staged is not None else None,
        "rollback": stale.rollback_staged,
    }
    with pytest.raises(Fenced):
        calls[late]()
    stale.abort()
    owner.write(b"after").result(120)
    owner.close()
    shown = [b"x"] if committed and staged is not None else []
    assert payloads_read(namespace, LOG) == [b"before", *shown, b"after"]


STOPS_OF_A_ROUND = [
    "log.announce",
    "log.announced_remove",
    "log.segment_create",
    "log.segment_register",
    "log.stage_write",
    "log.stage_sync",
    "log.control_write",
    "log.control_sync",
    "log.round_show",
]
STOPS_OF_A_RECOVERY = ["log.lock", "log.fence", "log.settle", "log.commit_log_fence", "log.recovery_complete"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("effect", STOPS_OF_A_ROUND)
def test_a_round_that_stops_anywhere_is_there_as_a_whole_or_not_at_all(
    namespace: LogNamespace, registry: Registry, effect: str, when: str
) -> None:
    writer = open_writer(namespace)
    committed: list[bytes] = []
    with at_failpoint(f"{effect}:{when}", crash), pytest.raises((Crash, LogError)):
        one_round(writer, registry, committed)
    writer.abort()
    after_recovery(namespace, committed)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("effect", STOPS_OF_A_RECOVERY)
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "not committed"])
def test_a_recovery_that_stops_anywhere_is_finished_by_the_next(
    namespace: LogNamespace, registry: Registry, effect: str, when: str, committed: bool
) -> None:
    writer = open_writer(namespace)
    expected: list[bytes] = []
    if committed:
        with at_failpoint("log.control_write:before", crash), pytest.raises(Crash):
            one_round(writer, registry, expected)
    else:
        stage(writer, b"dropped")
    with at_failpoint(f"{effect}:{when}", crash), pytest.raises((Crash, LogWriteFailed)):
        namespace.open_writer(LOG, steal=True)
    after_recovery(namespace, expected)


def one_round(writer: LogWriter, registry: Registry, committed: list[bytes]) -> None:
    staged = stage(writer, b"1", b"2")
    registry.set(COMMIT_LOG, commit_log(staged).to_bytes())
    committed += [b"1", b"2"]
    writer.commit_staged(staged)


def after_recovery(namespace: LogNamespace, committed: list[bytes]) -> None:
    with open_writer(namespace) as successor:
        successor.commit_staged(stage(successor, b"next"))
    assert payloads_read(namespace, LOG) == [*committed, b"next"]
