"""Maintenance: work beside a writer, on a thread that is only there while there is something to do."""

from __future__ import annotations

import threading
from collections.abc import Callable

from scribengin.base.threads import BackgroundWork
from scribengin.testing.waiting import wait_until


def upkeep_threads() -> int:
    return sum(thread.name == "log-maintenance" for thread in threading.enumerate())


def test_kicks_that_come_while_it_works_are_one_more_run() -> None:
    entered, go_on, runs = threading.Semaphore(0), threading.Semaphore(0), []

    def work(_stopping: Callable[[], bool]) -> None:
        runs.append(threading.current_thread())
        entered.release()
        assert go_on.acquire(timeout=120)

    maintenance = BackgroundWork(work, lambda: None)
    maintenance.kick()
    assert entered.acquire(timeout=120)
    for _ in range(5):
        maintenance.kick()
    go_on.release(10)
    wait_until(lambda: len(runs) == 2, what="the second run")
    maintenance.close()
    assert len(runs) == 2
    assert threading.current_thread() not in runs
    assert not any(thread.is_alive() for thread in runs)


def test_it_has_no_thread_while_there_is_nothing_to_do() -> None:
    done = threading.Event()
    before = upkeep_threads()
    maintenance = BackgroundWork(lambda _stopping: done.set(), lambda: None)
    assert upkeep_threads() == before
    maintenance.kick()
    assert done.wait(120)
    wait_until(lambda: upkeep_threads() == before, what="the thread to end")
    done.clear()
    maintenance.kick()
    assert done.wait(120)
    maintenance.close()


def test_a_failure_is_kept_and_counted_until_a_run_succeeds() -> None:
    failures: list[str] = []
    outcomes: list[Exception | None] = [ValueError("a"), None]

    def work(_stopping: Callable[[], bool]) -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    maintenance = BackgroundWork(work, lambda: failures.append("failed"))
    maintenance.kick()
    wait_until(lambda: failures == ["failed"], what="the failure")
    assert str(maintenance.failure) == "a"
    maintenance.kick()
    wait_until(lambda: not outcomes and maintenance.failure is None, what="the next run")
    maintenance.close()
    assert failures == ["failed"]


def test_closing_tells_the_work_to_stop_waits_for_it_and_begins_no_more() -> None:
    entered, ended = threading.Event(), threading.Event()

    def work(stopping: Callable[[], bool]) -> None:
        entered.set()
        wait_until(stopping, what="being told to stop")
        ended.set()

    maintenance = BackgroundWork(work, lambda: None)
    maintenance.kick()
    assert entered.wait(120)
    maintenance.close()
    assert ended.is_set()
    entered.clear()
    maintenance.kick()
    maintenance.close()
    assert not entered.is_set()
    assert maintenance.failure is None
