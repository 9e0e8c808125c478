"""A small dataflow without Spark, run by real processes that the crash tests stop: logs in, a log and files out, or a
Kafka topic and a log.

The transformation is plain Arrow: what these tests are about is the round around it. Everything else is the real thing:
a real ZooKeeper, real log and file connectors, real processes that die.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from scribengin.connectors import Environment
from scribengin.connectors.contract import ReadSplit, Sink, SinkStreamDescriptor
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.filesystems.paths import durable_file_system
from scribengin.log import LogConfig, LogNamespace
from scribengin_registry.contract import Registry
from tests.integration.owners import owners_of
from tests.servers.kafka_clients import committed_records

RECORDS_PER_LOG = 50
PADDING = "." * 8_000  # so that a round is large enough to be indexed
SEGMENT_BYTES_MAX = 50_000  # less than a round writes
FLOW = "crash"


@dataclass(frozen=True)
class Place:
    """Where one case runs: its own registry chroot and directory."""

    hosts: str
    directory: str
    tasks: int
    bootstrap: str = ""
    """Of a Kafka broker, for the flow whose even numbers go to a topic of its own."""
    files_url: str = ""
    """A directory on HDFS, for the flow whose odd numbers go to partitions of it."""
    files_path: str = ""
    """Where the files of the odd numbers are else; default: below the directory."""
    store: str = "file"
    store_location: str = ""
    """Where the segments of logs are; default: below the directory."""

    @property
    def topic(self) -> str:
        """Its first partition is the first task's, and so on."""
        return Path(self.directory).name

    @property
    def config(self) -> DataflowConfig:
        return DataflowConfig.parse(
            {
                "name": FLOW,
                "sources": {"in": {"kind": "log", "logs": "in/*"}},
                "sinks": self._sinks(),
                "sql": {"even": "SELECT 1", "odd": "SELECT 1"},
                "round": {"records_max": 20},
            },
            source="the crash tests",
        )

    def _sinks(self) -> dict[str, Any]:
        if not self.bootstrap:
            path = self.files_path or str(Path(self.directory) / "odd")
            files: dict[str, Any] = {"kind": "hdfs", "path": path, "format": "raw"}
            if self.files_url:
                files |= {"path": self.files_url, "codec": "gzip", "partition": {"columns": ["bucket"]}}
            return {"even": {"kind": "log", "log": "even"}, "odd": files}
        topic = {"topic": self.topic, "partition_by": "stream", "create": {"partitions": self.tasks}}
        return {"even": {"kind": "kafka", "bootstrap": self.bootstrap, **topic}, "odd": {"kind": "log", "log": "odd"}}


TopicReader = Callable[[Place, int], list[bytes]]
"""What readers of committed records see of a partition of the place's topic."""


class EvenOdd:
    """Splits records by the parity of their number, keeping their payloads."""

    def run(self, inputs: Mapping[str, Sequence[ReadSplit]]) -> dict[str, list[pa.RecordBatch]]:
        batches = [batch for split in inputs["in"] for batch in split.read()]
        return self.run_tables({"in": pa.Table.from_batches(batches)})

    def undecodable(self, _inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        return {}

    def raising(self, _inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        return {}

    def run_tables(self, inputs: Mapping[str, pa.Table]) -> dict[str, list[pa.RecordBatch]]:
        payloads = inputs["in"].column("payload").to_pylist()
        even = [p for p in payloads if json.loads(p)["n"] % 2 == 0]
        odd = [p for p in payloads if json.loads(p)["n"] % 2 == 1]
        buckets = pa.array([f"{json.loads(p)['n'] % 4}" for p in odd], pa.string())
        return {"even": [_batch(even)], "odd": [_batch(odd).append_column("bucket", buckets)]}


def _batch(payloads: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(payloads, pa.binary())], names=["payload"])


def record(task: int, n: int) -> dict[str, Any]:
    """The n-th record of a task's log."""
    return {"log": task, "n": n, "padding": PADDING}


def prepare(place: Place, registry: Registry) -> None:
    """Bind the namespace and fill one input log for each task."""
    location = place.store_location or str(Path(place.directory) / "logs")
    LogNamespace.bind("/logs", location, registry=registry, store=place.store)
    with LogNamespace.open("/logs", registry=registry) as namespace:
        if place.tasks > 1:  # one that is rolled in every round; the others are made by the sink
            namespace.create("even/0", LogConfig(segment_bytes_max=SEGMENT_BYTES_MAX))
        for task in range(place.tasks):
            namespace.create(f"in/{task}")
            writer = namespace.open_writer(f"in/{task}")
            payloads = [json.dumps(record(task, n)).encode() for n in range(RECORDS_PER_LOG)]
            writer.write_bulk(_batch(payloads)).result(timeout=120)
            writer.close()


def run_to_the_end(registry: Registry, place: Place, generation: int, owner: str) -> None:
    """Own all tasks in one process, as one worker does, and run rounds until nothing is left; then merge the files."""
    environment = environment_of(registry, place)
    with OpenedDataflow(place.config, environment) as resources:
        owners = owners_of(registry, resources, EvenOdd(), owner=owner, generation=generation)
        for task_owner in owners:
            task_owner.take_over()
        while any(task_owner.lag() for task_owner in owners):
            for task_owner in owners:
                task_owner.run_round()
        for task_owner in owners:
            task_owner.release()
            task_owner.close()
        resources.sinks["odd"].maintain(registry, idle=True)


def environment_of(registry: Registry, place: Place) -> Environment:
    """What connectors need from the process."""
    return Environment(registry=registry, dataflow=FLOW, nodes=STREAM_NODES)


def of_brokers(place: Place, partition: int) -> list[bytes]:
    """What readers of committed records see of a partition, read with another client than ours."""
    return [record.value for record in committed_records(place.bootstrap, place.topic, partition)]


def outputs(registry: Registry, place: Place, read_topic: TopicReader = of_brokers) -> dict[str, list[Any]]:
    """Everything that readers see, sink by sink, stream by stream."""

    def payloads(sink: Sink, stream: SinkStreamDescriptor) -> list[bytes]:
        if place.config.sinks[stream.sink].kind == "kafka":
            return read_topic(place, int(stream.name))
        return [payload for batch in sink.committed(stream) for payload in batch.column("payload").to_pylist()]

    with OpenedDataflow(place.config, environment_of(registry, place)) as resources:
        return {
            f"{name}/{stream.name}": [json.loads(p) for p in payloads(resources.sinks[name], stream)]
            for name, streams in resources.sink_streams(place.tasks).items()
            for stream in streams
        }


def lines_of_files(place: Place) -> list[str]:
    """The lines of the final files: what a program that knows nothing of us reads."""
    if not place.files_path:
        parts = sorted((Path(place.directory) / "odd").glob("part-*"))
        return [line for path in parts for line in path.read_text().splitlines()]
    files, root = durable_file_system(place.files_path)
    paths = [f"{root}/{name}" for name in files.names(root) if name.startswith("part-")]
    return [line for blocks in files.snapshots(paths) for line in b"".join(blocks).decode().splitlines()]


def expected(place: Place) -> dict[str, list[Any]]:
    """What an undisturbed run writes: every record once, in order."""
    wanted: dict[str, list[Any]] = {}
    for sink, parity in (("even", 0), ("odd", 1)):
        for task in range(place.tasks):
            wanted[f"{sink}/{task}"] = [record(task, n) for n in range(RECORDS_PER_LOG) if n % 2 == parity]
    return wanted
