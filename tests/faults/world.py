"""All that a fault can strike: HDFS, YARN, Kafka, three ZooKeepers, and dataflows that run on them, with state and
without.

The other sides are written and read with clients of their own: kafka-python, hdfs-native, a reader of logs.
"""

from __future__ import annotations

import hashlib
import itertools
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
from scribengin.testing.waiting import WaitedInVain, wait_until
from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_dev.servers.hadoop.yarn import YarnServers
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_dev.servers.zookeeper import ZooKeeperServers
from tests.integration.cluster import Cluster
from tests.integration.yarn_cluster import YarnFlow, submit_on_yarn, yarn_cluster
from tests.servers.kafka_clients import visible_records
from tests.servers.kafka_side import KafkaSide

STREAMS = 2
LIMIT_S = 420.0
"""For everything to arrive: generous, because Spark starts anew in several containers on a busy machine."""
_NODE_MEMORY_MB = 16 * 1024
_SESSION_S = 30
"""Who was not struck is not lost, however busy the machine is."""
_DISTINCT = """
def transform(inputs, context):
    return inputs["src"].select("payload").dropDuplicates()
"""


@dataclass
class World:
    """The servers, and where dataflows run."""

    hdfs: HdfsServers
    yarn: YarnServers
    kafka: KafkaServer
    zookeeper: ZooKeeperServers
    cluster: Cluster
    side: KafkaSide
    packages: Path


class Place(ABC):
    """Where records of a pipeline come from, or go to, under a name."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name

    @abstractmethod
    def make(self) -> None:
        """Let it be there, to be read."""

    @abstractmethod
    def source(self) -> dict[str, Any]:
        """What a dataflow that reads it says of it."""

    @abstractmethod
    def sink(self) -> dict[str, Any]:
        """What a dataflow that writes it says of it."""

    @abstractmethod
    def write(self, stream: int, payloads: Sequence[bytes], at: int) -> None:
        """Add records to a stream of what is read, when so many had been fed before."""

    @abstractmethod
    def written(self) -> Counter[bytes]:
        """What readers see of what is written."""


class Topic(Place):
    """A topic."""

    def make(self) -> None:
        self.world.side.create(self.name, partitions=STREAMS)

    def source(self) -> dict[str, Any]:
        return {"kind": "kafka", "bootstrap": self.world.kafka.bootstrap, "topics": self.name}

    def sink(self) -> dict[str, Any]:
        create = {"partitions": STREAMS}
        return {"kind": "kafka", "bootstrap": self.world.kafka.bootstrap, "topic": self.name, "create": create}

    def write(self, stream: int, payloads: Sequence[bytes], at: int) -> None:
        self.world.side.send(self.name, payloads, partition=stream)

    def written(self) -> Counter[bytes]:
        return Counter(record.value for record in visible_records(self.world.kafka.bootstrap, self.name))


class Files(Place):
    """A directory on HDFS."""

    def make(self) -> None:
        hdfs_native.Client(self.world.hdfs.url).mkdirs(f"/{self.name}", create_parent=True)

    def source(self) -> dict[str, Any]:
        return {"kind": "hdfs", "path": f"{self.world.hdfs.url}/{self.name}", "streams": STREAMS, "settle_s": 0}

    def sink(self) -> dict[str, Any]:
        return {"kind": "hdfs", "path": f"{self.world.hdfs.url}/{self.name}", "merge_age_s": 1.0}

    def write(self, stream: int, payloads: Sequence[bytes], at: int) -> None:
        """A file that appears whole. One whose block is on a DataNode that has just died is written anew."""
        client = hdfs_native.Client(self.world.hdfs.url)
        tries = itertools.count()

        def complete() -> bool:
            hidden = f"/{self.name}/_{stream}-{at:08d}-{next(tries)}"
            try:
                with client.create(hidden) as file:
                    file.write(b"\n".join(payloads) + b"\n")
            except (OSError, RuntimeError):  # it tells by either
                return False
            client.rename(hidden, f"/{self.name}/{stream}-{at:08d}.txt")
            return True

        wait_until(complete, LIMIT_S, "a file on HDFS")

    def written(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        client = hdfs_native.Client(self.world.hdfs.url)
        folder = f"/{self.name}"
        for status in client.list_status(folder, recursive=False) if _is_there(client, folder) else ():
            if not status.isdir:
                with client.read(status.path) as file:
                    found.update(file.read().splitlines())
        return found


class Logs(Place):
    """Logs whose names begin so."""

    def make(self) -> None:
        for stream in range(STREAMS):
            self.world.cluster.namespace.create(f"{self.name}/{stream}")

    def source(self) -> dict[str, Any]:
        return {"kind": "log", "logs": f"{self.name}/*"}

    def sink(self) -> dict[str, Any]:
        return {"kind": "log", "log": self.name}

    def write(self, stream: int, payloads: Sequence[bytes], at: int) -> None:
        with self.world.cluster.namespace.open_writer(f"{self.name}/{stream}") as writer:
            writer.write_bulk(pa.record_batch([pa.array(payloads, pa.binary())], names=["payload"])).result(120)

    def written(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        namespace = self.world.cluster.namespace
        for log in namespace.names(prefix=f"{self.name}/"):
            with namespace.open_reader(log) as reader:
                try:
                    while (batch := reader.read_batch()) is not None:
                        found.update(batch.column("payload").to_pylist())
                except EndOfStream:
                    continue
        return found


class Pipeline:
    """Dataflows, each between two places: what goes in, and what came out, as whole payloads. What it has made has its
    name."""

    kinds: Sequence[type[Place]]
    """Of its places, from the first source to the last sink."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.flows: list[YarnFlow] = []
        self._places = [kind(world, f"{name}-{number}") for number, kind in enumerate(self.kinds)]
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
        for stream in range(STREAMS):
            numbers = [n for n in range(self._fed, self._fed + count) if n % STREAMS == stream]
            self._places[0].write(stream, [self._payload(n) for n in [*numbers, *self._again(count)]], self._fed)
        self._fed += count

    def output(self) -> Counter[bytes]:
        """What readers of the last sink see."""
        return self._places[-1].written()

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
        except WaitedInVain as error:
            words = "\n".join(f"{flow.status.model_dump_json()}\n{flow.words()[-6000:]}" for flow in self.flows)
            raise AssertionError(f"{error}; {output.total()} came\n{words}") from None
        self._compare(output)

    def compare(self) -> None:
        """What is out now is what was fed. Raises AssertionError."""
        self._compare(self.output())

    def _compare(self, output: Counter[bytes]) -> None:
        expected = self.expected
        twice, lost = list(output - expected)[:3], list(expected - output)[:3]
        assert output == expected, f"{self.name}: too often {twice}, missing {lost}"

    def submit(self) -> None:
        """Start it."""
        for place in self._places[:-1]:
            place.make()
        for number, (before, after) in enumerate(itertools.pairwise(self._places), 1):
            self._submit(f"{self.name}-{number}", before.source(), after.sink())

    def stop(self) -> None:
        """Let every dataflow of it end by itself, the first one first."""
        for flow in self.flows:
            flow.edit(desired_state="stopped")
            flow.wait_for_state("stopped")

    def _again(self, count: int) -> Sequence[int]:
        """The numbers of records that are fed once more, with `count` new ones, into each stream."""
        return ()

    def _does(self) -> dict[str, Any]:
        """What its dataflows do, as a descriptor says it."""
        return {"sql": "SELECT payload FROM src"}

    def _submit(self, name: str, source: dict[str, Any], sink: dict[str, Any]) -> None:
        flow = submit_on_yarn(
            self.world.cluster,
            self.world.yarn,
            name=name,
            sources={"src": source},
            sinks={"out": sink},
            **self._does(),
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

    kinds = (Topic, Files)


class HdfsToKafka(Pipeline):
    """Files into a topic."""

    kinds = (Files, Topic)


class LogKafkaLog(Pipeline):
    """Logs into a topic, and that topic into logs: two dataflows."""

    kinds = (Logs, Topic, Logs)


class Distinct(Pipeline):
    """Records of which many come again, at once or later, in any stream: its state, which is on HDFS, knows them."""

    def _again(self, count: int) -> Sequence[int]:
        there = self._fed + count
        return random.Random(f"{self.name} {there}").sample(range(there), count // 4)

    def _does(self) -> dict[str, Any]:
        package = self.world.packages / self.name
        package.mkdir(exist_ok=True)
        (package / "distinct.py").write_text(_DISTINCT)
        state = {"checkpoints": f"{self.world.hdfs.url}/state", "partitions": 2, "unbounded": ["duplicates"]}
        return {"transformation": "distinct:transform", "package": str(package), "state": state}


class LogStateLog(Distinct):
    """Logs into logs."""

    kinds = (Logs, Logs)


class KafkaStateKafka(Distinct):
    """A topic into a topic."""

    kinds = (Topic, Topic)


class HdfsStateHdfs(Distinct):
    """Files into files."""

    kinds = (Files, Files)


PIPELINES = (KafkaToHdfs, HdfsToKafka, LogKafkaLog, LogStateLog, KafkaStateKafka, HdfsStateHdfs)


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
        packages = folder / "packages"
        packages.mkdir()
        yield World(hdfs, yarn, kafka, zookeeper, cluster, side, packages)


def _is_there(client: hdfs_native.Client, path: str) -> bool:
    try:
        client.get_file_info(path)
    except FileNotFoundError:
        return False
    return True
