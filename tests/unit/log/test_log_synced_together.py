"""Which logs the thread that writes for many has made durable together, and what becomes of each."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence

import pytest

from scribengin.log import CommitThread
from scribengin.log.write import commit_thread
from scribengin.log.write.commit_thread import SYNCED_AT_ONCE, BegunTurn

LIMIT_S = 120


class Disk:
    """Makes files durable; each call of `ended` tells of what was begun last. `broken`: files that it cannot."""

    def __init__(self) -> None:
        self.broken: set[int] = set()
        self.silent = self.absent = False
        self.under_way: list[tuple[int, int]] = []
        self.most = 0

    def made(self, at_once: int) -> Disk:
        if self.absent:
            raise OSError(errno.ENOSYS, "not on this machine")
        assert at_once == SYNCED_AT_ONCE
        return self

    def begin(self, file: int, key: int) -> None:
        self.under_way.append((file, key))
        self.most = max(self.most, len(self.under_way))

    def ended(self) -> Sequence[tuple[int, OSError | None]]:
        if self.silent:
            raise OSError(errno.EFAULT, "nobody knows")
        file, key = self.under_way.pop()
        return [(key, OSError(errno.EIO, "broken") if file in self.broken else None)]

    def close(self) -> None:
        return


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(commit_thread, "FileSyncs", disk.made)
    monkeypatch.setattr(commit_thread, "WAITING_MIN", 1)
    return disk


class Writes:
    """Writes one group to its file."""

    def __init__(self, file: int, done: list[str], *, quick: bool = True, in_a_file: bool = True) -> None:
        self.number, self.file, self.quick = file, file if in_a_file else None, quick
        self.done = done
        self.ended = threading.Event()

    def turn(self) -> BegunTurn:
        self.done.append(f"write {self.number}")
        return _Written(self)


class _Written(BegunTurn):
    def __init__(self, log: Writes) -> None:
        self._log = log

    @property
    def file(self) -> int | None:
        return self._log.file

    def end(self, fdatasync: Callable[[int], object] | None) -> None:
        said = "by itself"
        if fdatasync is not None:
            try:
                fdatasync(self._log.number)
                said = "beside others"
            except OSError as error:
                said = f"failed: {error.strerror}"
        self._log.done.append(f"end {self._log.number} {said}")
        self._log.ended.set()


def taken(*logs: Writes) -> None:
    """They have had their turns, all of which were due before the first."""
    entered, go = threading.Event(), threading.Event()

    class Gate:
        quick = False

        def turn(self) -> None:
            entered.set()
            assert go.wait(LIMIT_S)

    with CommitThread() as thread:
        thread.wake(Gate())
        assert entered.wait(LIMIT_S)
        for log in logs:
            thread.wake(log)
        go.set()
        assert all(log.ended.wait(LIMIT_S) for log in logs)


def test_who_waits_is_written_first_and_each_ends_when_its_own_file_is_durable(disk: Disk) -> None:
    done: list[str] = []
    taken(*(Writes(file, done) for file in (1, 2, 3)))
    writes = ["write 1", "write 2", "write 3"]
    assert done == [*writes, "end 3 beside others", "end 2 beside others", "end 1 beside others"]


def test_few_logs_are_not_made_durable_together(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(commit_thread, "WAITING_MIN", 3)
    taken(*(Writes(file, done) for file in (1, 2, 3)))
    assert [said for said in done if said.startswith("end")] == [f"end {file} by itself" for file in (1, 2, 3)]
    taken(*(Writes(file, done) for file in (1, 2, 3, 4)))
    assert done[-1] == "end 1 beside others"


def test_a_log_alone_is_made_durable_by_itself(disk: Disk) -> None:
    done: list[str] = []
    taken(Writes(1, done))
    assert done == ["write 1", "end 1 by itself"]
    assert not disk.most


def test_a_file_that_the_disk_refuses_is_its_own_logs_failure(disk: Disk) -> None:
    done: list[str] = []
    disk.broken = {2}
    taken(*(Writes(file, done) for file in (1, 2, 3)))
    assert done[3:] == ["end 3 beside others", "end 2 failed: broken", "end 1 beside others"]


def test_no_more_are_under_way_than_may(disk: Disk) -> None:
    done: list[str] = []
    taken(*(Writes(file, done) for file in range(3 * SYNCED_AT_ONCE)))
    assert disk.most == SYNCED_AT_ONCE
    assert not [said for said in done if "by itself" in said]


def test_a_turn_that_may_take_long_holds_up_nobody_who_was_written(disk: Disk) -> None:
    done: list[str] = []
    taken(Writes(1, done), Writes(2, done), Writes(3, done, quick=False), Writes(4, done))
    assert done.index("end 1 beside others") < done.index("write 3")
    assert done.index("write 4") < done.index("end 3 beside others")  # once it is written it is as any other


def test_who_has_no_file_is_ended_before_anybody_else_is_begun(disk: Disk) -> None:
    done: list[str] = []
    taken(Writes(1, done, quick=False, in_a_file=False), Writes(2, done))
    assert done == ["write 1", "end 1 by itself", "write 2", "end 2 by itself"]


def test_a_machine_that_cannot_makes_one_durable_after_the_other(disk: Disk) -> None:
    done: list[str] = []
    disk.absent = True
    taken(*(Writes(file, done) for file in (1, 2, 3)))
    assert sorted(said for said in done if said.startswith("end")) == [f"end {file} by itself" for file in (1, 2, 3)]


def test_where_nobody_knows_how_they_ended_all_have_failed_and_later_ones_go_by_themselves(disk: Disk) -> None:
    done: list[str] = []
    disk.silent = True
    taken(*(Writes(file, done) for file in range(SYNCED_AT_ONCE + 2)))
    assert done.count(f"end {SYNCED_AT_ONCE} by itself") == 1
    assert sum("failed: nobody knows" in said for said in done) == SYNCED_AT_ONCE
