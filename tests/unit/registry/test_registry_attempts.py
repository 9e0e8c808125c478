"""A session has time for several attempts, whatever a server does with one of them."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from scribengin_registry.zookeeper.attempts import (
    ImpatientHandler,
    connection_limit_s,
    greeting_limit_s,
    limit_greetings,
)


@pytest.mark.parametrize(
    ("session_s", "greeting_s", "connection_s"),
    [(1.0, 1.0, 1.0), (5.0, 2.0, 1.0), (12.0, 4.0, 2.0), (60.0, 20.0, 10.0)],
)
def test_an_attempt_takes_a_part_of_a_session_and_never_too_little(
    session_s: float, greeting_s: float, connection_s: float
) -> None:
    assert greeting_limit_s(session_s) == greeting_s
    assert connection_limit_s(session_s) == connection_s


@pytest.mark.parametrize(("asked_s", "given_s"), [(12.0, 2.0), (1.0, 1.0), (None, 2.0)])
def test_a_machine_that_does_not_answer_costs_a_sixth_of_a_session(
    monkeypatch: pytest.MonkeyPatch, asked_s: float | None, given_s: float
) -> None:
    asked: list[object] = []

    def refused(address: object, timeout: object) -> socket.socket:
        asked.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", refused)
    with pytest.raises(TimeoutError):
        ImpatientHandler(12.0).create_connection(("127.0.0.1", 1), timeout=asked_s)
    assert asked
    assert all(isinstance(timeout, float) and 0 < timeout <= given_s for timeout in asked)


def test_only_a_greeting_has_a_limit_of_its_own() -> None:
    asked: list[tuple[float, object, object]] = []
    connection = SimpleNamespace(_invoke=lambda timeout, request, xid: asked.append((timeout, request, xid)))
    limit_greetings(SimpleNamespace(_connection=connection), 12.0)
    connection._invoke(60.0, "greeting")
    connection._invoke(60.0, "credentials", xid=-4)
    assert asked == [(4.0, "greeting", None), (60.0, "credentials", -4)]
