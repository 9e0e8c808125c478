"""Opening what a `DataflowConfig` names: its sources, its sinks, and the specification of its transformation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from scribengin.base.jvm import JvmUse
from scribengin.connectors import AnySinkConfig, AnySourceConfig, Environment, open_sink, open_source
from scribengin.connectors.contract import Guarantee, Sink, SinkStreamDescriptor, Source, SourceStreamDescriptor
from scribengin.dataflow.config import DataflowConfig, StateConfig
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from scribengin.dataflow.round.owner import coordinated_stream
from scribengin.dataflow.tasks import split_into_tasks, task_count
from scribengin.spark.transform.spec import InputSpec, OutputSpec, StateSpec, TransformationSpec, WatermarkSpec


class OpenedDataflow:
    """The open sources and sinks of one dataflow in one process. Closes what it opened, also when opening fails half
    way.
    """

    def __init__(
        self,
        config: DataflowConfig,
        environment: Environment,
        open_source: Callable[[str, AnySourceConfig, Environment], Source] = open_source,
        open_sink: Callable[[str, AnySinkConfig, Environment], Sink] = open_sink,
    ) -> None:
        """Raises what the connectors raise for a source or sink that cannot be opened."""
        self.config = config
        with ExitStack() as opened:
            self.sources: dict[str, Source] = {}
            for name, source in config.sources.items():
                self.sources[name] = open_source(name, source, environment)
                opened.callback(self.sources[name].close)
            self.sinks: dict[str, Sink] = {}
            for name, sink in config.sinks.items():
                self.sinks[name] = open_sink(name, sink, environment)
                opened.callback(self.sinks[name].close)
            self._opened = opened.pop_all()

    def __enter__(self) -> OpenedDataflow:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every source and sink. Idempotent."""
        self._opened.close()

    def source_streams(self) -> dict[str, list[SourceStreamDescriptor]]:
        """The streams of every source as they are now. Raises SourceMissing."""
        return {name: source.streams() for name, source in self.sources.items()}

    def sink_streams(self, count: int) -> dict[str, list[SinkStreamDescriptor]]:
        """The first `count` streams of every sink, for as many tasks; of a divided one all that it has, which they
        share."""
        divisions = {name: sink.division for name, sink in self.config.sinks.items()}
        return {
            name: sink.streams(count if (division := divisions[name]) is None else division.streams)
            for name, sink in self.sinks.items()
        }

    def guarantees(self) -> dict[str, Guarantee]:
        """What each sink promises of the output after a crash."""
        return {name: sink.guarantee for name, sink in self.sinks.items()}

    def with_jvms(self) -> dict[str, JvmUse]:
        """The sources and sinks for which each process has a JVM of its own, and what for."""
        ends = {f"sources.{name}": source.jvm_a_process for name, source in self.sources.items()}
        ends |= {f"sinks.{name}": sink.jvm_a_process for name, sink in self.sinks.items()}
        return {name: use for name, use in ends.items() if use is not None}

    def tasks(self, streams: Mapping[str, list[SourceStreamDescriptor]] | None = None) -> list[TaskDescriptor]:
        """The tasks that the streams (default: those there are now) are grouped into. Raises ConfigInvalid when sinks
        of different systems would have to decide about one task."""
        found = self.source_streams() if streams is None else streams
        count = task_count(found, self.config.tasks)
        tasks = split_into_tasks(found, self.sink_streams(count), count)
        for task in tasks[:1]:  # they are all alike
            coordinated_stream(self.sinks, task.sinks)
        return tasks

    def transformation_spec(self) -> TransformationSpec:
        """What the Spark room needs to know of this dataflow."""
        config = self.config
        return TransformationSpec(
            dataflow=config.name,
            function=config.transformation,
            sql=config.statements() or None,
            package_dir=Path(config.package) if config.package else None,
            settings=dict(config.settings),
            inputs={
                name: InputSpec(
                    name,
                    opened.schema,
                    config.sources[name].format,
                    config.sources[name].schema_ddl,
                    opened.remote_readable,
                    config.sources[name].division,
                )
                for name, opened in self.sources.items()
            },
            outputs={name: self._output_spec(name) for name in config.outputs},
            state=None if config.state is None else self._state_spec(config.state),
        )

    def _output_spec(self, name: str) -> OutputSpec:
        sink = self.config.sinks[name]
        return OutputSpec(name, sink.format, self.sinks[name].side_columns, sink.division)

    def _state_spec(self, state: StateConfig) -> StateSpec:
        watermarks = {
            name: WatermarkSpec(one.column, one.delay_s, beats=one.idle_after_s is not None)
            for name, one in state.watermarks.items()
        }
        return StateSpec(
            state.partitions or self.config.container.cores,
            state.memory_mb,
            watermarks,
            state.unbounded,
            None if state.late is None else self._output_spec(state.late.sink),
            self.config.tasks or 1,
        )


OpenDataflow = Callable[[DataflowConfig, Environment], OpenedDataflow]
"""Opens what a config names (`OpenedDataflow`, or with other connectors)."""
