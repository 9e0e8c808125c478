"""`DataflowConfig`: what a user submits, as YAML, JSON or a Python value.

The same value stands in the dataflow's `config` node, where operators edit it. Nothing in it is optional by accident: a
default is what most people want, an unknown key is refused with its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from scribengin.base.model import LIVE, LIVE_WISH, NEVER, REGROUP, RESTART, ROLLING, Config, FreeJson
from scribengin.base.names import a_few
from scribengin.base.text.counting import many
from scribengin.base.text.refusals import did_you_mean
from scribengin.base.text.yaml_text import parse_yaml, parse_yaml_file
from scribengin.connectors import AnySinkConfig, AnySourceConfig
from scribengin.connectors.contract import Division, RoundLimits
from scribengin.errors import ConfigInvalid
from scribengin.filesystems.paths import absolute
from scribengin.launcher.yarn.config import YarnConfig

DEFAULT_STALLED_AFTER_S = 60.0
_WANTED = "a dataflow descriptor (YAML or JSON)"
_SUFFIXES = (".yaml", ".yml", ".json")
_SESSION_MAX_S = 2_000_000
"""ZooKeeper's protocol has room for so many milliseconds."""
WORKERS_MAX = 10_000
THREADS_MAX = 1000
PARTITIONS_MAX = 10_000
"""Far above what anybody needs: a digit too many must not take a master's memory, or a worker's."""
NAME_LENGTH_MAX = 100
NAME_PATTERN = rf"^[A-Za-z0-9][A-Za-z0-9_-]{{0,{NAME_LENGTH_MAX - 1}}}$"


def _plain_name(value: str) -> str:
    if len(value) > NAME_LENGTH_MAX:
        raise ValueError(f"'{value[:30]}...' has {len(value)} characters: a name has at most {NAME_LENGTH_MAX}")
    if not re.fullmatch(NAME_PATTERN, value):
        raise ValueError(f"'{value[:200]}' is no name: letters, digits, - and _, beginning with a letter or a digit")
    return value


PlainName = Annotated[str, AfterValidator(_plain_name), Field(json_schema_extra={"pattern": NAME_PATTERN})]
"""What a dataflow or a chain may be called."""


class ContainerConfig(Config):
    """What one worker's container gets. The memory holds Python and the JVM of its Spark session."""

    memory_mb: int = Field(default=2048, ge=256)
    """A worker that holds more is ended, and another one takes its place. Where logs lie on BookKeeper, the default is
    512 a core more, and it is more with more than 256 for state, or with many cores beside state."""
    cores: int = Field(default=1, ge=1, le=THREADS_MAX)
    """Processors. Spark gets as many local threads."""


class RoundConfig(Config):
    """The limits of one round, per source stream. A larger round is cheaper a record, and is redone whole after a
    crash.
    """

    records_max: int = Field(default=100_000, ge=1)
    """So many records at most."""
    bytes_max: int = Field(default=64 * 1024 * 1024, ge=1)
    """So many bytes at most. A single larger record is read all the same."""

    def limits(self) -> RoundLimits:
        """The same as connectors take it."""
        return RoundLimits(self.records_max, self.bytes_max)


class ErrorsConfig(Config):
    """What happens to a record that the transformation cannot take, or a sink what comes of it.

    `stop`: the task stops before it, and the dataflow's status says which record it was. `route`: it goes to the sink
    `sink` as JSON with the reason. What is too large for that sink is cut; its length and its SHA-256 are told. More
    than `records_max` in one round stop the task in any case: then it is not the records. A route is ended by `stop`;
    its sink stays named then, for rounds that are not complete yet may have written to it.

    With state only what cannot be decoded, is too long or was not read whole has a route: what a function raises on
    stops the task.
    """

    action: Literal["stop", "route"] = "stop"
    """`stop`: the task stops before the record. `route`: it goes to `errors.sink`, with the reason."""
    sink: str | None = None
    """Which of the sinks takes bad records."""
    records_max: Annotated[int, LIVE] = Field(default=100, ge=1)
    """More bad records than this in one round stop the task in any case."""

    @model_validator(mode="after")
    def _route_has_a_sink(self) -> ErrorsConfig:
        if self.action == "route" and self.sink is None:
            raise ValueError("errors.action: route goes with errors.sink: name one of the sinks")
        if self.sink is not None and "action" not in self.model_fields_set:
            raise ValueError("errors.sink goes with errors.action: route; one that was ended keeps it, with stop")
        return self


class PatienceConfig(Config):
    """How long a task in trouble is tried again before it has failed, and the dataflow with it."""

    away_s: float | None = Field(default=None, ge=0)
    """While a system of a source or a sink does not answer, or a disk is full. None: for as long as it takes."""
    failing_s: float = Field(default=15.0, ge=0)
    """While there is an error of another kind that may pass; at least five times. What cannot pass is not tried again,
    and the registry is waited for in any case."""


class SparkConfig(Config):
    """The Spark session of each worker. Without a master it gets one local thread a core of the container."""

    master: str | None = None
    """Where Spark's executors run: `local[N]`, or `yarn`. Default: in the worker, one thread a core."""
    conf: dict[str, str] = {}
    """Settings for Spark, under its own names. `${env:...}` and `${file:...}` are resolved in the worker."""


class WatermarkConfig(Config):
    """When a record of a source happened, and how long others that happened before it may still come.

    A window is given out once the watermark, the latest time seen less `delay_s`, has passed its end. What comes later
    is dropped, unless `state.late` names a sink for it.
    """

    column: str
    """The column, a timestamp, as the transformation sees it."""
    delay_s: float = Field(default=0.0, ge=0)
    """So much later than the latest one may a record come."""
    idle_after_s: float | None = Field(default=None, gt=0)
    """Where a source has no records for so long, the watermarks of the others count alone, until it has some again.
    What then comes from before is late. Unset: windows wait for it, however long."""


class LateConfig(Config):
    """Where late records go: those that are not after the watermark as it was when their batch was planned.

    The transformation does not see them, also where their window is still open. What is planned is written down, so a
    batch that is run again after a crash takes the same records for late.
    """

    sink: str
    """Which of the sinks takes late records. With `format: raw` it gets each as it was read, and with `json` its
    columns, beside `late_source` and `late_watermark`. Key, channel and headers go along, and nothing else."""


class StateConfig(Config):
    """What a transformation may keep from record to record: windows, aggregates, joins of streams, duplicates.

    Its state is Spark's, in a checkpoint that moves from owner to owner. `state: {}` is enough for most.
    """

    checkpoints: str | None = None
    """A directory that every worker sees, mounted or on `hdfs://`, for the checkpoints of all tasks. Default: `state`
    in SCRIBENGIN_HOME of this machine."""
    partitions: Annotated[int | None, ROLLING] = Field(default=None, ge=1, le=PARTITIONS_MAX)
    """Into how many parts state is divided by its keys. Another number is taken over while the dataflow is paused.
    Default: what a checkpoint has; a new one gets one a core of the container."""
    watermarks: dict[str, WatermarkConfig] = {}
    """By source. A transformation may call `withWatermark` itself instead."""
    late: LateConfig | None = None
    """What becomes of records that come later than the watermark of their batch. Default: Spark drops what comes too
    late for its window."""
    unbounded: Annotated[tuple[str, ...], RESTART] = ()
    """The names of operators (`explain` says them) whose state may grow for ever: a join without a time range, a
    processor without a TTL."""
    memory_mb: Annotated[int, ROLLING] = Field(default=256, ge=32)
    """So much of the container's memory RocksDB takes at most, for all partitions; all state is on the worker's disk.
    `container.memory_mb` has to be 1,212 more, and 100 a core, or a worker with much state is ended."""

    @field_validator("checkpoints")
    @classmethod
    def _is_a_directory(cls, value: str | None) -> str | None:
        if value is None:
            return None
        place = absolute(value)
        if "://" in place and not place.startswith("hdfs://"):
            raise ValueError(f"'{value}' is neither a directory nor on hdfs://: there a checkpoint moves as a whole")
        return place


_READ_WITH_STATE = ("log", "kafka", "hdfs")


class DataflowConfig(Config):
    """A dataflow: named sources and sinks, the transformation between them, and what it runs on."""

    # Each field says how its edit is carried out; scribengin/dataflow/edits.py has what the words mean.

    name: Annotated[PlainName, NEVER]
    """Letters, digits, `-` and `_`, beginning with a letter or digit; at most 100."""
    sources: Annotated[dict[str, AnySourceConfig], NEVER] = Field(min_length=1)
    """What is read: a name of its own for each source, by which the transformation knows it, and its keys."""
    sinks: Annotated[dict[str, AnySinkConfig], NEVER] = Field(min_length=1)
    """What is written: a name of its own for each sink, and its keys."""
    transformation: Annotated[str | None, RESTART] = None
    """`module:function` in the package."""
    sql: Annotated[str | dict[str, str] | None, RESTART] = None
    """Instead of a function: one statement for the only sink, or one a sink. Each source is a view of its name."""
    package: Annotated[str | None, RESTART] = None
    """The directory that is shipped to the workers: modules and static tables. Default: the descriptor's own."""
    settings: Annotated[FreeJson, ROLLING] = {}
    """Handed to the transformation as `context.settings`."""
    tasks: Annotated[int | None, REGROUP] = Field(default=None, ge=1)
    """How many tasks the streams are grouped into; those that are found later join the tasks with the fewest. Default:
    one a stream of the largest source, and of those that are found later. With state: 1, and more only where all
    sources are divided by one key (`partition_by`); it stays as it is then."""
    workers: Annotated[int, LIVE] = Field(default=1, ge=0, le=WORKERS_MAX)
    """How many worker processes there are. With 0 nothing is read."""
    executors_per_worker: Annotated[int, ROLLING] = Field(default=1, ge=1, le=THREADS_MAX)
    """How many tasks run side by side in one worker."""
    container: Annotated[ContainerConfig, ROLLING] = ContainerConfig()
    """What one worker gets of its machine."""
    spark: Annotated[SparkConfig, ROLLING] = SparkConfig()
    """The Spark session of each worker."""
    round: Annotated[RoundConfig, LIVE] = RoundConfig()
    """How much one round may read of a source stream."""
    errors: Annotated[ErrorsConfig, RESTART] = ErrorsConfig()
    """What happens to bad records."""
    state: Annotated[StateConfig | None, NEVER] = None
    """What the transformation keeps from record to record. Default: nothing; then it must be narrow."""
    patience: Annotated[PatienceConfig, LIVE] = PatienceConfig()
    """How long a task in trouble is tried again."""
    launcher: Annotated[Literal["local", "yarn", "skein"], NEVER] = "local"
    """Where masters and workers run: processes of this machine, or containers of the cluster of HADOOP_CONF_DIR, asked
    for by the master itself or through skein."""
    yarn: Annotated[YarnConfig, NEVER] = YarnConfig()
    """What is asked of YARN, with `launcher: yarn` or `skein`."""
    session_timeout_s: Annotated[float, ROLLING] = Field(default=6.0, ge=1.0, le=_SESSION_MAX_S)
    """After this long without word from a worker its tasks go to others."""
    stalled_after_s: Annotated[float, LIVE] = Field(default=DEFAULT_STALLED_AFTER_S, ge=1.0)
    """A task that has something to do and has committed nothing for so long, and longer than some rounds take, is
    shown as stalled."""
    metrics_port: Annotated[int | None, ROLLING] = Field(default=None, ge=0, le=65_535)
    """Masters and workers serve /metrics and /health on the first free port from this one on; 0: on any. Default: they
    do not."""
    metrics_host: Annotated[str, ROLLING] = "127.0.0.1"
    """The address that this is bound to."""
    desired_state: Annotated[Literal["running", "paused", "stopped"], LIVE_WISH] = "running"
    """`paused`: every task drains, and workers stay. `stopped`: everything leaves."""
    rebalance: Annotated[int, LIVE_WISH] = Field(default=0, ge=0)
    """Any change of it has the tasks spread anew, once, by the records that they are seen to read."""

    @model_validator(mode="before")
    @classmethod
    def _one_task_unless_said(cls, value: Any) -> Any:
        """Where only one task can do it: with state, or where it divides its output."""
        if isinstance(value, dict) and value.get("tasks") is None:
            sinks = value.get("sinks")
            of_each = sinks.values() if isinstance(sinks, dict) else ()
            divided = any(isinstance(sink, dict) and sink.get("streams") is not None for sink in of_each)
            if divided or value.get("state") is not None:
                return {**value, "tasks": 1}
        return value

    @field_validator("sources", "sinks")
    @classmethod
    def _plain_names(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"'{name}' is not a name (letters, digits and _, not beginning with a digit)")
        return value

    @model_validator(mode="after")
    def _sinks_of_roles(self) -> DataflowConfig:
        """First of all: what is said of the transformation's sinks rests on which those are."""
        late = None if self.state is None else self.state.late
        if self.errors.sink is not None:
            self._refuse_for_role(self.errors.sink, "errors.sink", "bad records")
        if late is not None:
            self._refuse_for_role(late.sink, "state.late.sink", "late records")
            if late.sink == self.errors.sink:
                raise ValueError(
                    f"state.late.sink '{late.sink}' takes the bad records (errors.sink): name another sink"
                )
        if not self.outputs:
            taken = ", ".join(f"'{name}' takes the {self.role_of(name)}" for name in self.sinks)
            raise ValueError(f"sinks: {taken}: add one that the transformation writes")
        return self

    def _refuse_for_role(self, name: str, setting: str, records: str) -> None:
        """What a sink cannot be that `setting` names. What it gets is not the transformation's, and has no keys."""
        if name not in self.sinks:
            raise ValueError(f"{setting} '{name}' is none of the sinks ({', '.join(self.sinks)})")
        if getattr(self.sinks[name], "partition", None) is not None:
            raise ValueError(
                f"{setting} '{name}' has a partition, and {records} are not made for one: leave `partition` out"
            )
        if self.sinks[name].division is not None:
            raise ValueError(
                f"{setting} '{name}' is divided into streams, and {records} go where their task is: leave `streams` "
                "and `partition_by` out"
            )

    @model_validator(mode="after")
    def _one_transformation(self) -> DataflowConfig:
        if (self.transformation is None) == (self.sql is None):
            raise ValueError("give exactly one of transformation (module:function) and sql")
        if self.transformation is not None and not re.fullmatch(r"[\w.]+:\w+", self.transformation):
            raise ValueError(f"transformation '{self.transformation}' is not of the form module:function")
        if isinstance(self.sql, str) and len(self.outputs) != 1:
            raise ValueError(
                f"sql is one statement but there are sinks {', '.join(self.outputs)}: give one statement a sink"
            )
        return self

    @model_validator(mode="after")
    def _names_that_exist(self) -> DataflowConfig:
        if self.state is None and self.tasks != 1:
            for name, sink in self.sinks.items():
                if sink.division is not None:
                    raise ValueError(
                        f"sinks.{name}.streams goes with tasks: 1, which writes them all: leave `tasks` out, or "
                        "`streams`, and each task writes one"
                    )
        for output in self.statements():
            if (role := self.role_of(output)) is not None:
                raise ValueError(
                    f"sql names '{output}', which takes the {role}: the transformation does not write it, leave it out"
                )
            if output not in self.outputs:
                raise ValueError(f"sql names '{output}', which is none of the sinks ({', '.join(self.outputs)})")
        return self

    @model_validator(mode="after")
    def _what_goes_with_state(self) -> DataflowConfig:
        state = self.state
        if state is None:
            self._refuse_divided_sources()
            return self
        self._refuse_unrepeatable_sources()
        if self.tasks is not None and self.tasks > 1:
            self._refuse_undivided_sources(self.tasks)
            self._refuse_shared_sinks(self.tasks)
        for name in state.watermarks:
            if name not in self.sources:
                raise ValueError(
                    f"state.watermarks names '{name}', which is none of the sources ({', '.join(self.sources)})"
                )
        if state.late is not None:
            self._refuse_no_late_records(state, state.late.sink)
        master = self.spark.master or "local"
        if not master.startswith("local") and master != "yarn":
            raise ValueError(
                f"spark.master {master} does not go with state: choose local threads, as in local[2], or yarn"
            )
        if (self.launcher != "local" or master == "yarn") and state.checkpoints is None:
            raise ValueError(
                "state.checkpoints is needed on a cluster: name a directory on hdfs://, or one that all its machines "
                "mount"
            )
        return self

    def _refuse_no_late_records(self, state: StateConfig, sink: str) -> None:
        """Where nothing is late, or what is late cannot be written as it was read."""
        if not state.watermarks:
            raise ValueError("state.late goes with state.watermarks: without a watermark of a source nothing is late")
        for name in state.watermarks:
            if self.sinks[sink].format == "raw" and getattr(self.sources[name], "file_format", None) == "parquet":
                raise ValueError(
                    f"sources.{name} reads Parquet, whose records are columns, and state.late.sink '{sink}' with "
                    "format: raw takes payloads: set format: json for the sink"
                )
            keeps = getattr(self.sources[name], "tombstones", "drop") == "keep"
            if keeps and self.sources[name].format == self.sinks[sink].format == "raw":
                raise ValueError(
                    f"sources.{name} keeps tombstones, and state.late.sink '{sink}' with format: raw takes no record "
                    f"without a payload: set sources.{name}.tombstones: drop, or format: json for the sink"
                )

    def _refuse_unrepeatable_sources(self) -> None:
        """With state a batch is run again after a crash, and must find the very records that it had."""
        for name, source in self.sources.items():
            if source.kind not in _READ_WITH_STATE:
                raise ValueError(
                    f"sources.{name} is of kind {source.kind}, and a dataflow with state reads logs, Kafka and "
                    "files: have a dataflow without state write it to a log, and read that"
                )
            expired = getattr(source, "on_expired", "error")
            if source.kind == "kafka" and expired != "error":
                raise ValueError(
                    f"sources.{name}.on_expired: {expired} does not go with state, whose batches must find "
                    "the same records when they are run again: leave it out"
                )

    def _refuse_divided_sources(self) -> None:
        """Nobody looks at keys where nothing is kept by them."""
        for name, source in self.sources.items():
            if source.division is not None:
                raise ValueError(f"sources.{name}.partition_by goes with `state`: leave it out, and `streams`")

    def _refuse_undivided_sources(self, tasks: int) -> None:
        """With several tasks all records of a key must be in one, of whatever source: task i has the streams whose
        number is i modulo `tasks`, of each source, so that streams of one number are together."""
        first: tuple[str, Division] | None = None
        for name, source in self.sources.items():
            division = source.division
            if division is None:
                raise ValueError(
                    f"tasks: {tasks} with state takes logs with `streams` and `partition_by`, as the sink has that "
                    f"writes them, and sources.{name} has none: leave `tasks` out, or have a dataflow without state "
                    "write such logs"
                )
            if division.streams < tasks:
                raise ValueError(
                    f"tasks: {tasks} is more than the {many(division.streams, 'stream')} of sources.{name}: with "
                    "state each task has one of each source at least"
                )
            first = first or (name, division)
            if division.streams != first[1].streams:
                raise ValueError(
                    f"sources.{first[0]} has {many(first[1].streams, 'stream')} and sources.{name} {division.streams}: "
                    f"with tasks: {tasks} equal keys must have equal numbers; divide both among as many"
                )
            if len(division.columns) != len(first[1].columns):
                raise ValueError(
                    f"sources.{first[0]} is divided by {', '.join(first[1].columns)} and sources.{name} by "
                    f"{', '.join(division.columns)}: with tasks: {tasks} all are divided by the same key"
                )

    def _refuse_shared_sinks(self, tasks: int) -> None:
        """Keys that are in task i must be those of the streams whose number is i modulo `tasks`, of a sink as of the
        sources: `tasks` divides both numbers."""
        source, read = next((name, one.division) for name, one in self.sources.items())
        assert read is not None, "it is divided"
        for name, sink in self.sinks.items():
            if (written := sink.division) is None:
                continue
            if read.streams % tasks or written.streams % tasks:
                raise ValueError(
                    f"sinks.{name} has {many(written.streams, 'stream')} and sources.{source} {read.streams}: "
                    f"tasks: {tasks} that write a divided sink must divide both numbers, so that "
                    "each has streams of its own"
                )
            if len(written.columns) != len(read.columns):
                raise ValueError(
                    f"sinks.{name} is divided by {', '.join(written.columns)} and sources.{source} by "
                    f"{', '.join(read.columns)}: tasks: {tasks} share a divided sink by the key of the sources; say "
                    "the same columns, or leave `streams` and `partition_by` out"
                )

    @property
    def endless(self) -> bool:
        """Whether it goes on when all streams that there are have ended."""
        return any(source.endless for source in self.sources.values())

    @property
    def outputs(self) -> list[str]:
        """The sinks that the transformation writes: all that have no role of their own."""
        return [name for name in self.sinks if self.role_of(name) is None]

    def role_of(self, sink: str) -> str | None:
        """What a sink gets that the transformation does not write there, for people; None: nothing."""
        if sink == self.errors.sink:
            return "bad records"
        late = None if self.state is None else self.state.late
        return "late records" if late is not None and sink == late.sink else None

    def statements(self) -> dict[str, str]:
        """The SQL statement of each sink; empty when a function transforms."""
        if isinstance(self.sql, str):
            return {self.outputs[0]: self.sql}
        return self.sql or {}


def load_config(source: str | Path | Mapping[str, Any], overrides: Mapping[str, str] | None = None) -> DataflowConfig:
    """Read a descriptor: a path to a YAML or JSON file (or a directory that holds one of its own name), or a value.

    `overrides` maps dotted keys (`sinks.out.path`) to YAML values. Relative paths of the package are made absolute,
    from the descriptor's place. Raises ConfigInvalid.
    """
    if isinstance(source, Mapping):
        return DataflowConfig.parse(_overridden(dict(source), overrides or {}), source="the dataflow")
    path = _descriptor_path(Path(source))
    value = _read_yaml(path)
    if isinstance(value, dict):
        value["package"] = str((path.parent / str(value.get("package", "."))).resolve())
    return DataflowConfig.parse(_overridden(value, overrides or {}), source=str(path))


def _descriptor_path(path: Path) -> Path:
    if path.is_dir():
        candidates = [path / f"{path.resolve().name}{suffix}" for suffix in _SUFFIXES]
        found = next((c for c in candidates if c.is_file()), None)
        if found is None:
            others = sorted(file.name for file in path.iterdir() if file.suffix in _SUFFIXES)
            there = f", but {a_few(others)}" if others else ""
            raise ConfigInvalid(f"{path} has no {candidates[0].name}{there}; name the descriptor itself")
        return found
    if path.exists() and not path.is_file():  # a pipe, which is empty when it is read once more
        raise ConfigInvalid(f"{path} is no file that can be read twice: name {_WANTED}")
    if not path.exists():
        others = sorted(file.name for file in path.parent.glob("*.*") if file.suffix in _SUFFIXES and file.exists())
        meant = did_you_mean(path.name, others)
        raise ConfigInvalid(f"{path}: there is no such file; name a dataflow descriptor (YAML or JSON){meant}")
    return path


def _read_yaml(path: Path) -> Any:
    value = parse_yaml_file(path, wanted=_WANTED)
    if not isinstance(value, dict):
        raise ConfigInvalid(f"{path} holds no mapping: a dataflow descriptor begins with keys like name and sources")
    return value


def _overridden(value: dict[str, Any], overrides: Mapping[str, str]) -> dict[str, Any]:
    for dotted, text in overrides.items():
        *parents, last = dotted.split(".")
        node: Any = value
        for parent in parents:
            node = node.setdefault(parent, {}) if isinstance(node, dict) else None
        if not isinstance(node, dict):
            raise ConfigInvalid(f"--set {dotted}: '{'.'.join(parents)}' is not a mapping in the descriptor")
        node[last] = parse_yaml(text, source=f"--set {dotted}: the value")
    return value
