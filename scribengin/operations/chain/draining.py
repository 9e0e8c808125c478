"""Whether a dataflow of a chain has read and committed everything that those before it have written."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from scribengin.connectors import Environment, open_source
from scribengin.connectors.contract import RoundLimits
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import SourceMissing

_ONE = RoundLimits(1, 1)


def left_to_read(view: DataflowView, sources: Iterable[str]) -> tuple[str, ...]:
    """The streams of these sources, as `source:stream`, in which something lies that the dataflow has not committed.

    Their writers have stopped: what is there now is all there will be. It is asked of the commit logs and of the
    streams themselves, not of reports, which are as old as they are.
    """
    config = view.config_in_force().value
    environment = Environment(registry=view.registry, dataflow=view.dataflow, nodes=STREAM_NODES, looking=True)
    left = []
    for source_name in sorted(set(sources)):
        with closing(open_source(source_name, config.sources[source_name], environment)) as source:
            try:
                streams = source.streams()
            except SourceMissing:  # nothing was ever written there
                continue
            logs = view.commit_logs_of(source_name, [stream.name for stream in streams])
            for stream in streams:
                log = logs.get(stream.name)
                with closing(source.open_reader(stream)) as reader:
                    position = None if log is None else log.position
                    position = reader.initial_position() if position is None else position
                    if reader.plan(position, _ONE) is not None:
                        left.append(f"{source_name}:{stream.name}")
    return tuple(left)
