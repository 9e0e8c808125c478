"""Calls of other people's clients that have no limit of their own, or do not keep it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

_T = TypeVar("_T")


def answered(call: Callable[[], _T], limit_s: float) -> _T:
    """What a call returns or raises. Raises TimeoutError when it has done neither for `limit_s` seconds: its thread is
    left behind then, and with it whatever it uses, which nobody may use any more."""
    outcome: Future[_T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001  a thread's outermost loop: whoever waits raises it
            outcome.set_exception(error)

    threading.Thread(target=run, name="call", daemon=True).start()
    if not wait([outcome], limit_s).done:
        raise TimeoutError(f"no answer for {limit_s:g} s")
    return outcome.result()
