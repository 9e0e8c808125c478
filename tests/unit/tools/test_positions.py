"""Places in a log as people write them: what is out of reach of any log is refused, and nothing is a bug."""

from __future__ import annotations

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors.contract import StartAt
from scribengin.errors import ConfigInvalid
from scribengin.log import SequenceId, Time, TransactionId
from scribengin_tools.logs.positions import place_of, start_at_of, start_of, time_ms_of

MOST = 2**63 - 1
TOO_LARGE = (MOST + 1, -MOST - 2, 10**25, -(10**25), 10**4999)


@pytest.mark.parametrize("number", TOO_LARGE, ids=lambda number: f"{float(number) if abs(number) < 1e300 else 'huge'}")
def test_a_number_that_no_record_has_is_refused_in_one_line(number: int) -> None:
    digits = f"{'-' if number < 0 else ''}{digits_of(abs(number))}"
    for kind in ("txid", "sequence"):
        with pytest.raises(ConfigInvalid, match=f"^--from {kind}:{digits[:9]}.*is -9223372036854775808 to 922337203"):
            start_of(f"{kind}:{digits}")
    for place in (f"{digits}/0/0", f"1/0/{digits}", f"DLSN{{logSegmentSequenceNo=1, entryId={digits}, slotId=0}}"):
        with pytest.raises(ConfigInvalid, match="no DLSN"):
            place_of(place, "--to")
        with pytest.raises(ConfigInvalid, match=r"^--from .*: expected earliest"):
            start_of(place)
    with pytest.raises(ConfigInvalid, match=r"^--to .*: expected earliest"):
        start_at_of(f"offset:{digits}")


def digits_of(number: int) -> str:
    """Python itself does not write out very long ones."""
    return str(number) if number < 10**4000 else "1" + "0" * 4999


def test_the_largest_numbers_that_there_are_are_places() -> None:
    assert start_of(f"txid:{MOST}") == TransactionId(MOST)
    assert start_of(f"txid:{-MOST - 1}") == TransactionId(-MOST - 1)
    assert start_of(f"sequence:{MOST}") == SequenceId(MOST)
    assert place_of(f"{MOST}/0/{MOST}", "--to") == (MOST, 0, MOST)
    assert start_at_of(f"{MOST}") == StartAt("offset", MOST)


@pytest.mark.parametrize("days", ["99999", "9" * 30, "9" * 500])
def test_longer_ago_than_there_are_times_is_from_the_beginning(days: str) -> None:
    assert time_ms_of(f"{days}d") == 0
    assert start_of(f"{days}d") == Time(0)
    assert start_at_of(f"{days}d") == StartAt("time", 0)


def test_a_time_before_all_times_means_no_edge_to_kafka() -> None:
    """To it the time -1 is the end."""
    assert start_at_of("1969-12-31T23:59:59.999+00:00") == StartAt("time", 0)


def test_a_while_ago_is_counted_from_now() -> None:
    before_ms = SYSTEM_CLOCK.now_ms()
    found = time_ms_of("1.5h")
    assert found is not None
    assert before_ms <= found + 5_400_000 <= SYSTEM_CLOCK.now_ms()
