"""Who gets a turn of the thread that writes for many logs."""

from __future__ import annotations

import threading

import pytest

from scribengin.log import CommitThread
from scribengin.log.write import commit_thread


class Scripted:
    """Answers its turns from a list, then None; what all of them did stands in `done`."""

    quick = False

    def __init__(self, name: str, done: list[str], *answers: float | None) -> None:
        self.name = name
        self.ended = threading.Event()
        self.turns = threading.Semaphore(0)
        self._done = done
        self._answers = list(answers)

    def turn(self) -> float | None:
        self._done.append(self.name)
        self.turns.release()
        if self._answers:
            return self._answers.pop(0)
        self.ended.set()
        return None


def test_each_waits_behind_those_that_came_before_it() -> None:
    done: list[str] = []
    gate = threading.Event()

    class Gate:
        quick = False

        def turn(self) -> None:
            assert gate.wait(120)

    with CommitThread() as thread:
        first, second = Scripted("first", done, 0.0, 0.0), Scripted("second", done, 0.0)
        thread.wake(Gate())
        for one in (first, second, first):  # being woken twice makes one turn
            thread.wake(one)
        gate.set()
        assert first.ended.wait(120)
        assert second.ended.wait(120)
    assert done == ["first", "second", "first", "second", "first"]


def test_what_said_a_time_gets_a_turn_then_and_one_only() -> None:
    done: list[str] = []
    with CommitThread() as thread:
        timed = Scripted("timed", done, 1e6, 0.001)
        thread.wake(timed)
        assert timed.turns.acquire(timeout=120)
        thread.wake(timed)
        assert timed.ended.wait(120)
    assert done == ["timed"] * 3


class NoThread:
    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_a_thread_that_could_not_begin_is_begun_with_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    with CommitThread(threads_max=1) as thread:
        first, second = Scripted("first", done), Scripted("second", done)
        with monkeypatch.context() as full:
            full.setattr(commit_thread, "background", lambda _name, _run: NoThread())
            with pytest.raises(RuntimeError, match="can't start"):
                thread.wake(first)
        thread.wake(second)
        assert first.ended.wait(120)
        assert second.ended.wait(120)
    assert done == ["first", "second"]


def test_where_no_other_thread_can_begin_those_that_there_are_take_the_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    entered, gate = threading.Event(), threading.Event()

    class Gate:
        quick = False

        def turn(self) -> None:
            entered.set()
            assert gate.wait(120)

    with CommitThread(threads_max=3) as thread:
        thread.wake(Gate())
        assert entered.wait(120)
        monkeypatch.setattr(commit_thread, "background", lambda _name, _run: NoThread())
        first, second = Scripted("first", done, 0.0, 0.001), Scripted("second", done, 0.001, 0.0)
        thread.wake(first)
        thread.wake(second)
        gate.set()
        assert first.ended.wait(120)
        assert second.ended.wait(120)
    assert sorted(done) == ["first"] * 3 + ["second"] * 3


def test_a_few_threads_give_turns_at_the_same_time_but_never_to_the_same_log() -> None:
    together = threading.Barrier(2)
    overlapping: list[str] = []

    class Taking:
        quick = False

        def __init__(self) -> None:
            self.turns = 0
            self._taking = threading.Lock()
            self.ended = threading.Event()

        def turn(self) -> float | None:
            if not self._taking.acquire(blocking=False):
                overlapping.append("two turns of one log")
                return None
            self.turns += 1
            if self.turns == 1:
                together.wait(120)
                thread.wake(self)  # while it takes its turn: it gets another one afterwards
            else:
                self.ended.set()
            self._taking.release()
            return None

    with CommitThread(threads_max=2) as thread:
        logs = [Taking() for _ in range(2)]
        for log in logs:
            thread.wake(log)
        assert all(log.ended.wait(120) for log in logs)
    assert not overlapping
    assert [log.turns for log in logs] == [2, 2]


def test_no_more_threads_begin_than_are_allowed() -> None:
    before = set(threading.enumerate())
    gate = threading.Event()
    with CommitThread(threads_max=3) as thread:
        waiting = [threading.Event() for _ in range(10)]

        class Waits:
            def __init__(self, begun: threading.Event) -> None:
                self._begun = begun

            def turn(self) -> None:
                self._begun.set()
                assert gate.wait(120)

        for begun in waiting:
            thread.wake(Waits(begun))
        assert all(begun.wait(120) for begun in waiting[:3])
        names = [one.name for one in set(threading.enumerate()) - before]
        assert names.count("log-commit") == 3
        gate.set()
        assert all(begun.wait(120) for begun in waiting)


def test_a_thread_that_never_gave_a_turn_ends() -> None:
    thread = CommitThread()
    thread.close()
    thread.close()
