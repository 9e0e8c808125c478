"""Whatever happens to a byte that readers see, an audit finds it; and it says what is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scribengin.log.format.records import TXID_NONE
from scribengin.log.metadata.check import Finding
from scribengin.log.scan.audit import SegmentCheck
from scribengin.log.store.file import FileView
from scribengin.testing.log_samples import SegmentForge, descriptor_of

SEGMENT = descriptor_of()
# Records, a committed round, records again.
FORGE = SegmentForge().records(b"one", b"two").staged(b"s1").control(1, 1).records(b"three").records(b"four")
DATA = bytes(FORGE.data)
RECORDS = [2, 1, 0, 1, 1]
"""What each entry holds that readers see."""


class Auditor:
    """Audits the bytes it is given, from a file."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "segment.log"

    def __call__(self, data: bytes, *, bodies: bool = True) -> tuple[list[Finding], int]:
        """What is wrong with them, and how many records are left."""
        self._path.unlink(missing_ok=True)  # what is mapped may not be written again
        self._path.write_bytes(data)
        view = FileView(str(self._path))
        try:
            audit = SegmentCheck(view, SEGMENT, FORGE.at, start_txid=TXID_NONE, check_txids=True, bodies=bodies)
            return [found for found in audit if isinstance(found, Finding)], audit.records
        finally:
            view.close()


@pytest.fixture(scope="module")
def auditor(tmp_path_factory: pytest.TempPathFactory) -> Auditor:
    return Auditor(tmp_path_factory.mktemp("audit"))


def entry_at(offset: int) -> int:
    """The entry that a byte belongs to."""
    return sum(end <= offset for end in FORGE.ends)


def test_what_was_forged_is_sound(auditor: Auditor) -> None:
    assert auditor(DATA) == ([], sum(RECORDS))
    assert auditor(DATA, bodies=False) == ([], sum(RECORDS))


def test_every_byte_that_changes_is_found_and_costs_the_records_of_its_entry_only(auditor: Auditor) -> None:
    for at in range(0, len(DATA), 3):
        data = bytearray(DATA)
        data[at] ^= 1 << at % 8
        findings, records = auditor(bytes(data))
        assert [finding.entry for finding in findings][:1] == [entry_at(at)], at
        assert records == sum(RECORDS) - RECORDS[entry_at(at)], at


def test_every_cut_is_found(auditor: Auditor) -> None:
    for size in range(0, len(DATA), 7):
        findings, records = auditor(DATA[:size])
        assert findings, size
        assert records == sum(RECORDS[: entry_at(size)]), size


@settings(max_examples=300, deadline=None)
@given(
    parts=st.lists(
        st.tuples(st.integers(0, len(DATA) - 1), st.binary(min_size=1, max_size=200)), min_size=1, max_size=6
    ),
    bodies=st.booleans(),
)
def test_whatever_is_written_over_it_is_found_and_nothing_fails(
    auditor: Auditor, parts: list[tuple[int, bytes]], bodies: bool
) -> None:
    data = bytearray(DATA)
    for at, part in parts:
        data[at : at + len(part)] = part
    findings, records = auditor(bytes(data), bodies=bodies)
    changed = {entry_at(at) for at, (was, now) in enumerate(zip(DATA, data, strict=False)) if was != now}
    if bodies:
        assert bool(findings) == bool(changed)
        assert records == sum(count for entry, count in enumerate(RECORDS) if entry not in changed)
    assert records <= sum(RECORDS)


@settings(max_examples=100, deadline=None)
@given(order=st.permutations(range(len(RECORDS))))
def test_entries_in_another_order_are_found(auditor: Auditor, order: list[int]) -> None:
    starts = [0, *FORGE.ends]
    data = b"".join(DATA[starts[entry] : starts[entry + 1]] for entry in order)
    findings, _records = auditor(data)
    assert bool(findings) == (order != sorted(order))
