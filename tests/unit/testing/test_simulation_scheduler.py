"""The simulator's scheduler, and what it gives instead of threads: a seed replays, time jumps, processes end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.threads import BackgroundWork, background, call_with_limit, delayed, pause
from scribengin.testing.simulation import primitives
from scribengin.testing.simulation.scheduler import ProcessEnded, Scheduler, SimulatedProcess, SimulationStuck
from scribengin.testing.simulation.takeover import taken_over
from scribengin_registry.client import deadline


class Run:
    """One simulation of a test's own."""

    def __init__(self, seed: int) -> None:
        self.scheduler = Scheduler(seed)
        self.process = SimulatedProcess("p")
        self.said: list[str] = []

    def say(self, what: str) -> None:
        self.said.append(f"{self.scheduler.now_s:.3f} {what}")

    def run(self, *threads: Callable[[], object]) -> None:
        started = [self.scheduler.spawn(self.process, f"t{n}", run) for n, run in enumerate(threads)]
        self.scheduler.run(lambda: all(thread.ended for thread in started))


@contextmanager
def simulated(seed: int = 0) -> Iterator[Run]:
    run = Run(seed)
    with taken_over(run.scheduler):
        try:
            yield run
        finally:
            run.scheduler.close([run.process])


def order_of(seed: int) -> str:
    with simulated(seed) as run:

        def talk(name: str) -> None:
            for _ in range(5):
                run.said.append(name)
                run.scheduler.pass_time(0.0)

        run.run(*(lambda name=name: talk(name) for name in "abc"))
        return "".join(run.said)


def test_a_seed_replays_and_another_one_goes_another_way() -> None:
    assert order_of(1) == order_of(1)
    assert len({order_of(seed) for seed in range(20)}) > 10


def test_an_hour_of_waiting_takes_no_time_and_pauses_end_in_their_order() -> None:
    with simulated() as run:

        def wait(seconds: float) -> None:
            pause(seconds)
            run.say(f"{seconds:g}")

        run.run(lambda: wait(3600), lambda: wait(2), lambda: wait(60))
        assert [said.split()[1] for said in run.said] == ["2", "60", "3600"]
        assert 3600 <= run.scheduler.now_s < 3601


def test_whoever_asks_whether_all_is_done_may_take_a_lock() -> None:
    """As `Future.done` does. The hub asks, though a thread is just handing over: it must not lose its turn by that."""
    for seed in range(20):
        with simulated(seed) as run:
            outcome: Future[None] = Future()

            def work(run: Run = run) -> None:
                for _ in range(30):
                    run.scheduler.stall(run.process, 1.0)
                    run.scheduler.pass_time(0.0)

            def end(outcome: Future[None] = outcome, work: Callable[[], None] = work) -> None:
                work()
                outcome.set_result(None)

            run.scheduler.spawn(run.process, "ends", end)
            run.scheduler.run(outcome.done)
            assert 30 <= run.scheduler.now_s < 31


def test_threads_that_wait_for_each_other_are_found() -> None:
    with simulated() as run:
        locks = [primitives.SimulatedLock(), primitives.SimulatedLock()]

        def take(first: int) -> None:
            with locks[first]:
                pause(1)
                with locks[1 - first]:
                    run.say("got both")

        with pytest.raises(SimulationStuck, match="waits for another"):
            run.run(lambda: take(0), lambda: take(1))


@pytest.mark.parametrize("seed", range(20))
def test_a_lock_lets_one_in_and_a_condition_wakes_who_waits(seed: int) -> None:
    with simulated(seed) as run:
        inside: list[int] = []
        left: list[int] = []
        changed = primitives.Condition()

        def enter(number: int) -> None:
            with changed:
                assert not inside
                inside.append(number)
                run.scheduler.pass_time(0.1)
                inside.clear()
                left.append(number)
                changed.notify_all()

        def wait() -> None:
            with changed:
                assert changed.wait_for(lambda: len(left) == 3, 10)
                assert not changed.wait(1)

        run.run(wait, *(lambda n=n: enter(n) for n in range(3)))


@pytest.mark.parametrize("seed", range(20))
def test_a_process_that_ends_while_it_waits_for_a_shared_condition_leaves_its_lock_to_others(seed: int) -> None:
    """It is unwound out of the wait, and so out of the block, while another process holds the lock, or nobody."""
    with simulated(seed) as run:
        shared = primitives.Condition()
        inside: list[str] = []

        def enter(name: str) -> None:
            with shared:
                assert not inside
                inside.append(name)
                run.scheduler.pass_time(0.5)
                inside.remove(name)

        def wait() -> None:
            with shared:
                shared.wait(100)

        def main() -> None:
            for when_s in (0.2, 0.7):
                other = SimulatedProcess("other")
                run.scheduler.spawn(other, "waits", wait)
                pause(when_s)
                run.scheduler.end(other)
                pause(0.1)

        def others() -> None:
            pause(0.1)
            for name in "abc":
                enter(name)

        run.run(main, others, others)
        assert not inside


def test_what_the_engine_starts_runs_in_the_process_of_who_starts_it() -> None:
    with simulated() as run:
        done: list[str] = []

        def main() -> None:
            assert call_with_limit(lambda: 3, 1.0) == 3
            with pytest.raises(TimeoutError):
                call_with_limit(lambda: pause(5), 1.0)
            work = BackgroundWork(lambda _: done.append("worked"), lambda: None)
            work.kick()
            pause(1.0)
            work.close()
            timer = delayed("later", 3.0, lambda: done.append("later"))
            timer.start()
            thread = background("thread", lambda: done.append("ran"))
            thread.start()
            thread.join()
            pause(4.0)
            limit = deadline.Deadline(1.0)
            assert not limit.passed
            pause(1.5)
            assert limit.passed

        run.run(main)
        assert sorted(done) == ["later", "ran", "worked"]


def test_a_process_that_has_ended_is_unwound_and_has_no_further_effect() -> None:
    with simulated() as run:
        other = SimulatedProcess("other")
        told: list[str] = []

        def victim() -> None:
            try:
                pause(100)
                told.append("went on")
            finally:
                told.append("left its block")
                with pytest.raises(ProcessEnded):
                    pause(1)
                with pytest.raises(ProcessEnded):
                    run.scheduler.refuse_ended()

        run.scheduler.spawn(other, "victim", victim)

        def main() -> None:
            pause(1)
            run.scheduler.end(other)
            pause(200)

        run.run(main)
        assert told == ["left its block"]
        assert other.threads == []


def test_a_stalled_process_stands_still_and_goes_on_late() -> None:
    with simulated() as run:

        def tick() -> None:
            for _ in range(3):
                pause(1)
                run.say("tick")

        def stall() -> None:
            pause(1.5)
            run.scheduler.stall(victim, 10)

        victim = SimulatedProcess("victim")
        ticking = run.scheduler.spawn(victim, "ticking", tick)
        run.scheduler.spawn(run.process, "staller", stall)
        run.scheduler.run(lambda: ticking.ended)
        assert [round(float(said.split()[0])) for said in run.said] in ([1, 12, 12], [1, 12, 13])


def test_an_error_that_ends_a_thread_ends_the_simulation_unless_its_process_is_told() -> None:
    def fail() -> None:
        raise ValueError("amiss")

    with simulated() as run, pytest.raises(ValueError, match="amiss"):
        run.run(fail)
    with simulated() as run:
        told: list[str] = []
        run.process.died = lambda thread, error: told.append(f"{thread} {error}")
        run.run(fail)
        assert told == ["p/t0 amiss"]


def test_threads_that_are_not_simulated_keep_the_machines_time() -> None:
    with simulated() as run:
        seen: list[float] = []

        def main() -> None:
            pause(1_000_000_000)
            other = threading.Thread(target=lambda: seen.append(SYSTEM_CLOCK.monotonic_s()))
            other.start()
            other.join()
            seen.append(SYSTEM_CLOCK.monotonic_s())

        run.run(main)
        assert seen[0] < 1_000_000_000 <= seen[1]


def test_the_engines_names_are_its_own_again_afterwards() -> None:
    before = vars(deadline)["time"]
    with simulated():
        assert vars(deadline)["time"] is not before
    assert vars(deadline)["time"] is before
    assert isinstance(background("x", lambda: None), threading.Thread)
