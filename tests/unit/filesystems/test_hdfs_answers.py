"""Calls that wait for DataNodes, in vain."""

from __future__ import annotations

import threading

import pytest

from scribengin.filesystems import hdfs


def test_a_call_that_nobody_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs, "ANSWER_S", 0.05)
    never = threading.Event()
    with pytest.raises(ConnectionError, match=r"have not answered for 0\.05 s; has one of them died\?"):
        hdfs.within_limit(never.wait)
    never.set()
