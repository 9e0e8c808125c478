"""How far a dataflow has got in one of its sources: its positions, as the registry has them, counted in records."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from scribengin.base.model import Position
from scribengin.connectors import Environment, open_source
from scribengin.connectors.contract import SourceStreamReader
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.paths import STREAM_NODES, DataflowPaths
from scribengin_dev.harness.commits import CommitWatch
from scribengin_dev.harness.installation import Installation


class FlowProgress:
    """Follows the positions of a dataflow in the streams of its source `source`. Used by one thread.

    What a position means only its connector knows, so it is the connector's reader that counts.
    """

    def __init__(self, place: Installation, config: DataflowConfig, source: str, *, grows: bool = False) -> None:
        """Streams that come later count where it `grows`. Raises what the source raises when it is opened."""
        self.dataflow = config.name
        self.source = source
        environment = Environment(place.registry, config.name, STREAM_NODES, looking=True)
        self._source = open_source(source, config.sources[source], environment)
        self._grows = grows
        self._paths = DataflowPaths(config.name)
        self.streams: list[str] = []
        self.commits = CommitWatch(place.registry)
        self._readers: dict[str, SourceStreamReader] = {}
        self._starts: dict[str, Position] = {}
        self._look_for_streams()

    def __enter__(self) -> FlowProgress:
        self.commits.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.commits.stop()
        for reader in self._readers.values():
            reader.close()
        self._source.close()

    def consumed(self) -> int:
        """Records that stand before the dataflow's positions."""
        if self._grows:
            self._look_for_streams()
        there = {name: reader.lag(self._starts[name]) for name, reader in self._readers.items()}
        return max(0, sum(there.values()) - self._lag_of(there))  # some may have come between the two looks

    def lag(self) -> int:
        """Records that are in the source and that the dataflow has not committed yet."""
        if self._grows:
            self._look_for_streams()
        return self._lag_of(self._readers)

    def _lag_of(self, streams: Iterable[str]) -> int:
        self.commits.check()
        return sum(self._readers[name].lag(self.commits.position(name) or self._starts[name]) for name in streams)

    def _look_for_streams(self) -> None:
        for stream in self._source.streams():
            if stream.name not in self._readers:
                reader = self._readers[stream.name] = self._source.open_reader(stream)
                self._starts[stream.name] = reader.initial_position()
                self.streams.append(stream.name)
                path = paths.commit_log(self._paths.source_stream(self.source, stream.name))
                self.commits.follow(stream.name, path)


def last_commit_ms(flow: FlowProgress) -> int:
    """When a dataflow has committed last, 0 when it has not."""
    return max((commit.at_ms for commit in flow.commits.seen()), default=0)
