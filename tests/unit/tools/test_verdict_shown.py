"""What `verify` shows of what has not arrived: lost, or out of reach."""

from __future__ import annotations

import json

import pytest

from scribengin.operations.verify.tracking import ChunkVerdict, Verdict
from scribengin_tools.cli.dataflow.verify import _show


def verdict(lost: int, unreachable: int, in_all: int) -> Verdict:
    chunk = ChunkVerdict(
        generator="g",
        stream="in/0",
        sent=10,
        arrived=10 - lost - unreachable,
        lost=lost,
        duplicated=0,
        out_of_order=0,
        unreachable=unreachable,
    )
    return Verdict(chunks=(chunk,), others=0, unreachable=in_all)


def test_what_is_out_of_reach_has_a_column_and_a_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    _show(verdict(2, 3, 4), as_json=False)
    out, err = capsys.readouterr()
    assert "OUT OF REACH" in out
    said = "4 records were committed, and nobody who answers has them: start the stores that may, or they are lost"
    assert said in " ".join(err.split())


def test_where_all_can_be_read_nothing_is_said_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    _show(verdict(2, 0, 0), as_json=False)
    out, err = capsys.readouterr()
    assert "REACH" not in out
    assert "answers" not in err


def test_programs_are_told_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    _show(verdict(0, 3, 3), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["good"], told["unreachable"], told["chunks"][0]["lost"]) == (False, 3, 0)
