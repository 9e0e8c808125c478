"""What follows from the word of a transaction coordinator: every case, and that silence is never taken for an
answer."""

from __future__ import annotations

import pytest

from scribengin.base.commit_log import CommitDescriptor, CommitLog, Decision, QueryBatch, resolve_prepared
from scribengin.errors import DecisionMissing

GROUP = "group"
FIRST, SECOND = Decision(coordinator=GROUP, epoch=3, round=1), Decision(coordinator=GROUP, epoch=4, round=2)
NOTHING = Decision(coordinator=GROUP, epoch=0, round=0)
OUTPUT = CommitDescriptor(kind="kafka", records=5, data={})


def log(*, decided: Decision | None = None, prepared: Decision | None = None, position: int = 0) -> CommitLog:
    """A commit log of a task whose last round was `decided`, and whose next is `prepared`."""
    number = 0 if decided is None else decided.round
    found = CommitLog(
        dataflow="d",
        task="t",
        owner="o",
        generation=1,
        epoch=9,
        round=number,
        position={"at": position},
        decided=decided,
    )
    if prepared is None:
        return found
    moved = found.model_copy(update={"position": {"at": position + 10}, "committed": OUTPUT, "round": prepared.round})
    return found.preparing(moved, prepared)


def test_nothing_is_prepared_and_the_system_agrees() -> None:
    resolution = resolve_prepared({"/a": log(decided=FIRST), "/b": log()}, GROUP, FIRST)
    assert (resolution.changed, resolution.last, resolution.missing) == ({}, FIRST, False)


@pytest.mark.parametrize("decided", [None, FIRST])
def test_nothing_is_prepared_and_the_system_knows_nothing_so_it_is_told_again(decided: Decision | None) -> None:
    resolution = resolve_prepared({"/a": log(decided=decided)}, GROUP, None)
    assert (resolution.changed, resolution.last, resolution.missing) == ({}, decided or NOTHING, True)


def test_what_was_committed_goes_forward_whole() -> None:
    logs = {"/a": log(decided=FIRST, prepared=SECOND), "/b": log(prepared=SECOND, position=5), "/c": log()}
    resolution = resolve_prepared(logs, GROUP, SECOND)
    assert sorted(resolution.changed) == ["/a", "/b"]
    moved = resolution.changed["/b"]
    assert (moved.position, moved.committed, moved.round) == ({"at": 15}, OUTPUT, 2)
    assert (moved.prepared, moved.decided, moved.epoch) == (None, SECOND, 9)
    assert (resolution.forward, resolution.last, resolution.missing) == (True, SECOND, False)


def test_what_was_not_committed_goes_back_and_positions_stay() -> None:
    resolution = resolve_prepared({"/a": log(decided=FIRST, prepared=SECOND)}, GROUP, FIRST)
    assert resolution.changed == {"/a": log(decided=FIRST)}
    assert (resolution.forward, resolution.last) == (False, FIRST)


def test_the_first_round_goes_back_to_nothing() -> None:
    resolution = resolve_prepared({"/a": log(prepared=FIRST)}, GROUP, NOTHING)
    assert resolution.changed == {"/a": log()}
    assert resolution.last == NOTHING


@pytest.mark.parametrize("decided", [None, FIRST])
def test_silence_about_a_prepared_round_is_an_error_that_names_the_choices(decided: Decision | None) -> None:
    with pytest.raises(DecisionMissing) as refused:
        resolve_prepared({"/b": log(decided=decided, prepared=SECOND), "/a": log(prepared=SECOND)}, GROUP, None)
    said = str(refused.value)
    assert "round 2 of epoch 4 is prepared, and only 'group' can say" in said
    assert "says nothing" in said
    assert said.endswith('"verdict": "committed" or "verdict": "rolled back", into `prepared` of /a')


@pytest.mark.parametrize(("verdict", "forward"), [("committed", True), ("rolled back", False)])
def test_an_operators_verdict_takes_the_place_of_silence(verdict: str, forward: bool) -> None:
    prepared = log(decided=FIRST, prepared=SECOND)
    assert prepared.prepared is not None
    told = prepared.model_copy(update={"prepared": prepared.prepared.model_copy(update={"verdict": verdict})})
    resolution = resolve_prepared({"/a": told, "/b": log(prepared=SECOND)}, GROUP, None)
    assert (resolution.forward, sorted(resolution.changed)) == (forward, ["/a", "/b"])
    assert (resolution.last, resolution.missing) == (SECOND if forward else FIRST, True)


def test_an_operators_verdict_does_not_stand_against_the_systems_word() -> None:
    prepared = log(decided=FIRST, prepared=SECOND)
    assert prepared.prepared is not None
    told = prepared.model_copy(update={"prepared": prepared.prepared.model_copy(update={"verdict": "rolled back"})})
    assert resolve_prepared({"/a": told}, GROUP, SECOND).forward


@pytest.mark.parametrize(
    "said", [Decision(coordinator=GROUP, epoch=4, round=7), Decision(coordinator=GROUP, epoch=5, round=2)]
)
def test_a_word_that_fits_nothing_is_an_error(said: Decision) -> None:
    with pytest.raises(DecisionMissing, match="its memory has expired, was deleted, or was brought back from a copy"):
        resolve_prepared({"/a": log(decided=FIRST, prepared=SECOND)}, GROUP, said)
    with pytest.raises(DecisionMissing, match="one of the two was brought back from an older copy"):
        resolve_prepared({"/a": log(decided=FIRST)}, GROUP, said)


def test_two_rounds_that_are_prepared_at_once_are_an_error() -> None:
    with pytest.raises(DecisionMissing, match="wait for round 1 of epoch 3 of 'group', round 2 of epoch 4"):
        resolve_prepared({"/a": log(prepared=FIRST), "/b": log(prepared=SECOND)}, GROUP, SECOND)


def test_a_round_that_another_system_decides_about_is_an_error() -> None:
    with pytest.raises(DecisionMissing, match="and 'elsewhere' decides here"):
        resolve_prepared({"/a": log(prepared=FIRST)}, "elsewhere", None)


def test_a_commit_log_of_before_there_were_deciding_sinks_can_be_read() -> None:
    old = log().model_dump(mode="json")
    del old["prepared"], old["decided"]
    assert CommitLog.model_validate(old) == log()


def test_a_batch_goes_forward_with_its_position_and_is_left_out_of_a_commit_log_without_one() -> None:
    batch = QueryBatch(checkpoint="c", number=3, start={"at": 0})
    found = log()
    assert b"batch" not in found.to_bytes()
    prepared = found.preparing(found.model_copy(update={"batch": batch, "position": {"at": 10}}), FIRST)
    read = CommitLog.from_bytes(prepared.to_bytes(), path="/a")
    assert read == prepared
    assert (read.forward().batch, read.forward().position) == (batch, {"at": 10})
    assert read.back() == found
    assert b"batch" not in log(prepared=FIRST).to_bytes()
