"""When each stream of the chain was committed: seen by looking at the commit logs again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from scribengin.base.clock import Clock
from scribengin.base.commit_log import CommitLog
from scribengin.dataflow.registry import paths
from scribengin_registry.contract import Registry

Stream = tuple[int, int]
"""The number of a dataflow in its chain, and of one of its source streams."""


@dataclass(slots=True)
class _Seen:
    round: int = 0
    moved_s: float | None = None


@dataclass(slots=True)
class Commits:
    """What the commit logs at `nodes` (by stream; the nodes of the streams) say. Used by one thread.

    `writing(n)`: how many streams of the dataflow n+1 the dataflow n writes now. The others are not expected to move.
    """

    registry: Registry
    clock: Clock
    nodes: dict[Stream, str]
    writing: Callable[[int], int]
    worst_gap_s: float = 0.0
    """The longest time between two commits of a stream of the first dataflow, which always has something to read."""
    _seen: dict[Stream, _Seen] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """How many rounds the streams have taken part in, together."""
        return sum(seen.round for seen in self._seen.values())

    def look(self) -> None:
        """Look once."""
        now_s = self.clock.monotonic_s()
        for stream, node_path in self.nodes.items():
            path = paths.commit_log(node_path)
            node = self.registry.find(path)
            seen = self._seen.setdefault(stream, _Seen())
            if node is None or not node.data:
                continue
            reached = CommitLog.from_bytes(node.data, path=path).round
            if reached > seen.round:
                if seen.moved_s is not None and stream[0] == 0:
                    self.worst_gap_s = max(self.worst_gap_s, now_s - seen.moved_s)
                seen.round = reached
                seen.moved_s = now_s

    def mark(self) -> dict[Stream, int]:
        """Where they are now, for `went_on`."""
        return {stream: seen.round for stream, seen in self._seen.items()}

    def went_on(self, mark: dict[Stream, int]) -> bool:
        """Whether every stream into which something is written has been committed since."""
        return all(
            seen.round > mark.get(stream, 0)
            for stream, seen in self._seen.items()
            if stream[0] == 0 or stream[1] < self.writing(stream[0] - 1)
        )
