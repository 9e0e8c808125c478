"""The records of one partition, put in order: what is handed out, what is fetched, and when again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scribengin.dafka.state import IntakeLimits, PartitionIntake

LIMITS = IntakeLimits(fetch_records_max=100, early_records_max=10, early_bytes_max=1000, retry_s=1.0, gone_tries=1)


def test_records_in_order_are_handed_out_at_once_and_others_in_their_turn() -> None:
    intake = PartitionIntake(0, LIMITS)
    assert intake.records(0, [b"0"], 0.0) == [b"0"]
    assert intake.records(2, [b"2"], 0.0) == []
    assert intake.records(3, [b"3"], 0.0) == []
    assert intake.records(1, [b"1"], 0.0) == [b"1", b"2", b"3"]
    assert intake.records(1, [b"1"], 0.0) == []
    assert intake.next == 4
    assert not intake.is_behind


def test_only_what_is_missing_is_fetched_and_only_once_until_time_has_passed() -> None:
    intake = PartitionIntake(0, LIMITS)
    intake.records(5, [b"5"], 0.0)
    assert intake.missing(0.0) == (0, 5)
    assert intake.missing(0.9) is None
    assert intake.missing(1.0) == (0, 5)
    intake.records(0, [b"0"], 1.5)
    assert intake.missing(2.1) is None  # something came: the rest may be on its way
    assert intake.missing(2.5) == (1, 4)


def test_records_that_are_published_meanwhile_put_off_no_fetch() -> None:
    """A fetch that got lost is sent again, however busy the partition is."""
    intake = PartitionIntake(0, LIMITS)
    intake.records(5, [b"5"], 0.0)
    assert intake.missing(0.0) == (0, 5)
    for n in range(6, 16):
        intake.records(n, [b""], n / 16)
    assert intake.missing(1.0) == (0, 5)


def test_a_long_way_behind_is_fetched_window_by_window_without_waiting() -> None:
    intake = PartitionIntake(0, LIMITS)
    intake.head(249)
    asked = []
    while (missing := intake.missing(0.0)) is not None:
        asked.append(missing)
        for n in range(missing[0], sum(missing)):
            intake.records(n, [b""], 0.0)
    assert asked == [(0, 100), (100, 100), (200, 50)]
    assert not intake.is_behind


def test_a_fetch_whose_last_record_came_is_over_and_what_it_lacks_is_asked_for_at_once() -> None:
    intake = PartitionIntake(0, LIMITS)
    intake.head(4)
    assert intake.missing(0.0) == (0, 5)
    for n in (0, 2, 3, 4):
        intake.records(n, [b""], 0.1)
    assert intake.missing(0.1) == (1, 1)


def test_what_comes_early_is_kept_within_limits_and_fetched_later() -> None:
    intake = PartitionIntake(0, LIMITS)
    for n in range(1, 30):
        intake.records(n, [b"x" * 50], 0.0)
    assert len(intake._early) == 10
    intake.records(30, [b"x" * 10_000], 0.0)
    assert intake._early_bytes == 500
    assert intake.records(0, [b""], 0.0) == [b"", *[b"x" * 50] * 10]
    assert intake._early_bytes == 0
    assert intake.missing(5.0) == (11, 20)


def test_a_head_that_lies_costs_one_fetch_a_second() -> None:
    intake = PartitionIntake(0, LIMITS)
    intake.head(2**64 - 1)
    assert [intake.missing(tick / 10) for tick in range(30)].count((0, 100)) == 3


def test_what_nobody_keeps_counts_once_a_fetch_has_gone_unanswered() -> None:
    intake = PartitionIntake(0, LIMITS)
    intake.head(20)
    assert intake.missing(0.0) == (0, 21)
    intake.truncated(12)
    intake.truncated(8)
    assert intake.missing(0.5) is None
    assert intake.halted_at is None
    assert intake.missing(1.0) is None
    assert intake.halted_at == 8
    assert intake.skip_to(8, 1.0) == []
    assert intake.missing(1.0) == (8, 13)


def test_what_somebody_does_not_keep_another_may_whose_answer_is_lost_several_times() -> None:
    intake = PartitionIntake(0, IntakeLimits())
    intake.head(20)
    intake.truncated(12)
    assert [intake.missing(float(tick)) for tick in range(5)] == [(0, 21)] * 5
    assert intake.records(7, [b"7"], 4.1) == []  # it answers: of what it sent, this has come
    assert [intake.missing(float(tick)) for tick in range(6, 10)] == [(0, 7)] * 4
    assert intake.halted_at is None
    assert intake.missing(10.0) is None
    assert intake.halted_at == 12


def test_one_who_keeps_it_is_enough() -> None:
    intake = PartitionIntake(0, LIMITS)
    intake.head(20)
    intake.missing(0.0)
    intake.truncated(12)
    assert intake.records(0, [b""], 0.5) == [b""]
    assert intake.missing(2.0) == (1, 20)
    assert intake.halted_at is None


def test_skipping_takes_along_what_is_there() -> None:
    intake = PartitionIntake(0, LIMITS)
    for n in (2, 5, 6):
        intake.records(n, [b"%d" % n], 0.0)
    assert intake.skip_to(5, 0.0) == [b"5", b"6"]
    assert (intake.next, intake._early, intake._early_bytes) == (7, {}, 0)


def contents(first: int, end: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, end)]


def test_a_batch_of_which_some_is_known_brings_the_rest() -> None:
    intake = PartitionIntake(0, LIMITS)
    assert intake.records(0, contents(0, 4), 0.0) == contents(0, 4)
    assert intake.records(2, contents(2, 4), 0.0) == []
    assert intake.records(2, contents(2, 7), 0.0) == contents(4, 7)
    assert (intake.next, intake.is_behind) == (7, False)


def test_a_batch_replaces_what_came_early_and_goes_on_with_what_is_behind_it() -> None:
    intake = PartitionIntake(0, LIMITS)
    assert intake.records(3, contents(3, 5), 0.0) == []
    assert intake.records(6, contents(6, 9), 0.0) == []
    assert intake.missing(0.0) == (0, 3)
    assert intake.records(0, contents(0, 6), 0.0) == contents(0, 9)
    assert (intake.next, intake._early, intake._early_bytes) == (9, {}, 0)
    assert not intake.is_behind


def test_of_a_batch_that_comes_early_as_much_is_kept_as_fits() -> None:
    intake = PartitionIntake(0, LIMITS)
    assert intake.records(1, contents(1, 30), 0.0) == []
    assert len(intake._early) == LIMITS.early_records_max
    assert intake.records(0, contents(0, 1), 0.0) == contents(0, 11)
    assert intake.missing(0.0) == (11, 19)


def test_the_next_window_is_asked_for_when_half_of_one_has_come() -> None:
    intake = PartitionIntake(0, LIMITS)
    intake.head(249)
    assert intake.missing(0.0) == (0, 100)
    assert intake.records(0, contents(0, 49), 0.1) == contents(0, 49)
    assert intake.missing(0.1) is None
    assert intake.records(49, contents(49, 60), 0.2) == contents(49, 60)
    assert intake.missing(0.2) == (100, 100)
    assert intake.missing(0.3) is None  # more than half of what was asked for is on its way
    assert intake.missing(1.2) == (60, 100)  # it has not come
    assert intake.records(60, contents(60, 160), 1.3) == contents(60, 160)
    assert intake.missing(1.3) == (160, 90)
    assert intake.missing(1.3) is None


class CountedKeys(dict[int, bytes]):
    """Counts the keys that were looked at in turn, and those that were asked for."""

    looked_at = 0

    def __iter__(self) -> Iterator[int]:
        for key in super().__iter__():
            self.looked_at += 1
            yield key

    def pop(self, *key: Any) -> Any:
        self.looked_at += 1
        return super().pop(*key)


def intake_with_early(first: int, count: int) -> tuple[PartitionIntake, CountedKeys]:
    intake = PartitionIntake(0, IntakeLimits())
    intake.records(first, contents(first, first + count), 0.0)
    intake._early = early = CountedKeys(intake._early)
    return intake, early


def test_a_record_in_its_turn_looks_at_none_of_those_that_came_early() -> None:
    """History that comes a record a frame, while as many live ones wait as may."""
    intake, early = intake_with_early(5000, 5000)
    for n in range(1000):
        assert intake.records(n, contents(n, n + 1), 0.0) == contents(n, n + 1)
    assert early.looked_at <= 1000  # whether the next one is there
    assert intake.records(1000, contents(1000, 5000), 0.0) == contents(1000, 10_000)
    assert intake._early_bytes == 0


def test_of_a_batch_over_early_records_as_few_are_looked_at_as_there_are_of_either() -> None:
    intake, early = intake_with_early(3, 5000)
    assert intake.records(0, contents(0, 2), 0.0) == contents(0, 2)
    assert early.looked_at <= 2 + 1
    intake, early = intake_with_early(4000, 2)
    assert intake.records(0, contents(0, 4001), 0.0) == contents(0, 4002)
    assert early.looked_at <= 2 + 1 + 2  # the keys, the one that goes, and what comes next
    assert (intake.next, intake._early, intake._early_bytes) == (4002, {}, 0)
    intake, early = intake_with_early(2**64 - 5, 3)
    assert intake.skip_to(2**64 - 4, 0.0) == contents(2**64 - 4, 2**64 - 2)
    assert intake._early_bytes == 0


def test_what_is_missing_is_found_without_looking_at_what_came_early() -> None:
    intake, early = intake_with_early(5000, 5000)
    for n in range(1000):
        intake.records(n, contents(n, n + 1), n / 100)
        intake.missing(n / 100)
    assert early.looked_at <= 1000  # whether the next one is there


def test_fetches_end_where_the_first_early_record_is_whatever_has_come_in_between() -> None:
    """Runs that grow at either end, and those of which a batch takes all."""
    intake = PartitionIntake(0, LIMITS)
    intake.records(20, contents(20, 22), 0.0)
    assert intake.missing(0.0) == (0, 20)
    intake.records(10, contents(10, 12), 0.1)
    intake.records(9, contents(9, 10), 0.1)
    assert intake.missing(1.5) == (0, 9)
    intake.records(0, contents(0, 11), 1.6)
    assert intake.next == 12
    assert intake.missing(5.0) == (12, 8)
    assert intake.skip_to(21, 5.0) == contents(21, 22)
    intake.head(29)
    assert intake.missing(9.0) == (22, 8)


def test_runs_that_are_gone_are_not_kept() -> None:
    intake = PartitionIntake(0, LIMITS)
    for n in range(0, 3000, 3):
        intake.records(n + 2, contents(n + 2, n + 3), 0.0)
        intake.records(n, contents(n, n + 2), 0.0)
    assert intake.next == 3000
    assert len(intake._early_runs) <= 1
