"""A session has time for several attempts, whatever a server does with one of them."""

from __future__ import annotations

import socket

import pytest

from scribengin_registry.zookeeper.attempts import ImpatientHandler, listed_servers


@pytest.mark.parametrize(
    ("servers", "listed"),
    [
        ("a:1", "a:1,a:1,a:1"),
        ("a:1,b:1", "a:1,b:1,a:1,b:1"),
        ("a:1,b:1,c:1", "a:1,b:1,c:1"),
        ("a,b,c,d", "a,b,c,d"),
    ],
)
def test_three_greetings_fit_into_a_session(servers: str, listed: str) -> None:
    assert listed_servers(servers) == listed


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
