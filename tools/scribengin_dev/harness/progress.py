"""How far a dataflow has got in one of its sources: its positions, as the registry has them, counted in records."""

from __future__ import annotations

from types import TracebackType

from scribengin.connectors import Environment, open_source
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.paths import STREAM_NODES, DataflowPaths
from scribengin_dev.harness.commits import CommitWatch
from scribengin_dev.harness.installation import Installation


class FlowProgress:
    """Follows the positions of a dataflow in the streams of its source `source`. Used by one thread.

    What a position means only its connector knows, so it is the connector's reader that counts.
    """

    def __init__(self, place: Installation, config: DataflowConfig, source: str) -> None:
        """Raises what the source raises when it is opened."""
        flow_paths = DataflowPaths(config.name)
        self.dataflow = config.name
        self.source = source
        environment = Environment(place.registry, config.name, STREAM_NODES, looking=True)
        self._source = open_source(source, config.sources[source], environment)
        streams = self._source.streams()
        self.streams = [stream.name for stream in streams]
        self.commits = CommitWatch(
            place.registry,
            {name: paths.commit_log(flow_paths.source_stream(source, name)) for name in self.streams},
        )
        self._readers = {stream.name: self._source.open_reader(stream) for stream in streams}
        self._starts = {name: reader.initial_position() for name, reader in self._readers.items()}

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
        return sum(reader.lag(self._starts[name]) for name, reader in self._readers.items()) - self.lag()

    def lag(self) -> int:
        """Records that are in the source and that the dataflow has not committed yet."""
        self.commits.check()
        return sum(
            reader.lag(self.commits.position(name) or self._starts[name]) for name, reader in self._readers.items()
        )
