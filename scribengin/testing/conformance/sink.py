"""The conformance suite for sinks: `check_sink` holds an implementation against `connectors.contract`."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing

import pyarrow as pa

from scribengin.base.names import LOCKS
from scribengin.connectors.contract import PAYLOAD, SinkStreamDescriptor
from scribengin.errors import RecordRefused, RecordTooLarge
from scribengin.testing.conformance.expecting import expect, expect_equal, numbered, promised
from scribengin.testing.conformance.owners import CheckedStream, MakeSink, batch_of, raises
from scribengin.testing.conformance.stale import (
    a_crash_at_any_step_is_recovered,
    a_late_completion_of_a_stale_owner_is_not_seen,
    a_late_rollback_of_a_stale_owner_destroys_nothing,
    a_late_write_of_a_stale_owner_is_not_seen,
    a_stale_owner_that_comes_back_destroys_nothing,
)
from scribengin_registry.contract import Registry


def check_sink(
    make_sink: MakeSink, registry: Registry, *, commit_logs: str = f"{LOCKS}/conformance", of_columns: bool = False
) -> None:
    """Raise AssertionError, with a sentence that says which promise is broken, unless the sink keeps all of them.

    `make_sink()` opens the sink afresh, as another process does. It is new, and nothing was written to it. The suite
    plays the owners of its streams, and keeps their commit logs in `registry`, below the node `commit_logs`.
    `of_columns`: its format is `columns`, so that a payload is a column like others, and may be null.
    """
    checks: list[Callable[[CheckedStream], None]] = [
        staged_output_is_invisible_until_it_is_completed,
        a_round_that_writes_nothing_prepares_nothing,
        columns_may_come_in_any_order,
        a_refused_batch_leaves_nothing,
        what_is_refused_is_told_beforehand,
        rolled_back_output_is_gone,
        completing_twice_shows_it_once,
        any_process_completes_from_the_descriptor,
        what_a_dead_owner_staged_is_rolled_back,
        only_what_was_not_committed_is_rolled_back,
        an_unknown_outcome_is_settled_by_recover,
        a_commit_is_carried_over_empty_rounds,
        order_is_kept_over_rounds_and_owners,
        maintenance_changes_nothing_that_is_seen,
        a_late_write_of_a_stale_owner_is_not_seen,
        a_late_completion_of_a_stale_owner_is_not_seen,
        a_late_rollback_of_a_stale_owner_destroys_nothing,
        a_stale_owner_that_comes_back_destroys_nothing,
        a_crash_at_any_step_is_recovered,
    ]
    if of_columns:
        checks = [check for check in checks if check not in _OF_PAYLOADS]
    descriptors = _descriptors(make_sink, len(checks) + 2)
    for check, descriptor in zip(checks, descriptors, strict=False):
        with promised(check):
            check(CheckedStream(make_sink, registry, descriptor, f"{commit_logs}/{uuid.uuid4().hex}"))
    first, second = (
        CheckedStream(make_sink, registry, descriptor, f"{commit_logs}/{uuid.uuid4().hex}")
        for descriptor in descriptors[-2:]
    )
    with promised(two_streams_do_not_meet):
        two_streams_do_not_meet(first, second)


def staged_output_is_invisible_until_it_is_completed(stream: CheckedStream) -> None:
    owner = stream.take()
    payloads = numbered(1, 1000)
    owner.write(payloads[:600])
    owner.write(payloads[600:])
    stream.expect_payloads([], "after write()")
    prepared = owner.prepare()
    expect_equal(prepared.records, len(payloads), "CommitDescriptor.records")
    stream.expect_payloads([], "after prepare_commit()")
    stream.maintain(idle=True)
    stream.expect_payloads([], "after prepare_commit() and maintain()")
    owner.commit(prepared)
    owner.writer.complete_commit(prepared)
    stream.expect_payloads(payloads, "after complete_commit()")
    owner.leave()
    stream.expect_payloads(payloads, "after close()")


def a_round_that_writes_nothing_prepares_nothing(stream: CheckedStream) -> None:
    owner = stream.take()
    expect(owner.writer.prepare_commit() is None, "prepare_commit() without write() returns None")
    owner.write([])
    expect(owner.writer.prepare_commit() is None, "prepare_commit() after an empty batch returns None")
    owner.writer.rollback()
    owner.round(numbered(1, 3))
    expect(owner.writer.prepare_commit() is None, "prepare_commit() without write() returns None after a round, too")
    stream.expect_payloads(numbered(1, 3), "after a round between two empty ones")
    owner.leave()


def columns_may_come_in_any_order(stream: CheckedStream) -> None:
    owner = stream.take()
    owner.writer.write(
        pa.record_batch(
            {
                "unknown": pa.array([1, 2], pa.int32()),
                PAYLOAD: pa.array(["text", ""], pa.string()),
                "key": pa.array([b"k", None], pa.binary()),
            }
        )
    )
    owner.writer.write(batch_of([b"zero", b"one", b"two"]).slice(1, 1))
    prepared = owner.prepare()
    owner.commit(prepared)
    owner.writer.complete_commit(prepared)
    stream.expect_payloads([b"text", b"", b"one"], "of batches with text, unknown columns, and a part of a batch")
    owner.leave()


def a_refused_batch_leaves_nothing(stream: CheckedStream) -> None:
    owner = stream.take()
    owner.round([b"good"])
    owner.write([b"also good"])
    refused = pa.record_batch({PAYLOAD: pa.array([b"first", None], pa.binary())})
    expect(raises(lambda: owner.writer.write(refused)), "write() of a record without a payload raises")
    owner.leave()
    successor = stream.take()
    successor.round([b"next"])
    stream.expect_payloads([b"good", b"next"], "after a batch was refused and another owner came")
    successor.leave()


def what_is_refused_is_told_beforehand(stream: CheckedStream) -> None:
    """Else a bad record is found when its round cannot be taken apart any more, and ends the dataflow."""
    owner = stream.take()
    refused = pa.record_batch({PAYLOAD: pa.array([b"first", None], pa.binary())})
    expect(_refuses(lambda: owner.writer.check(refused)), "check() of a record without a payload raises RecordRefused")
    largest = owner.writer.payload_bytes_max
    if largest is not None and largest < _PAYLOAD_BYTES_MAX:
        large = batch_of([b"small", b"x" * (largest + 1)])
        expect(_refuses(lambda: owner.writer.check(large)), "check() of a payload that is too large raises")
        owner.writer.check(batch_of([b"x" * largest]))
        owner.round([b"x" * largest])
    any_bytes = [bytes(b for b in range(256) if b != 10), "Grüße, 世界".encode(), b""]
    owner.writer.check(batch_of(any_bytes))
    owner.writer.check(batch_of([]))
    expect(owner.writer.prepare_commit() is None, "check() stages nothing")
    owner.round(any_bytes)
    found = [payload for payload in stream.payloads() if len(payload) != largest]
    expect_equal(found, any_bytes, "what readers see of payloads of all bytes")
    owner.leave()


def rolled_back_output_is_gone(stream: CheckedStream) -> None:
    owner = stream.take()
    owner.writer.rollback()
    owner.write(numbered(1, 5))
    owner.writer.rollback()
    owner.write(numbered(2, 5))
    owner.prepare()
    owner.writer.rollback()
    owner.writer.rollback()
    stream.expect_payloads([], "after rollback()")
    owner.round(numbered(3, 5))
    stream.expect_payloads(numbered(3, 5), "of a round after two that were rolled back")
    owner.leave()
    stream.take().leave()
    stream.expect_payloads(numbered(3, 5), "after the next owner's recover()")


def completing_twice_shows_it_once(stream: CheckedStream) -> None:
    owner = stream.take()
    first = owner.round(numbered(1, 5))
    owner.writer.complete_commit(first)
    second = owner.round(numbered(2, 5))
    owner.writer.complete_commit(second)
    stream.expect_payloads(numbered(1, 5) + numbered(2, 5), "after completing twice")
    owner.leave()


def any_process_completes_from_the_descriptor(stream: CheckedStream) -> None:
    owner = stream.take()
    owner.write(numbered(1, 5))
    owner.commit(owner.prepare())
    owner.leave()
    successor = stream.take()
    stream.expect_payloads(numbered(1, 5), "once another owner has recovered what was committed")
    committed = stream.committed()
    if committed is not None:
        successor.writer.complete_commit(committed)
    successor.leave()
    last = stream.take()
    last.round(numbered(2, 5))
    stream.expect_payloads(numbered(1, 5) + numbered(2, 5), "after three owners")
    last.leave()


def what_a_dead_owner_staged_is_rolled_back(stream: CheckedStream) -> None:
    dead = stream.take()
    dead.write(numbered(1, 5))
    prepared_and_dead = stream.take()
    prepared_and_dead.write(numbered(2, 5))
    prepared_and_dead.prepare()
    owner = stream.take()
    owner.writer.recover(None)
    stream.expect_payloads([], "of owners that never committed")
    owner.round(numbered(3, 5))
    stream.expect_payloads(numbered(3, 5), "after owners that never committed")
    owner.leave()


def only_what_was_not_committed_is_rolled_back(stream: CheckedStream) -> None:
    owner = stream.take()
    owner.round(numbered(1, 5))
    owner.write(numbered(2, 5))
    owner.prepare()
    owner.leave()
    successor = stream.take()
    stream.expect_payloads(numbered(1, 5), "after an owner that died between prepare_commit() and its transaction")
    successor.write(numbered(3, 5))
    successor.writer.rollback()
    stream.expect_payloads(numbered(1, 5), "after a rollback that followed a committed round")
    successor.leave()


def an_unknown_outcome_is_settled_by_recover(stream: CheckedStream) -> None:
    owner = stream.take()
    owner.round(numbered(1, 5))
    owner.write(numbered(2, 5))
    owner.commit(owner.prepare())
    owner.writer.recover(stream.committed())
    stream.expect_payloads(numbered(1, 5) + numbered(2, 5), "when the transaction turned out to be applied")
    owner.write(numbered(3, 5))
    owner.prepare()
    owner.writer.recover(stream.committed())
    owner.write(numbered(4, 5))
    owner.writer.recover(stream.committed())
    stream.expect_payloads(numbered(1, 5) + numbered(2, 5), "when the transaction turned out not to be applied")
    owner.round(numbered(5, 5))
    wanted = numbered(1, 5) + numbered(2, 5) + numbered(5, 5)
    stream.expect_payloads(wanted, "after unknown outcomes, and one more round")
    owner.leave()


def a_commit_is_carried_over_empty_rounds(stream: CheckedStream) -> None:
    owner = stream.take()
    owner.round(numbered(1, 5))
    owner.commit(owner.writer.prepare_commit())
    owner.commit(None)
    owner.leave()
    for _ in range(2):
        stream.take().leave()
    stream.expect_payloads(numbered(1, 5), "when its commit is named again by later commit logs")


def order_is_kept_over_rounds_and_owners(stream: CheckedStream) -> None:
    wanted: list[bytes] = []
    for turn in range(3):
        owner = stream.take()
        for number in range(3):
            payloads = numbered(10 * turn + number, 50)
            owner.round(payloads)
            wanted += payloads
        owner.leave()
        stream.maintain(idle=turn == 1)
    stream.expect_payloads(wanted, "of nine rounds by three owners, in order")


def maintenance_changes_nothing_that_is_seen(stream: CheckedStream) -> None:
    owner = stream.take()
    wanted: list[bytes] = []
    for number in range(4):
        owner.round(numbered(number, 5))
        wanted += numbered(number, 5)
        stream.maintain(idle=number % 2 == 1)
        stream.expect_payloads(wanted, "after maintain()")
    committed = stream.committed()
    if committed is not None:
        owner.writer.complete_commit(committed)
    stream.expect_payloads(wanted, "when a round is completed again after maintain()")
    owner.leave()
    stream.take().leave()
    stream.expect_payloads(wanted, "when an owner recovers after maintain()")


_OF_PAYLOADS = (
    columns_may_come_in_any_order,
    a_refused_batch_leaves_nothing,
    what_is_refused_is_told_beforehand,
)
_PAYLOAD_BYTES_MAX = 4 * 1024 * 1024
"""Larger ones are not tried."""


def _refuses(act: Callable[[], object]) -> bool:
    try:
        act()
    except (RecordRefused, RecordTooLarge):
        return True
    return False


def two_streams_do_not_meet(first: CheckedStream, second: CheckedStream) -> None:
    one, other = first.take(), second.take()
    one.write(numbered(1, 5))
    other.write(numbered(2, 5))
    one.commit(prepared := one.prepare())
    other.writer.rollback()
    one.writer.complete_commit(prepared)
    other.round(numbered(3, 5))
    first.expect_payloads(numbered(1, 5), "of one stream while another is rolled back")
    second.expect_payloads(numbered(3, 5), "of one stream beside another")
    one.leave()
    other.leave()


def _descriptors(make_sink: MakeSink, count: int) -> list[SinkStreamDescriptor]:
    with closing(make_sink()) as sink, closing(make_sink()) as again:
        descriptors = sink.streams(count)
        expect_equal(len(descriptors), count, f"the number of streams that streams({count}) returns")
        expect_equal(again.streams(2), descriptors[:2], "streams(2) of the same sink opened again: the first two")
        expect_equal(again.resource, sink.resource, "the resource of the same sink opened again")
        expect(all(d.resource == sink.resource for d in descriptors), "streams carry the resource of their sink")
        expect(len({d.name for d in descriptors}) == count, "the names of streams are unique")
        sink.create(descriptors)
        again.create(descriptors)
    return descriptors
