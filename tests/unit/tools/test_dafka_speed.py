"""`scribengin dafka perf` where something goes wrong: it says what, and waits for nobody for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from scribengin.errors import DafkaError, LogWriteFailed
from scribengin_tools.cli import main as cli
from scribengin_tools.cli.dafka import speed
from scribengin_tools.cli.dafka.speed import DafkaPace
from scribengin_tools.logs import pacing


class DeadStores:
    """Stands in for a producer whose stores take no more: whoever publishes waits until it is closed. How many records
    are unacknowledged at each look; the last of them at any later one."""

    next = 100

    def __init__(self, *unacknowledged: int) -> None:
        self._unacknowledged = list(unacknowledged)
        self.closed = threading.Event()

    @property
    def unacknowledged(self) -> int:
        return self._unacknowledged.pop(0) if len(self._unacknowledged) > 1 else self._unacknowledged[0]

    def publish_many(self, _contents: list[bytes]) -> None:
        assert self.closed.wait(60)

    def flush(self) -> None:
        assert self.closed.wait(60)


class Nothing:
    """Stands in for a consumer to whom nothing comes."""

    def read(self, _records_max: int, timeout_s: float | None = None) -> list[Any]:
        assert timeout_s is not None, "without a limit it would wait for ever"
        return []


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "SILENCE_MAX_S", 0.01)


@pytest.mark.parametrize(("unacknowledged", "left"), [((100,), "100 records wait"), ((100, 99, 1), "1 record waits")])
def test_stores_that_die_while_they_are_published_to_end_it_with_what_is_missing(
    unacknowledged: tuple[int, ...], left: str
) -> None:
    dead: Any = DeadStores(*unacknowledged)
    try:
        with pytest.raises(DafkaError, match=rf"no store has acknowledged anything for 0\.01 s, and {left} for that"):
            speed.published(dead, 10, 1)
    finally:
        dead.closed.set()


@pytest.mark.parametrize("read", [lambda nobody: speed.read_on(nobody, 10, 1), lambda nobody: speed._read(nobody, 10)])
def test_records_that_do_not_come_end_it(read: Callable[[Nothing], object]) -> None:
    with pytest.raises(DafkaError, match=r"no record has come for 0\.01 s"):
        read(Nothing())


def test_what_publishing_raises_is_told_and_not_that_nothing_came(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def publish(self, _content: bytes) -> None:
            raise LogWriteFailed("the disk is full")

    failing: Any = Failing()
    nobody: Any = Nothing()
    monkeypatch.setattr(pacing, "SILENCE_MAX_S", 10.0)
    with pytest.raises(LogWriteFailed, match="the disk is full"):
        speed.latency(failing, nobody, 10, DafkaPace(10))


def test_what_is_published_at_a_rate_has_to_fit_into_memory_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(speed, "measure", None)
    assert cli.run(["dafka", "perf", "--records", "900", "--size", "1000000", "--rate", "100"]) == 2
    assert "1 GB of memory does not hold 1,200 records of 1000000 bytes" in capsys.readouterr().err
