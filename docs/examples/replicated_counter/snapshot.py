"""Snapshots: the state after all records before a position of the log, each in a file that is named for the position.

The highest position counts. So a leader that was replaced and does not know it does no harm: its snapshot is a true one
of an earlier position, and hides no later one.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from machine import Counters

from scribengin.log import DLSN


def save(directory: Path, position: DLSN, state: Counters) -> None:
    """Write a snapshot, and remove those before it. It is durable, whole, before it has its name."""
    name = "snapshot-{:012}-{:012}-{:012}.json".format(*position)
    private = directory / f"{name}.{os.getpid()}"
    with open(private, "w", encoding="utf-8") as file:
        json.dump({"position": list(position), "values": state.values, "last": state.last}, file)
        file.flush()
        os.fsync(file.fileno())
    private.replace(directory / name)
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
    for earlier in _snapshots(directory):
        if earlier.name < name:
            earlier.unlink(missing_ok=True)


def load(directory: Path) -> tuple[DLSN | None, Counters]:
    """The position to read on from, and the state there; None and no counters where there is no snapshot."""
    found = _snapshots(directory)
    if not found:
        return None, Counters()
    try:
        latest = json.loads(found[-1].read_text(encoding="utf-8"))
    except FileNotFoundError:  # there is a later one meanwhile
        return load(directory)
    return DLSN(*latest["position"]), Counters(latest["values"], latest["last"])


def _snapshots(directory: Path) -> list[Path]:
    return sorted(directory.glob("snapshot-*.json"))
