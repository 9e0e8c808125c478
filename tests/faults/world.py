"""All that a fault can strike: HDFS, YARN, Kafka, three ZooKeepers, and three dataflows that run on them.

The other sides are written and read with clients of their own: kafka-python, hdfs-native, a reader of logs.
"""

from __future__ import annotations

import hashlib
import json
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hdfs_native
import pyarrow as pa

from scribengin.base.commit_log import CommitLog
from scribengin.dataflow.registry import paths
from scribengin.errors import EndOfStream
from scribengin.testing.waiting import wait_until
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.hadoop.yarn import YarnServers
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_dev.servers.zookeeper import ZooKeeperServers
from tests.integration.cluster import Cluster
from tests.integration.yarn_cluster import YarnFlow, submit_on_yarn, yarn_cluster
from tests.servers.kafka_clients import visible_records
from tests.servers.kafka_side import KafkaSide
from tests.stalls import WrongOutput, expect_output

STREAMS = 2
LIMIT_S = 420.0
"""For everything to arrive: generous, because Spark starts anew in several containers on a busy machine."""
_NODE_MEMORY_MB = 16 * 1024
_SESSION_S = 30
"""Who was not struck is not lost, however busy the machine is."""


@dataclass
class World:
    """The servers, and where dataflows run."""

    hdfs: HdfsServers
    yarn: YarnServers
    kafka: KafkaServer
    zookeeper: ZooKeeperServers
    cluster: Cluster
    side: KafkaSide


class Pipeline(ABC):
    """One of the dataflows (or a chain of two): what goes in, and what came out, as whole payloads. Its topic, and its
    directories and logs, have its name."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.flows: list[YarnFlow] = []
        self._target = 0
        self._fed = 0

    def aim(self, chance: random.Random) -> None:
        """Choose the dataflow that the next fault strikes, and whose rounds are counted until then."""
        self._target = chance.randrange(len(self.flows))

    @property
    def target(self) -> YarnFlow:
        """The dataflow that was chosen."""
        return self.flows[self._target]

    @property
    def expected(self) -> Counter[bytes]:
        """Every record that was fed, once."""
        return Counter(self._payload(n) for n in range(self._fed))

    def feed(self, count: int) -> None:
        """So many more records into the source, over its streams."""
        numbers = range(self._fed, self._fed + count)
        for stream in range(STREAMS):
            self._write(stream, [self._payload(n) for n in numbers if n % STREAMS == stream])
        self._fed += count

    @abstractmethod
    def output(self) -> Counter[bytes]:
        """What readers of the last sink see."""

    def rounds(self) -> int:
        """How many rounds the target's source streams have taken part in: what a fault waits for."""
        registry, flow = self.world.cluster.registry, self.target.config.name
        node = paths.DataflowPaths(flow).source_stream("src", "x")
        streams = [f"{node.rpartition('/')[0]}/{name}" for name in registry.children(node.rpartition("/")[0])]
        found = [registry.find(paths.commit_log(stream)) for stream in streams]
        return sum(CommitLog.from_bytes(node.data, path="a stream").round for node in found if node is not None)

    def await_output(self) -> None:
        """Wait until all that was fed has come out, then hold just that against what was fed: nothing lost, nothing
        twice."""
        output: Counter[bytes] = Counter()

        def all_came() -> bool:
            nonlocal output
            output = self.output()
            return output.total() >= self._fed

        try:
            wait_until(all_came, LIMIT_S, f"{self._fed} records out of {self.name}")
        except AssertionError as error:
            words = "\n".join(f"{flow.status.model_dump_json()}\n{flow.words()[-6000:]}" for flow in self.flows)
            raise WrongOutput(f"{error}; {output.total()} came\n{words}") from None
        self._compare(output)

    def compare(self) -> None:
        """What is out now is what was fed. Raises WrongOutput."""
        self._compare(self.output())

    def _compare(self, output: Counter[bytes]) -> None:
        expected = self.expected
        twice, lost = list(output - expected)[:3], list(expected - output)[:3]
        expect_output(output == expected, f"{self.name}: too often {twice}, missing {lost}")

    @abstractmethod
    def submit(self) -> None:
        """Start it."""

    def stop(self) -> None:
        """Let every dataflow of it end by itself, the first one first."""
        for flow in self.flows:
            flow.edit(desired_state="stopped")
            flow.wait_for_state("stopped")

    @abstractmethod
    def _write(self, stream: int, payloads: Sequence[bytes]) -> None: ...

    def _submit(self, name: str, source: dict[str, Any], sink: dict[str, Any]) -> None:
        flow = submit_on_yarn(
            self.world.cluster,
            self.world.yarn,
            name=name,
            sources={"src": source},
            sinks={"out": sink},
            sql="SELECT payload FROM src",
            container={"memory_mb": 1536},
            round={"records_max": 40},
            session_timeout_s=_SESSION_S,
        )
        self.flows.append(flow)

    def _payload(self, number: int) -> bytes:
        text = hashlib.sha256(f"{self.name} {number}".encode()).hexdigest()
        return json.dumps({"flow": self.name, "n": number, "text": text}).encode()


class KafkaToHdfs(Pipeline):
    """A topic into files."""

    def submit(self) -> None:
        world = self.world
        world.side.create(self.name, partitions=STREAMS)
        source = {"kind": "kafka", "bootstrap": world.kafka.bootstrap, "topics": self.name}
        self._submit(self.name, source, {"kind": "hdfs", "path": f"{world.hdfs.url}/{self.name}", "merge_age_s": 1.0})

    def output(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        client = hdfs_native.Client(self.world.hdfs.url)
        folder = f"/{self.name}"
        for status in client.list_status(folder, recursive=False) if _is_there(client, folder) else ():
            if not status.isdir:
                with client.read(status.path) as file:
                    found.update(file.read().splitlines())
        return found

    def _write(self, stream: int, payloads: Sequence[bytes]) -> None:
        self.world.side.send(self.name, payloads, partition=stream)


class HdfsToKafka(Pipeline):
    """Files into a topic."""

    def submit(self) -> None:
        world = self.world
        hdfs_native.Client(world.hdfs.url).mkdirs(f"/{self.name}", create_parent=True)
        source = {"kind": "hdfs", "path": f"{world.hdfs.url}/{self.name}", "streams": STREAMS, "settle_s": 0}
        sink = {"kind": "kafka", "bootstrap": world.kafka.bootstrap, "topic": self.name, "create": {"partitions": 2}}
        self._submit(self.name, source, sink)

    def output(self) -> Counter[bytes]:
        return Counter(record.value for record in visible_records(self.world.kafka.bootstrap, self.name))

    def _write(self, stream: int, payloads: Sequence[bytes]) -> None:
        """A file that appears whole."""
        client = hdfs_native.Client(self.world.hdfs.url)
        name = f"{stream}-{self._fed:08d}.txt"
        with client.create(f"/{self.name}/_{name}") as file:
            file.write(b"\n".join(payloads) + b"\n")
        client.rename(f"/{self.name}/_{name}", f"/{self.name}/{name}")


class LogKafkaLog(Pipeline):
    """Logs into a topic, and that topic into logs: two dataflows."""

    def submit(self) -> None:
        world = self.world
        for stream in range(STREAMS):
            world.cluster.namespace.create(f"{self.name}/in/{stream}")
        world.side.create(self.name, partitions=STREAMS)
        kafka = {"kind": "kafka", "bootstrap": world.kafka.bootstrap}
        self._submit(f"{self.name}-1", {"kind": "log", "logs": f"{self.name}/in/*"}, {**kafka, "topic": self.name})
        self._submit(f"{self.name}-2", {**kafka, "topics": self.name}, {"kind": "log", "log": f"{self.name}/out"})

    def output(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        namespace = self.world.cluster.namespace
        for log in namespace.names(prefix=f"{self.name}/out/"):
            with namespace.open_reader(log) as reader:
                try:
                    while (batch := reader.read_batch()) is not None:
                        found.update(batch.column("payload").to_pylist())
                except EndOfStream:
                    continue
        return found

    def _write(self, stream: int, payloads: Sequence[bytes]) -> None:
        with self.world.cluster.namespace.open_writer(f"{self.name}/in/{stream}") as writer:
            writer.write_bulk(pa.record_batch([pa.array(payloads, pa.binary())], names=["payload"])).result(120)


PIPELINES = (KafkaToHdfs, HdfsToKafka, LogKafkaLog)


@contextmanager
def running_world(folder: Path) -> Iterator[World]:
    """Everything started, and everything ended."""
    with ExitStack() as servers:
        zookeeper = servers.enter_context(ZooKeeperServers(folder / "zookeeper"))
        kafka = servers.enter_context(KafkaServer(folder / "kafka"))
        hdfs = servers.enter_context(HdfsServers(folder / "hdfs", data_nodes=2))
        memory = {"yarn.nodemanager.resource.memory-mb": _NODE_MEMORY_MB}
        yarn = servers.enter_context(YarnServers(folder / "yarn", hdfs=hdfs, settings=memory))
        cluster = servers.enter_context(yarn_cluster(yarn, zookeeper.hosts, folder / "cluster"))
        side = KafkaSide(kafka.bootstrap)
        servers.callback(side.close)
        yield World(hdfs, yarn, kafka, zookeeper, cluster, side)


def _is_there(client: hdfs_native.Client, path: str) -> bool:
    try:
        client.get_file_info(path)
    except FileNotFoundError:
        return False
    return True
