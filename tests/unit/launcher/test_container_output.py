"""What a container prints: files of bounded size, and a disk that is full for a while."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from scribengin.launcher.local import supervisor as keeper
from scribengin.launcher.local.output import OutputFile, output_files, pump, rotated
from scribengin.testing.waiting import wait_until


def lines(count: int) -> list[bytes]:
    return [b"%05d \xc3\xbc\xff\x00\n" % number for number in range(count)]


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_a_full_file_becomes_the_older_one_at_the_end_of_a_line(tmp_path: Path, chunk: int) -> None:
    path = tmp_path / "stdout.log"
    output = OutputFile(path, bytes_max=100)
    data = b"".join(lines(500))
    for start in range(0, len(data), chunk):
        output.write(data[start : start + chunk])
    output.close()
    older, newer = output_files(path)
    kept = older.read_bytes() + newer.read_bytes()
    assert older == rotated(path)
    assert data.endswith(kept)
    assert older.read_bytes().endswith(b"\n")
    assert older.stat().st_size < 100 + max(chunk, 20)
    assert sorted(tmp_path.iterdir()) == [path, rotated(path)]


def test_a_line_without_an_end_does_not_fill_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    output = OutputFile(path, bytes_max=100)
    for _ in range(100):
        output.write(b"x" * 60_000)
    output.close()
    assert sum(file.stat().st_size for file in output_files(path)) < 3 << 20


def test_what_a_full_disk_does_not_take_is_counted_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    path.symlink_to("/dev/full")
    output = OutputFile(path)
    output.write(b"lost\n" * 10)
    output.write(b"this, too\n")
    path.unlink()
    output.write(b"there is room again\n")
    output.write(b"and more\n")
    output.close()
    assert path.read_bytes() == b"[60 bytes of output are lost here: no room]\nthere is room again\nand more\n"


OWN = """
import logging
from scribengin.base.diagnostics import configure_logging
from scribengin.launcher.local.output import rotation_of_own_files
configure_logging(rotate=rotation_of_own_files(bytes_max=1000))
for number in range(100):
    logging.getLogger("scribengin").info("line %d", number)
print("the end")
"""


def test_a_process_without_a_keeper_rotates_its_own_files(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    with path.open("wb") as stdout:
        subprocess.run([sys.executable, "-c", OWN], stdout=stdout, check=True, timeout=120)
    older, newer = output_files(path)
    assert older.stat().st_size < 1100
    assert newer.stat().st_size < 1100
    assert sorted(tmp_path.iterdir()) == [path, rotated(path)]
    said = (older.read_text() + newer.read_text()).splitlines()
    told = [line.split(" ", 1)[1] for line in said]
    assert told == [*(f"line {number}" for number in range(101 - len(told), 100)), "end"]


def test_where_it_prints_to_a_pipe_nothing_is_rotated() -> None:
    done = subprocess.run([sys.executable, "-c", OWN], capture_output=True, check=True, timeout=120)
    assert done.stdout.count(b"\n") == 101


def test_the_pump_ends_with_the_pipe(tmp_path: Path) -> None:
    source, sink = os.pipe()
    thread = threading.Thread(target=pump, args=(source, OutputFile(tmp_path / "stdout.log")))
    thread.start()
    for line in lines(20_000):
        os.write(sink, line)
    os.close(sink)
    thread.join()
    assert (tmp_path / "stdout.log").read_bytes() == b"".join(lines(20_000))


def test_a_keeper_waits_for_room_to_write_down_how_its_container_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, refused = keeper.write_exit, []

    def full_twice(directory: Path, kind: str, code: int | None, reason: str) -> None:
        if len(refused) < 2:
            refused.append(reason)
            raise OSError(28, "No space left on device")
        write(directory, kind, code, reason)

    monkeypatch.setattr(keeper, "write_exit", full_twice)
    keeper.write_exit_when_there_is_room(tmp_path, "exited", 3, "exit code 3")
    assert (tmp_path / keeper.EXIT).exists()
    assert len(refused) == 2


def test_a_keeper_whose_directory_was_deleted_ends(tmp_path: Path) -> None:
    keeper.write_exit_when_there_is_room(tmp_path / "gone", "exited", 3, "exit code 3")


def test_the_file_is_there_before_anything_was_printed(tmp_path: Path) -> None:
    source, sink = os.pipe()
    thread = threading.Thread(target=pump, args=(source, OutputFile(tmp_path / "stdout.log")))
    thread.start()
    wait_until((tmp_path / "stdout.log").exists, 120, "the file")
    os.close(sink)
    thread.join()
    assert (tmp_path / "stdout.log").read_bytes() == b""
