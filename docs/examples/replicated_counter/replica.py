"""A replica of the counters. One of them leads, the others follow; all of them read their state from the log.

    python replica.py LOG DIRECTORY        commands from standard input: `CLIENT NUMBER COUNTER ADD`, or `snapshot`

The registry is that of SCRIBENGIN_REGISTRY. DIRECTORY holds snapshots, and is the same for all replicas.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import snapshot
from machine import Command

from scribengin.errors import OwnershipAcquireFailed, PositionTruncated
from scribengin.log import LogNamespace, LogReader, LogWriter

POLL_S = 0.5


class Replica:
    """The state as far as this replica has read the log, and the log's writer while it leads."""

    def __init__(self, logs: LogNamespace, log: str, directory: Path) -> None:
        self._logs = logs
        self._log = log
        self._directory = directory
        self._writer: LogWriter | None = None
        self._reader = self._restore()

    def follow(self, timeout_s: float = 0.0) -> int:
        """Apply what the log has behind our position, and return how many commands that were."""
        try:
            records = self._reader.read(1000, timeout_s)
        except PositionTruncated:  # the leader has taken a snapshot since, and given up what was before it
            self._reader.close()
            self._reader = self._restore()
            return 1
        for record in records:
            self.state.apply(Command.from_bytes(record.payload))
        return len(records)

    def lead(self) -> None:
        """Follow until the log has no other writer. First take the log, then read it to its end: what the leader before
        has written is decided then, and nobody adds to it."""
        while self._writer is None:
            self.follow(POLL_S)
            try:
                self._writer = self._logs.open_writer(self._log, timeout_s=POLL_S)
            except OwnershipAcquireFailed:
                continue
        while self.follow():
            pass

    def execute(self, command: Command) -> int:
        """Carry out a command, and return its counter. Only the leader can. Raises Fenced when another one leads."""
        assert self._writer is not None, "only the leader executes commands"
        placed = self._writer.write(command.to_bytes()).result()  # durable: from here on the command counts
        while self._reader.position <= placed:  # and it is applied as every other replica applies it
            self.follow(POLL_S)
        return self.state.values[command.counter]

    def snapshot(self) -> None:
        """Save the state, then give up the commands before it."""
        snapshot.save(self._directory, self._reader.position, self.state)
        self._logs.truncate(self._log, self._reader.position)

    def close(self) -> None:
        """Stop leading and following."""
        if self._writer is not None:
            self._writer.close()
        self._reader.close()

    def _restore(self) -> LogReader:
        position, self.state = snapshot.load(self._directory)
        return self._logs.open_reader(self._log, position)


def main() -> None:
    """Follow, then lead, then answer a line for each line."""
    log, directory = sys.argv[1:]
    with LogNamespace.open(f"distributedlog-file://{os.environ['SCRIBENGIN_REGISTRY']}/logs") as logs:
        replica = Replica(logs, log, Path(directory))
        print("following", flush=True)
        replica.lead()
        print("leading", replica.state.values, flush=True)
        for line in sys.stdin:
            if line.strip() == "snapshot":
                replica.snapshot()
                print("saved", flush=True)
            else:
                client, number, counter, add = line.split()
                print(counter, replica.execute(Command(client, int(number), counter, int(add))), flush=True)
        replica.close()


if __name__ == "__main__":
    main()
