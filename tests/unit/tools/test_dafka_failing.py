"""What a store's command says of logs that fail: each once, until it works again."""

from __future__ import annotations

import pytest

from scribengin.dafka import DafkaPartition
from scribengin.errors import LogError, LogWriteFailed
from scribengin_tools.cli.dafka.servers import tell_failing, tell_stuck


def test_what_fails_is_said_once_and_again_when_it_has_worked_meanwhile(capsys: pytest.CaptureFixture[str]) -> None:
    failing: dict[DafkaPartition, LogError] = {DafkaPartition("flights", "A"): LogWriteFailed("a disk is full")}
    told: set[DafkaPartition] = set()
    said = "topic flights, producer A is refused for now: a disk is full\n"
    for now, expected in ((failing, said), (failing, ""), ({}, ""), (failing, said)):
        tell_failing(now, told)
        assert capsys.readouterr().err == expected


def test_of_many_a_few_are_said_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    told: set[DafkaPartition] = set()
    tell_failing({DafkaPartition("flights", f"{n}"): LogWriteFailed("a disk is full") for n in range(1000)}, told)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6
    assert lines[-1] == "995 more logs failed, too"
    assert len(told) == 1000


def test_a_partition_that_stands_still_is_told_of_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    told: set[DafkaPartition] = set()
    tell_stuck({DafkaPartition("flights", "A"): 7}, told)
    tell_stuck({DafkaPartition("flights", "A"): 7}, told)
    assert capsys.readouterr().err == (
        "topic flights, producer A stands still: nobody sends record 7, and nothing behind it is stored or "
        "acknowledged; start the store that has it, or, if that is lost, the producer anew\n"
    )
