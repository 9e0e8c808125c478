"""A dataflow with state in this process, on a registry in memory and logs on disk: its owners follow each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.round.stateful import StatefulRunner
from scribengin.spark.stateful.transformation import StatefulTransformation
from scribengin.testing.log_samples import bound_namespace
from scribengin_registry.contract import Registry
from tests.integration.owners import owner_with_state

SCHEMA = "at TIMESTAMP, who STRING, n INT"
FAR = 10_000
"""Seconds behind all that is looked at: a record then closes every window before."""
Event = tuple[int, str, int]
"""(second, who, n)."""


class Died(BaseException):
    """The owner's process ends here."""


def die(_stop: str) -> None:
    raise Died


class StateFlow:
    """A dataflow with state, to the log `out/0`, and its owners one after the other."""

    def __init__(
        self,
        registry: Registry,
        spark: SparkSession,
        directory: Path,
        *,
        delay_s: int | Mapping[str, int] = 0,
        reads: Sequence[str] | None = None,
        logs_at: str | None = None,
        **does: Any,
    ) -> None:
        """`does` is `sql` or `transformation`, which is in `directory`; it reads `src`, the logs `in/*`, and `other`,
        the log `other`, if it says so, or `reads` does. Logs are on HDFS at `logs_at`, or in
        `directory`. Records may be `delay_s` late, by source or all of them. What `does` says of `state` is added."""
        self.registry = registry
        self.spark = spark
        self.directory = directory
        place, store = (directory / "store", None) if logs_at is None else (logs_at, "hdfs")
        self.namespace = bound_namespace(registry, place, "in/0", "in/1", "other", store=store)
        logs = {"src": "in/*", "other": "other"}
        named = [name for name in logs if name == "src" or re.search(rf"(FROM|JOIN) {name}\b", str(does.get("sql")))]
        used = reads or named
        log = {"kind": "log", "format": "json", "schema_ddl": SCHEMA}
        delays_s = dict.fromkeys(used, delay_s) if isinstance(delay_s, int) else delay_s
        self.config = DataflowConfig.parse(
            {
                "name": "flow",
                "sources": {name: {**log, "logs": logs[name]} for name in used},
                "sinks": {"out": {"kind": "log", "log": "out", "format": "json"}},
                "package": str(directory),
                "round": {"records_max": 4},
                "state": {
                    "checkpoints": str(directory / "state"),
                    "partitions": 2,
                    "watermarks": {name: {"column": "at", "delay_s": delays_s[name]} for name in used},
                    **does.pop("state", {}),
                },
                **does,
            },
            source="the test",
        )
        self.generation = 0
        self.clock: Clock = SYSTEM_CLOCK

    def want_partitions(self, partitions: int | None) -> None:
        """Have its state in so many from the next owner on."""
        assert self.config.state is not None
        state = self.config.state.model_copy(update={"partitions": partitions})
        self.config = self.config.model_copy(update={"state": state})

    def append(self, log: str, events: Sequence[Event]) -> None:
        with self.namespace.open_writer(log) as writer:
            payloads = pa.array(payloads_of(events), pa.binary())
            writer.write_bulk(pa.record_batch([payloads], names=["payload"])).result(120)

    def open(self) -> OpenedDataflow:
        return OpenedDataflow(self.config, Environment(registry=self.registry, dataflow="flow", nodes=STREAM_NODES))

    @contextmanager
    def owner(self) -> Iterator[StatefulRunner]:
        """The next owner, who has not taken over. What it has open is closed, and nothing given back."""
        self.generation += 1
        with self.open() as resources:
            transform = StatefulTransformation.load(resources.transformation_spec(), self.spark)
            runner = owner_with_state(self.registry, resources, transform, self.generation, self.clock)
            try:
                yield runner
            finally:
                runner.close()

    def run_to_the_end(self) -> None:
        with self.owner() as owner:
            own_to_the_end(owner)
            owner.release()

    @property
    def query_directory(self) -> Path:
        """Where the query of its one task has its checkpoint, which is on disk. A task of Spark's that outlives the job
        that failed may make the one from before anew: that has no batches."""
        [offsets] = self.directory.glob("state/flow/task-0/*/query/offsets")
        return offsets.parent

    def delivered(self, sink: str = "out") -> list[dict[str, Any]]:
        with self.open() as resources:
            [stream] = resources.sink_streams(1)[sink]
            batches = list(resources.sinks[sink].committed(stream))
        return [json.loads(payload) for batch in batches for payload in batch.column("payload").to_pylist()]


def payloads_of(events: Sequence[Event]) -> list[bytes]:
    """As the logs have them."""
    return [json.dumps({"at": at(second), "who": who, "n": n}).encode() for second, who, n in events]


def at(second: float) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


def own_to_the_end(owner: StatefulRunner) -> None:
    """Take over, and run rounds until there are none left."""
    owner.take_over()
    drain(owner)


def drain(owner: StatefulRunner) -> None:
    """Run rounds until there are none left."""
    while owner.run_round() is not None:
        pass
