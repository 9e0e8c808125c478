"""Tokens are renewed for as long as a master runs, whatever one try of it ends with."""

from __future__ import annotations

import logging
import threading
from contextlib import nullcontext
from unittest.mock import MagicMock

import pytest

from scribengin.errors import LauncherError
from scribengin.launcher.yarn import security
from scribengin.launcher.yarn.config import SecurityConfig
from scribengin.testing.clocks import ManualClock

DAY_MS = 86_400_000


@pytest.mark.parametrize("error", [LauncherError("no answer"), RuntimeError("can't start new thread")])
def test_a_try_that_fails_is_told_and_made_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []
    renewed = threading.Event()

    def renew(_self: object) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise error
        renewed.set()

    monkeypatch.setattr(security, "_RETRY_S", 0.001)
    monkeypatch.setattr(security, "is_secure", lambda _configuration: True)
    monkeypatch.setattr(security.TokenRenewal, "_begin", lambda self: self._start())
    monkeypatch.setattr(security.TokenRenewal, "_renew", renew)
    with caplog.at_level(logging.WARNING):
        renewal = security.TokenRenewal(None, SecurityConfig(), ())
        assert renewed.wait(60)
        renewal.close()
    assert renewal.failure is None
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"the tokens of containers could not be renewed, and it is tried again: {error}"]


def test_a_clock_that_was_set_back_puts_no_renewal_off_until_the_tokens_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who says until when tokens are good has another clock."""
    clock = ManualClock()
    issued_ms = clock.now_ms()
    monkeypatch.setattr(security, "is_secure", lambda _configuration: True)
    monkeypatch.setattr(security.TokenRenewal, "_begin", lambda _self: None)
    monkeypatch.setattr(security, "java", MagicMock())
    monkeypatch.setattr(security, "java_errors", lambda _what: nullcontext())
    monkeypatch.setattr(security, "_lives", lambda _tokens: [(issued_ms, issued_ms + 7 * DAY_MS)])
    monkeypatch.setattr(security.TokenRenewal, "_renewed_until_ms", lambda _self, _tokens: issued_ms + DAY_MS)
    renewal = security.TokenRenewal(None, SecurityConfig(), (), clock)
    renewal._sets = [object()]
    clock.set_wall_ms(issued_ms - 30 * DAY_MS)
    renewal._renew()
    assert renewal._pause_s <= 3600
