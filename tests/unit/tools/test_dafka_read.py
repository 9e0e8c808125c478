"""What `dafka read` prints where nobody can tell of one producer when it has published."""

from __future__ import annotations

import os
import sys

import pytest

from scribengin.dafka import DafkaPartition, DafkaRecord
from scribengin.errors import TimeUnknown
from scribengin_tools.cli.dafka.records import _print_next

RECORDS = [DafkaRecord(DafkaPartition("flights", "AA"), n, b"%d" % n) for n in range(3)]


class Consumer:
    """Returns what it was given, and raises what is an error."""

    def __init__(self, *found: list[DafkaRecord] | TimeUnknown) -> None:
        self._found = list(found)

    def read(self, records_max: int, timeout_s: float) -> list[DafkaRecord]:
        assert timeout_s < 60
        found = self._found.pop(0)
        if isinstance(found, TimeUnknown):
            raise found
        return found[:records_max]


def test_it_goes_on_with_all_others_and_says_so(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    consumer = Consumer(RECORDS[:1], TimeUnknown("producer BB: nobody can tell"), RECORDS[1:])
    assert not _print_next(consumer, 3, as_json=False)  # type: ignore[arg-type]
    said = capfdbinary.readouterr()
    assert said.out == b"0\n1\n2\n"
    assert said.err == b"producer BB: nobody can tell; it goes on with all others\n"


def test_where_all_begin_nothing_is_said(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert _print_next(Consumer(RECORDS), 2, as_json=False)  # type: ignore[arg-type]
    assert capfdbinary.readouterr() == (b"0\n1\n", b"")


def test_it_ends_where_nobody_reads_what_it_prints_though_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with open(writing, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            _print_next(Consumer([], []), None, as_json=False)  # type: ignore[arg-type]
