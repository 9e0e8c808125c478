"""Tokens are renewed for as long as a master runs, whatever one try of it ends with."""

from __future__ import annotations

import logging
import threading

import pytest

from scribengin.errors import LauncherError
from scribengin.launcher.yarn import security
from scribengin.launcher.yarn.config import SecurityConfig


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
