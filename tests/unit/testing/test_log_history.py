"""Every anomaly is found in a history made by hand, and none in one that is well."""

from __future__ import annotations

import pytest

from scribengin.testing.log_history import (
    LogContent,
    LogEvent,
    RecordAcknowledged,
    RecordRejected,
    RecordSeen,
    RecordSent,
    check_history,
)


def at(number: int) -> tuple[int, int, int]:
    return (1, number, 0)


def written(*values: str, first: int = 0) -> list[LogEvent]:
    """Each handed over and acknowledged, one after the other."""
    told: list[LogEvent] = []
    for number, value in enumerate(values, start=first):
        told += [RecordSent(value), RecordAcknowledged(value, at(number))]
    return told


def seen(reader: str, **places: int) -> list[LogEvent]:
    return [RecordSeen(reader, value, at(number)) for value, number in places.items()]


def everything(*values: str) -> LogContent:
    return [(at(number), value) for number, value in enumerate(values)]


def kinds(events: list[LogEvent], content: LogContent) -> list[str]:
    return [anomaly.kind for anomaly in check_history(events, content)]


@pytest.mark.parametrize(
    ("events", "content"),
    [
        ([], everything()),
        (written("a", "b") + seen("r", a=0, b=1), everything("a", "b")),
        ([RecordSent("a"), *written("b")], everything("b")),
        ([RecordSent("a"), *written("b", first=1)], everything("a", "b")),
        ([RecordSent("a"), RecordRejected("a"), *written("b")], everything("b")),
        (written("a", "b", "c") + seen("late", b=1, c=2) + seen("early", a=0), everything("a", "b", "c")),
        (
            [
                RecordSent("a"),
                RecordSent("b"),
                RecordAcknowledged("b", at(0)),
                RecordAcknowledged("a", at(1)),
            ],
            everything("b", "a"),
        ),
    ],
    ids=["nothing", "read", "unknown, out", "unknown, in", "refused", "parts", "at the same time"],
)
def test_a_history_that_is_well_has_no_anomaly(events: list[LogEvent], content: LogContent) -> None:
    assert check_history(events, content) == []


@pytest.mark.parametrize(
    ("kind", "events", "content"),
    [
        ("lost", written("a", "b"), everything("a")),
        ("vanished", [RecordSent("a"), *seen("r", a=0)], everything()),
        ("never written", [], everything("a")),
        ("never written", seen("r", a=0) + written("b"), everything("b")),
        ("never written", [RecordSent("a"), RecordRejected("a")], everything("a")),
        ("twice", [RecordSent("a")], everything("a", "a")),
        ("disagreement", [*written("a"), RecordSent("b"), *seen("r", b=0)], everything("a")),
        ("disagreement", written("a", "b"), [(at(0), "a"), (at(2), "b")]),
        ("gap", written("a", "b", "c") + seen("r", a=0, c=2), everything("a", "b", "c")),
        ("backwards", written("a", "b") + seen("r", b=1, a=0), everything("a", "b")),
        ("backwards", written("a", "b"), [(at(1), "b"), (at(0), "a")]),
        ("reordered", [RecordSent("b"), RecordAcknowledged("b", at(1)), RecordSent("a")], everything("a", "b")),
    ],
)
def test_each_anomaly_is_found(kind: str, events: list[LogEvent], content: LogContent) -> None:
    assert kind in kinds(events, content)


def test_an_anomaly_says_what_was_seen_and_where() -> None:
    told = [str(anomaly) for anomaly in check_history(written("a", "b"), everything("a"))]
    assert told == ["lost: b was acknowledged at 1/1/0"]


def test_an_anomaly_is_told_of_each_record_once() -> None:
    assert kinds(written("a", "b", "c"), everything()) == ["lost", "lost", "lost"]
    assert kinds(written("a") + seen("r", a=0) + seen("s", a=0), everything("a")) == []
