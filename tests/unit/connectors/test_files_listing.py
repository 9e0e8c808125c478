"""Looking for files: at once where it is cheap, seldom where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin.connectors.files.source import listing as module
from scribengin.connectors.files.source.listing import Listing
from scribengin.filesystems.contract import FileInfo
from scribengin.filesystems.local import LocalFileSystem


class MovedClock:
    """A clock that only a test moves."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def monotonic_s(self) -> float:
        return self.at_s


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


def names(infos: list[FileInfo]) -> list[str]:
    return [info.name for info in infos]


def test_what_is_known_is_good_for_a_second_and_now_is_now(tmp_path: Path, clock: MovedClock) -> None:
    listing = Listing(str(tmp_path), clock)
    assert listing.known().infos == []
    (tmp_path / "a").write_text("1")
    clock.at_s += 0.9
    assert listing.known().infos == []
    assert names(listing.now().infos) == ["a"]
    (tmp_path / "b").write_text("1")
    clock.at_s += 1.1
    assert names(listing.known().infos) == ["a", "b"]


def test_a_listing_of_many_files_is_made_a_tenth_of_the_time(
    tmp_path: Path, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = LocalFileSystem.find

    def slow(self: LocalFileSystem, root: str, depth_max: int | None = None) -> list[FileInfo]:
        clock.at_s += 2.0
        return find(self, root, depth_max)

    monkeypatch.setattr(LocalFileSystem, "find", slow)
    monkeypatch.setattr(module, "MANY", 0)
    (tmp_path / "0").write_text("1")
    listing = Listing(str(tmp_path), clock)
    first = listing.known()
    assert first.took_s == 2.0
    (tmp_path / "a").write_text("1")
    clock.at_s += 15.0
    assert listing.known() is first
    assert listing.now() is first
    clock.at_s += 4.0
    assert names(listing.now().infos) == ["0", "a"]
    (tmp_path / "b").write_text("1")
    assert names(listing.now(even_if_costly=True).infos) == ["0", "a", "b"]


def test_streams_share_the_files_among_them(tmp_path: Path, clock: MovedClock) -> None:
    for number in range(20):
        (tmp_path / f"{number}").write_text("1")
    listed = Listing(str(tmp_path), clock).known()
    shares = [names(listed.of_stream(stream, 3)) for stream in range(3)]
    assert sorted(name for share in shares for name in share) == sorted(names(listed.infos))
    assert all(shares)
