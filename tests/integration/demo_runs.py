"""The demo as a user runs it, and what its table says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from scribengin_dev.demo.flights import load_flights


def start_demo(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    """The demo as a process, its directory below this one, and kept."""
    return subprocess.Popen(
        [sys.executable, "-m", "scribengin_dev.demo", "--dir", str(directory), "--keep", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "80", "PYTHONUNBUFFERED": "1"},
    )


def expect_exact(output: str, records: int, source: str = "log flights/*") -> None:
    """The table of measurements has all of so many flights, and each once. To be asked before how the demo ended: it
    ends with 1 where the table has not. Raises AssertionError."""
    flights = load_flights(records)
    measured = {row[0]: row[1:] for row in map(cells_of, output.splitlines())}
    for name, read, written in (
        (source, records, records),
        ("log delayed/*", records, len(flights.delayed())),
        ("files cancelled", records, len(flights.cancelled())),
        ("log named/*", len(flights.delayed()), len(flights.delayed())),
    ):
        assert name in measured, output
        assert measured[name][:6] == [f"{read:,}", f"{written:,}", f"{written:,}", "0", "0", "0"], output


def cells_of(line: str) -> list[str]:
    """The cells of a line of a table without borders."""
    return re.split(r" {2,}", line.strip())


def processes_in(directory: Path) -> list[str]:
    """The command lines of processes that name the directory, or work in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words, place = (entry / "cmdline").read_text(), os.readlink(entry / "cwd")
            except OSError:
                continue  # it has ended
            if str(directory) in words or Path(place).is_relative_to(directory):
                found.append(words.replace("\0", " "))
    return found
