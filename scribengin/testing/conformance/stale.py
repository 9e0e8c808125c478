"""Part of the conformance suite for sinks: owners that are stale, and crashes at every step."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from scribengin.base.commit_log import CommitDescriptor
from scribengin.testing.conformance.expecting import expect, numbered
from scribengin.testing.conformance.owners import CheckedStream, attempted, raises
from scribengin.testing.failpoints import at_failpoint, record_stops


def a_late_write_of_a_stale_owner_is_not_seen(stream: CheckedStream) -> None:
    stale = stream.take()
    stale.round(numbered(1, 5))
    stale.write(numbered(2, 5))
    owner = stream.take()
    late = attempted(lambda: stale.write(numbered(3, 5)), lambda: stale.writer.prepare_commit())
    owner.round(numbered(4, 5))
    stream.expect_payloads(numbered(1, 5) + numbered(4, 5), f"after a stale owner wrote ({late})")
    owner.leave()
    stale.leave()
    stream.take().leave()
    stream.expect_payloads(numbered(1, 5) + numbered(4, 5), f"after a stale owner wrote and left ({late})")


def a_late_completion_of_a_stale_owner_is_not_seen(stream: CheckedStream) -> None:
    stale = stream.take()
    stale.write(numbered(1, 5))
    prepared = stale.prepare()
    owner = stream.take()
    refused = raises(lambda: stale.commit(prepared))
    expect(refused, "the transaction of a stale owner fails (the suite's own)")
    expect(
        raises(lambda: stale.writer.complete_commit(prepared)),
        "complete_commit() of a round that was rolled back by a later owner raises",
    )
    stream.expect_payloads([], "after a stale owner completed what it could not commit")
    owner.round(numbered(2, 5))
    stream.maintain(idle=True)
    stream.expect_payloads(numbered(2, 5), "after a stale owner completed what it could not commit")
    owner.leave()
    stale.leave()


def a_late_rollback_of_a_stale_owner_destroys_nothing(stream: CheckedStream) -> None:
    stale = stream.take()
    stale.write(numbered(1, 5))
    owner = stream.take()
    owner.round(numbered(2, 5))
    owner.write(numbered(3, 5))
    late = attempted(stale.writer.rollback, lambda: stale.writer.recover(None))
    prepared = owner.prepare()
    owner.commit(prepared)
    late += attempted(stale.writer.rollback, lambda: stale.writer.recover(None))
    owner.writer.complete_commit(prepared)
    wanted = numbered(2, 5) + numbered(3, 5)
    stream.expect_payloads(wanted, f"after a stale owner rolled back ({late})")
    owner.leave()
    stale.leave()
    stream.take().leave()
    stream.expect_payloads(wanted, f"after a stale owner rolled back and left ({late})")


def a_stale_owner_that_comes_back_destroys_nothing(stream: CheckedStream) -> None:
    stalled = stream.take()
    known = stream.committed()
    owner = stream.take()
    owner.round(numbered(1, 5))
    owner.write(numbered(2, 5))
    owner.commit(owner.prepare())
    late = stream.reopen(stalled)
    said = attempted(lambda: late.writer.recover(known), lambda: late.write(numbered(9, 5)), late.writer.prepare_commit)
    successor = stream.take()
    wanted = numbered(1, 5) + numbered(2, 5)
    stream.expect_payloads(wanted, f"after a stale owner opened a writer ({said})")
    successor.round(numbered(3, 5))
    stream.expect_payloads(wanted + numbered(3, 5), f"after a stale owner opened a writer ({said})")
    for one in (late, owner, stalled, successor):
        one.leave()
    stream.take().leave()
    stream.expect_payloads(wanted + numbered(3, 5), "after a stale owner opened a writer and left")


def a_crash_at_any_step_is_recovered(stream: CheckedStream) -> None:
    """The steps are the effects that the sink names: `with failpoint("..."):` in its code, see
    scribengin.base.failpoints."""
    wanted: list[bytes] = []

    def committed_and_not_completed(payloads: list[bytes]) -> None:
        owner = stream.take()
        owner.write(payloads)
        owner.commit(owner.prepare())
        owner.leave()
        wanted.extend(payloads)

    def recover_and_run_a_round(payloads: list[bytes]) -> None:
        owner = stream.take()
        try:
            owner.write(payloads)
            prepared = owner.prepare()
            tried[:] = [(prepared, payloads)]
            owner.commit(prepared)
            owner.writer.complete_commit(prepared)
        finally:
            owner.leave()

    def settle() -> None:
        """Which way it went, its commit log says: after a crash within a transaction coordinator's commit
        it may be either."""
        stream.take().leave()
        for prepared, payloads in tried:
            if stream.committed() == prepared:
                wanted.extend(payloads)
        tried.clear()

    tried: list[tuple[CommitDescriptor, list[bytes]]] = []
    committed_and_not_completed([b"before"])
    with record_stops() as stops:
        recover_and_run_a_round([b"undisturbed"])
    settle()
    for number, (stop, passing) in enumerate(_passings(stops)):
        committed_and_not_completed(numbered(2 * number, 2))
        with at_failpoint(stop, _crash, occurrence=passing), suppress(_Crash):
            recover_and_run_a_round(numbered(2 * number + 1, 2))
        settle()
        stream.expect_payloads(wanted, f"after a crash at {stop} (passing {passing}) and the next owner's recover()")
        stream.maintain(idle=number % 5 == 0)


class _Crash(BaseException):
    """Not an Exception, so that nothing on the way takes it for a failure that it could handle."""


def _crash(stop: str) -> None:
    raise _Crash(stop)


def _passings(stops: Sequence[str]) -> list[tuple[str, int]]:
    """Each passing of a stop: its name, and the how-manieth it is."""
    return [(stop, stops[: at + 1].count(stop)) for at, stop in enumerate(stops)]
