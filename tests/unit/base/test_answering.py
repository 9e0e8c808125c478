"""Calls of other people's clients: answered, failed, or given up."""

from __future__ import annotations

import threading

import pytest

from scribengin.base.threads import call_with_limit


def test_what_a_call_returns_is_returned_and_what_it_raises_is_raised() -> None:
    def fail() -> None:
        raise OSError("no space left")

    assert call_with_limit(lambda: 7, 60) == 7
    with pytest.raises(OSError, match="no space left"):
        call_with_limit(fail, 60)


def test_a_call_that_nobody_answers_is_given_up() -> None:
    never = threading.Event()
    with pytest.raises(TimeoutError, match=r"no answer for 0\.05 s"):
        call_with_limit(never.wait, 0.05)
    never.set()
