"""The threads of sessions in memory: tests drop hundreds of these as a killed process does."""

from __future__ import annotations

import threading

from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import WatchEvent


def threads_of_sessions() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "memory-registry"}


def test_a_session_that_is_dropped_leaves_no_thread() -> None:
    before = threads_of_sessions()
    ensemble = MemoryEnsemble()
    told: list[WatchEvent] = []
    sessions = [ensemble.connect() for _ in range(3)]
    for session in sessions:
        session.find("/a", told.append)
    sessions[0].create("/a")
    wait_until(lambda: len(told) == 3, what="each to be told")
    wait_until(lambda: threads_of_sessions() <= before, what="the threads to end")


def test_watches_are_called_one_after_the_other_and_all_of_them_before_a_session_is_closed() -> None:
    ensemble, together = MemoryEnsemble(), threading.Lock()
    told: list[str] = []

    def watch(event: WatchEvent) -> None:
        assert together.acquire(blocking=False), "two at a time"
        told.append(event.path)
        together.release()

    writer = ensemble.connect()
    with ensemble.connect() as session:
        for n in range(200):
            session.find(f"/{n}", watch)
            writer.create(f"/{n}")
    assert told == [f"/{n}" for n in range(200)]
