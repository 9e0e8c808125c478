"""Futures of records: as those of the standard library, also when some wait while others are called back."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, InvalidStateError, as_completed, wait

import pytest

from scribengin.base.threads import LightFuture


def test_what_is_set_is_told_to_whoever_asks_before_or_after() -> None:
    told: list[object] = []
    future: LightFuture[int] = LightFuture()
    future.add_done_callback(lambda one: told.append(("first", one.result())))
    future.add_done_callback(lambda one: told.append(("second", one.exception())))
    assert (future.done(), future.cancel(), future.running()) == (False, False, True)
    future.set_result(7)
    future.add_done_callback(lambda _: told.append("late"))
    assert told == [("first", 7), ("second", None), "late"]
    assert (future.result(), future.exception(), future.done(), future.cancelled()) == (7, None, True, False)


def test_an_error_is_raised() -> None:
    future: LightFuture[int] = LightFuture()
    error = ValueError("no")
    future.set_exception(error)
    assert future.exception() is error
    with pytest.raises(ValueError, match="no"):
        future.result()


@pytest.mark.parametrize("asked", [False, True])
def test_it_is_set_once(asked: bool) -> None:
    future: LightFuture[int] = LightFuture()
    if asked:
        with pytest.raises(TimeoutError):
            future.result(0)
    future.set_result(1)
    with pytest.raises(InvalidStateError):
        future.set_result(2)
    with pytest.raises(InvalidStateError):
        future.set_exception(ValueError("late"))
    assert future.result() == 1


def test_callbacks_that_came_before_somebody_waited_are_called() -> None:
    told: list[str] = []
    future: LightFuture[int] = LightFuture()
    future.add_done_callback(lambda _: told.append("before"))
    with pytest.raises(TimeoutError):
        future.exception(0)
    future.add_done_callback(lambda _: told.append("after"))
    future.set_result(1)
    assert told == ["before", "after"]
    other: LightFuture[int] = LightFuture()
    other.set_result(1)
    assert told == ["before", "after"], "futures share no callbacks"


def test_a_callback_that_fails_keeps_no_other_from_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    future: LightFuture[int] = LightFuture()
    future.add_done_callback(lambda _: 1 / 0)
    future.add_done_callback(lambda _: told.append("told"))
    future.set_result(1)
    assert told == ["told"]
    assert "exception calling callback" in caplog.text


def test_all_that_the_library_does_with_futures_can_be_done() -> None:
    futures: list[Future[int]] = [LightFuture() for _ in range(3)]
    futures[0].set_result(0)
    assert wait(futures, 0, "FIRST_COMPLETED").done == {futures[0]}
    setters = [threading.Thread(target=future.set_result, args=(1,)) for future in futures[1:]]
    for setter in setters:
        setter.start()
    assert {future.result() for future in as_completed(futures, 60)} == {0, 1}
    for setter in setters:
        setter.join()

    async def awaited() -> int:
        late: LightFuture[int] = LightFuture()
        threading.Thread(target=late.set_result, args=(5,)).start()
        return await asyncio.wrap_future(late)

    assert asyncio.run(awaited()) == 5


def test_whoever_waits_while_it_is_set_is_told() -> None:
    """Many times, since what could go wrong is who is first."""
    for _ in range(300):
        future: LightFuture[int] = LightFuture()
        told: list[int] = []
        threads = [
            threading.Thread(target=lambda one=future, into=told: into.append(one.result(60))),
            threading.Thread(target=lambda one=future, into=told: one.add_done_callback(lambda _: into.append(2))),
            threading.Thread(target=future.set_result, args=(1,)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(told) == [1, 2]
