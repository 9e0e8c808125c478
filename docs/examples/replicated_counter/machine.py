"""The state machine: counters by name, and what a command makes of them. Nothing here knows of logs or processes.

It is deterministic: replicas that apply the same commands in the same order have the same state.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """Add to a counter. A client numbers its commands, so that one that it repeats is known."""

    client: str
    number: int
    counter: str
    add: int

    def to_bytes(self) -> bytes:
        """As a record of the log."""
        return json.dumps([self.client, self.number, self.counter, self.add]).encode()

    @classmethod
    def from_bytes(cls, record: bytes) -> Command:
        """What `to_bytes` wrote."""
        return cls(*json.loads(record))


@dataclass
class Counters:
    """The counters, and the number of each client's last command."""

    values: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def apply(self, command: Command) -> None:
        """Carry out a command, unless it was carried out before: its client has repeated it then."""
        if command.number > self.last.get(command.client, 0):
            self.values[command.counter] = self.values.get(command.counter, 0) + command.add
            self.last[command.client] = command.number
