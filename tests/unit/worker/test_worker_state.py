"""What an executor does next, step by step: assignments and outcomes in, one step out."""

from __future__ import annotations

import pytest

from scribengin.dataflow.config import PatienceConfig
from scribengin.dataflow.registry.descriptors import StreamLag, TaskAssignment, TaskReport
from scribengin.dataflow.round.rounds import RoundOutcome
from scribengin.worker.failures import Failure, Remedy
from scribengin.worker.state import (
    RETRIES_MIN,
    WAIT_MAX_S,
    AssignedTask,
    Discard,
    ExecutorState,
    GiveBack,
    MeasureLag,
    RunRound,
    Sleep,
    Step,
    TakeOver,
    Wait,
)

OUTCOME = RoundOutcome(
    round=1,
    read={"in": 6, "more": 4},
    written={"out": 9},
    records_bad=1,
    plan_s=0.01,
    run_s=0.09,
    prepare_s=0.1,
    commit_s=0.1,
    complete_s=0.1,
)
A, B = AssignedTask("task-a", 1), AssignedTask("task-b", 2)


class Script:
    """An executor whose steps all succeed, unless a test says otherwise."""

    def __init__(self, *owned: AssignedTask, patience: PatienceConfig | None = None) -> None:
        self.state = ExecutorState(patience or PatienceConfig())
        self.now_s = 100.0
        self.readable: dict[str, int] = {}
        self.ended: set[str] = set()
        self.assign(*owned)

    def assign(self, *owned: AssignedTask, release: tuple[str, ...] = ()) -> None:
        self.state.assigned(
            [TaskAssignment(task=o.task, generation=o.generation, release=o.task in release) for o in owned], self.now_s
        )

    def step(self) -> Step:
        step = self.state.next_step(self.now_s)
        match step:
            case TakeOver(owned):
                self.state.taken_over(owned)
            case RunRound(owned):
                left = self.readable.get(owned.task, 0)
                self.readable[owned.task] = max(0, left - 1)
                self.state.round_done(owned, OUTCOME if left else None, now_ms=5, now_s=self.now_s)
            case MeasureLag(owned):
                lags = [StreamLag(source="in", stream=owned.task, records=self.readable.get(owned.task, 0))]
                self.state.looked(owned, lags, ended=owned.task in self.ended, now_s=self.now_s)
            case Wait(owned, timeout_s):
                self.now_s += timeout_s
                self.state.waited(owned, readable=bool(self.readable.get(owned.task)))
            case GiveBack(owned):
                self.state.gave_back(owned)
            case Discard() | Sleep():
                pass
        return step

    def steps(self, count: int) -> list[Step]:
        return [self.step() for _ in range(count)]

    def fail(self, remedy: Remedy) -> AssignedTask:
        step = self.state.next_step(self.now_s)
        assert not isinstance(step, Sleep)
        self.state.failed(step.owned, Failure(remedy, "it hurts"), self.now_s)
        return step.owned

    def reports(self) -> list[TaskReport]:
        return self.state.report(self.now_s).tasks

    def states(self) -> dict[str, str]:
        return {report.task: report.state for report in self.reports()}


def test_without_tasks_it_sleeps_until_something_is_assigned() -> None:
    assert Script().steps(2) == [Sleep(None), Sleep(None)]


def test_a_task_is_taken_over_then_read_until_nothing_is_left_then_waited_for() -> None:
    script = Script(A)
    script.readable["task-a"] = 2
    assert script.steps(6) == [TakeOver(A), MeasureLag(A), RunRound(A), RunRound(A), RunRound(A), Wait(A, 0.05)]
    assert script.states() == {"task-a": "idle"}
    (report,) = script.reports()
    assert (report.rounds, report.records_in, report.records_out, report.records_bad) == (2, 20, 18, 2)
    rates = script.state.report(script.now_s).rates
    assert (report.in_per_s, report.out_per_s) == (sum(rates.sources.values()), sum(rates.sinks.values()))
    assert rates.sources["in"] == pytest.approx(1.5 * rates.sources["more"], rel=0.02)
    assert set(rates.sinks) == {"out"}


def test_tasks_take_turns() -> None:
    script = Script(A, B)
    script.readable = {"task-a": 9, "task-b": 9}
    rounds = [step.owned for step in script.steps(12) if isinstance(step, RunRound)]
    assert rounds == [A, B, A, B, A, B, A, B]


def test_an_idle_task_is_tried_in_turn_while_another_is_busy() -> None:
    script = Script(A, B)
    script.readable = {"task-a": 9}
    assert RunRound(B) in script.steps(10)
    assert not any(isinstance(step, Wait) for step in script.steps(6))


def test_idle_tasks_share_the_time_of_one_turn() -> None:
    script = Script(A, B)
    script.steps(6)
    assert script.steps(4) == [Wait(A, 0.025), Wait(B, 0.025), Wait(A, 0.025), Wait(B, 0.025)]


def test_a_release_is_done_between_rounds_and_reported() -> None:
    script = Script(A)
    script.readable["task-a"] = 9
    script.steps(3)
    script.assign(A, release=("task-a",))
    assert script.steps(2) == [GiveBack(A), Sleep(None)]
    assert script.states() == {"task-a": "released"}
    assert script.state.done


def test_a_task_that_is_only_to_be_released_is_taken_over_first() -> None:
    script = Script()
    script.assign(A, release=("task-a",))
    assert script.steps(2) == [TakeOver(A), GiveBack(A)]


def test_a_higher_generation_begins_anew_after_the_old_one_is_closed() -> None:
    script = Script(A)
    script.steps(3)
    again = AssignedTask("task-a", 7)
    script.assign(again)
    assert script.steps(2) == [Discard(A), TakeOver(again)]


def test_a_released_task_is_taken_over_again_under_a_new_generation_only() -> None:
    script = Script(A)
    script.steps(3)
    script.assign(A, release=("task-a",))
    script.steps(1)
    script.assign(A, release=("task-a",))
    assert script.step() == Sleep(None)
    again = AssignedTask("task-a", 3)
    script.assign(again)
    assert script.step() == TakeOver(again)


def test_a_task_that_is_assigned_no_longer_is_closed() -> None:
    script = Script(A, B)
    script.steps(2)
    script.assign(B)
    assert Discard(A) in script.steps(1)
    assert set(script.states()) == {"task-b"}


def test_a_task_whose_sources_have_ended_is_given_back_as_finished() -> None:
    script = Script(A)
    script.readable["task-a"] = 1
    script.ended.add("task-a")
    assert GiveBack(A) in script.steps(6)
    assert script.states() == {"task-a": "finished"}


def test_a_stale_task_is_dropped_without_a_word_until_it_is_assigned_again() -> None:
    script = Script(A)
    script.steps(1)
    script.fail(Remedy.DROP)
    assert script.steps(2) == [Discard(A), Sleep(None)]
    assert script.states() == {}
    script.assign(A)
    assert script.step() == Sleep(None)
    script.assign(AssignedTask("task-a", 2))
    assert script.step() == TakeOver(AssignedTask("task-a", 2))


def test_a_failed_task_says_why_and_is_closed() -> None:
    script = Script(A)
    script.steps(2)
    script.fail(Remedy.FAIL)
    assert script.steps(2) == [Discard(A), Sleep(None)]
    (report,) = script.reports()
    assert (report.state, report.error) == ("failed", "it hurts")


def failed_after_s(script: Script, remedy: Remedy, limit_s: float) -> float | None:
    """How long the task is tried again while it fails at once; None: longer than the limit."""
    begun_s = script.now_s
    while script.now_s - begun_s < limit_s:
        script.fail(remedy)
        if script.states() == {"task-a": "failed"}:
            return script.now_s - begun_s
        pause = script.state.next_step(script.now_s)
        assert isinstance(pause, Sleep)
        assert pause.timeout_s
        script.now_s += pause.timeout_s
    return None


def test_an_error_that_may_pass_is_retried_ever_more_slowly_and_fails_in_the_end() -> None:
    found_s = failed_after_s(Script(A), Remedy.RETRY, 1_000)
    assert found_s is not None
    assert PatienceConfig().failing_s <= found_s < 2 * PatienceConfig().failing_s


@pytest.mark.parametrize("patience_s", [60.0, 600.0])
def test_how_long_is_said_by_the_config(patience_s: float) -> None:
    found_s = failed_after_s(Script(A, patience=PatienceConfig(failing_s=patience_s)), Remedy.RETRY, 10_000)
    assert found_s is not None
    assert patience_s <= found_s <= patience_s + 10
    found_s = failed_after_s(Script(A, patience=PatienceConfig(away_s=patience_s)), Remedy.AWAY, 10_000)
    assert found_s is not None
    assert patience_s <= found_s <= patience_s + WAIT_MAX_S


def test_a_slow_try_is_made_five_times_nevertheless() -> None:
    script = Script(A)
    for _ in range(RETRIES_MIN):
        script.fail(Remedy.RETRY)
        script.now_s += 100
    assert script.states() == {"task-a": "taking_over"}
    script.fail(Remedy.RETRY)
    assert script.states() == {"task-a": "failed"}


def test_a_system_that_is_away_or_full_is_waited_for_and_the_task_says_so() -> None:
    script = Script(A)
    script.readable["task-a"] = 9
    assert failed_after_s(script, Remedy.AWAY, 100_000) is None
    (report,) = script.reports()
    assert (report.state, report.error) == ("waiting", "it hurts")
    script.steps(3)
    (report,) = script.reports()
    assert (report.state, report.error) == ("running", None)


def test_patience_that_is_edited_counts_from_the_next_error_on() -> None:
    script = Script(A)
    assert failed_after_s(script, Remedy.AWAY, 100) is None
    script.state.reconfigure(PatienceConfig(away_s=50))
    script.fail(Remedy.AWAY)
    assert script.states() == {"task-a": "failed"}


def test_errors_of_another_kind_are_counted_from_their_own_beginning() -> None:
    script = Script(A, patience=PatienceConfig(away_s=300))
    assert failed_after_s(script, Remedy.AWAY, 200) is None
    script.fail(Remedy.RETRY)
    script.now_s += 1
    assert script.states() == {"task-a": "taking_over"}
    found_s = failed_after_s(script, Remedy.AWAY, 1_000)
    assert found_s is not None
    assert found_s >= 300


def test_a_round_that_succeeds_forgets_earlier_errors() -> None:
    script = Script(A)
    script.readable["task-a"] = 9
    script.fail(Remedy.RETRY)
    script.now_s += 1
    script.steps(3)
    (report,) = script.reports()
    assert (report.state, report.error) == ("running", None)


def test_a_search_for_bad_records_is_told_and_is_no_standstill_while_it_moves() -> None:
    script = Script(A)
    script.readable["task-a"] = 9
    script.steps(2)
    assert script.state.next_step(script.now_s) == RunRound(A)
    script.now_s += 100
    script.state.isolating(A, script.now_s)
    script.now_s += 2
    (report,) = script.reports()
    assert (report.state, report.behind_s) == ("isolating", 2.0)
    script.state.round_done(A, OUTCOME, now_ms=5, now_s=script.now_s)
    assert script.states() == {"task-a": "running"}


def test_a_search_that_failed_is_over() -> None:
    script = Script(A)
    script.readable["task-a"] = 9
    script.steps(2)
    script.state.isolating(A, script.now_s)
    script.fail(Remedy.RETRY)
    assert script.states() == {"task-a": "taking_over"}


def test_an_error_of_the_registry_is_waited_out_however_long_it_takes() -> None:
    script = Script(A)
    for _ in range(RETRIES_MIN * 3):
        script.fail(Remedy.PATIENT)
        script.now_s += 10
    assert script.states() == {"task-a": "taking_over"}


def test_other_tasks_go_on_while_one_waits_for_its_next_try() -> None:
    script = Script(A, B)
    assert script.fail(Remedy.RETRY) == A
    assert script.steps(2) == [TakeOver(B), MeasureLag(B)]


def test_a_leaving_executor_gives_everything_back_and_takes_nothing_over() -> None:
    script = Script(A)
    script.steps(3)
    script.assign(A, B)
    script.state.leave()
    assert script.steps(2) == [GiveBack(A), Sleep(None)]
    assert script.state.done


def test_lag_is_looked_at_once_a_second_while_a_task_is_busy() -> None:
    script = Script(A)
    script.readable["task-a"] = 99
    script.steps(2)
    assert MeasureLag(A) not in script.steps(5)
    script.now_s += 1
    assert script.step() == MeasureLag(A)


def test_lag_waits_for_no_other_tasks_round_neither_at_first_nor_after_a_long_one() -> None:
    script = Script(A, B)
    script.readable = {"task-a": 99, "task-b": 99}
    assert script.steps(4) == [TakeOver(A), MeasureLag(A), TakeOver(B), MeasureLag(B)]
    assert script.state.next_step(script.now_s) == RunRound(A)
    script.now_s += 60
    (during, _) = script.reports()
    assert (during.lag_records, during.lag_age_s) == (99, 60.0)
    script.state.round_done(A, OUTCOME, now_ms=5, now_s=script.now_s)
    assert script.step() == MeasureLag(A)
    assert script.steps(2) == [MeasureLag(B), RunRound(B)]


def test_a_word_about_a_task_that_is_not_there_any_more_changes_nothing() -> None:
    script = Script(A)
    script.steps(2)
    script.assign()
    script.state.failed(A, Failure(Remedy.FAIL, "too late"), script.now_s)
    assert script.steps(2) == [Discard(A), Sleep(None)]
