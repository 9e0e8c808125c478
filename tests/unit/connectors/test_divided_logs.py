"""The logs of a source whose records are divided among them: which one is which."""

from __future__ import annotations

import pytest

from scribengin.connectors.log.divided import numbered
from scribengin.errors import ConfigInvalid, SourceMissing


def test_the_number_behind_a_logs_name_is_its_place() -> None:
    logs = [f"legs/{number}" for number in range(12)]
    assert numbered("src", sorted(logs), 12) == logs


@pytest.mark.parametrize("stray", ["legs/2", "legs/01", "legs/-1", "legs/all", "legs", "legs/²"])
def test_a_log_that_is_no_stream_of_the_sinks_is_refused(stray: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"source 'src': log '{stray}' is none of 2 that are called /0 to /1"):
        numbered("src", ["legs/0", "legs/1", stray], 2)


def test_two_sinks_have_two_logs_of_a_number() -> None:
    with pytest.raises(ConfigInvalid, match="logs 'a/0' and 'b/0' are both number 0"):
        numbered("src", ["a/0", "b/0"], 2)


def test_nothing_is_read_before_all_are_there() -> None:
    with pytest.raises(SourceMissing, match="of its 3 logs number 1 is not there: start what writes them first"):
        numbered("src", ["legs/0", "legs/2"], 3)
