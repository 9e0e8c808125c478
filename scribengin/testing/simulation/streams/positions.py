"""What all commit logs of a simulation say, as the registry changes, and whether they may change so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from scribengin.base.commit_log import CommitLog
from scribengin.base.model import Position, from_node_name
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.gone_streams import GoneStreamsPage
from scribengin.testing.simulation import oracle
from scribengin_registry.contract import Create, Delete, Operation, Set

Promise = Callable[[Callable[[], None]], None]
Move = tuple[str, Position | None, Position | None]
"""A commit log, what its position was, and what it is now."""


class Positions:
    """Where every stream stands, by the path of its commit log; also of those that are gone, and have no nodes."""

    def __init__(self, promise: Promise, is_rewinder: Callable[[int], bool]) -> None:
        """`is_rewinder`: whether a session is of somebody who moves positions."""
        self._promise = promise
        self._is_rewinder = is_rewinder
        self._logs: dict[str, CommitLog] = {}
        self._gone: dict[str, CommitLog] = {}
        """What the pages of streams that are gone say."""

    def changed(self, session: int, operations: Sequence[Operation]) -> list[Move]:
        """One transaction; returns which positions were moved by somebody who commits no round."""
        for page in [one for one in operations if isinstance(one, Set | Create) and "/gone-streams/" in one.path]:
            if page.data:
                self._page(page.path, page.data)
        moved: list[Move] = []
        for operation in operations:
            if isinstance(operation, Set | Create) and operation.path.endswith("/commit-log"):
                after = CommitLog.from_bytes(operation.data, path=operation.path)
                moved += self._becomes(session, operation.path, after)
            elif isinstance(operation, Delete) and operation.path in self._logs:
                moved += self._goes(operation.path)
        return moved

    def positions(self) -> dict[str, Position]:
        """Up to where each source stream that was read is committed. Of a round that its sink's system decides about,
        what that makes of it counts already."""
        logs = {path: log for path, log in self._logs.items() if "/sources/" in path}
        found = {path: (log.prepared or log).position or log.position for path, log in logs.items()}
        return {path: position for path, position in found.items() if position}

    def safe_positions(self) -> dict[str, Position]:
        """Up to where each source stream is committed for good: what is prepared may be rolled back still."""
        logs = {path: log for path, log in self._logs.items() if "/sources/" in path}
        return {path: log.position for path, log in logs.items() if log.position}

    def _becomes(self, session: int, path: str, after: CommitLog) -> list[Move]:
        before = self._logs.get(path)
        self._logs[path] = after
        self._promise(partial(oracle.check_commit_log, path, before, after))
        is_begun = (before is None or before.position is None) and not self._is_rewinder(session)
        is_moved = oracle.is_moved(before, after) and not is_begun
        return [(path, None if before is None else before.position, after.position)] if is_moved else []

    def _goes(self, path: str) -> list[Move]:
        """A commit log is deleted: what its page says counts from here on, and for whoever makes it anew."""
        before, said = self._logs.pop(path), self._gone.get(path)
        self._promise(partial(oracle.check_forgotten, path, before, said))
        if said is not None:
            self._logs[path] = said
        after = None if said is None else said.position
        return [] if after == before.position else [(path, before.position, after)]

    def _page(self, path: str, data: bytes) -> None:
        source = from_node_name(path.split("/")[-2])
        for stream, log in GoneStreamsPage.from_bytes(data, path=path).streams.items():
            self._gone[paths.commit_log(paths.source_stream(log.dataflow, source, stream))] = log
