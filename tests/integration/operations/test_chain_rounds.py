"""Two dataflows behind one another, round by round: an owner is replaced in the middle, the second stands still while
the log between them keeps nothing that it need not, and every record is there once. Without Spark, on the real
registry and the real connectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.connectors import Environment
from scribengin.connectors.contract import ReadSplit
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.retention_holds import register_holds
from scribengin.log import LogNamespace
from scribengin.operations.chain.config import ChainConfig, full_name
from scribengin.operations.chain.draining import left_to_read
from scribengin.operations.chain.graph import graph_of
from scribengin.operations.chain.registry import create_chain, descriptor_of, get_chain
from scribengin.operations.chain.submit import create_between
from scribengin.operations.verify.verify import ends_of, generate, verify
from scribengin.testing.clocks import JumpingClock
from scribengin_registry.contract import Registry
from tests.integration.owners import owners_of

COUNT = 400


class Through:
    """Passes payloads on as they are."""

    def run(self, inputs: Mapping[str, Sequence[ReadSplit]]) -> dict[str, list[pa.RecordBatch]]:
        return {"out": [batch.select(["payload"]) for split in inputs["src"] for batch in split.read()]}

    def undecodable(self, _inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        return {}

    def raising(self, _inputs: Mapping[str, pa.Table]) -> dict[str, dict[int, str]]:
        return {}

    def run_tables(self, inputs: Mapping[str, pa.Table]) -> dict[str, list[pa.RecordBatch]]:
        return {"out": inputs["src"].select(["payload"]).to_batches()}


class Worker:
    """All tasks of one dataflow, owned by this process under a generation."""

    def __init__(
        self,
        registry: Registry,
        config: DataflowConfig,
        generation: int,
        opened: ExitStack,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        environment = Environment(registry=registry, dataflow=config.name, nodes=STREAM_NODES, clock=clock)
        resources = opened.enter_context(OpenedDataflow(config, environment))
        self.owners = owners_of(
            registry, resources, Through(), owner=f"worker-{generation}", generation=generation, clock=clock
        )
        for owner in self.owners:
            opened.callback(owner.close)
            owner.take_over()

    def work(self, rounds: int) -> None:
        """So many rounds of each task."""
        for _ in range(rounds):
            for owner in self.owners:
                owner.run_round()

    def read_all(self) -> None:
        """Until nothing is left."""
        while any(owner.lag() for owner in self.owners):
            self.work(1)


def between(last_sink: dict[str, str]) -> ChainConfig:
    ways = (("first", "in", {"kind": "log", "log": "mid"}), ("last", "mid", last_sink))
    flows = {
        key: {
            "name": full_name("orders", key),
            "sources": {"src": {"kind": "log", "logs": f"{source}/*"}},
            "sinks": {"out": sink},
            "sql": "SELECT payload FROM src",
            "round": {"records_max": 50},
        }
        for key, source, sink in ways
    }
    kept = {"segment_bytes_max": 4096, "retention_hours": 0}
    logs = {"in": {"streams": 2}, "mid": {"streams": 2, "config": kept}}
    return ChainConfig.parse({"name": "orders", "logs": logs, "dataflows": flows}, source="the test")


@pytest.fixture
def namespace(registry: Registry, tmp_path: Path) -> Iterator[LogNamespace]:
    LogNamespace.bind("/logs", tmp_path, registry=registry)
    with LogNamespace.open("/logs", registry=registry) as opened:
        yield opened


@pytest.fixture(params=["log", "files"])
def chain(request: pytest.FixtureRequest, registry: Registry, namespace: LogNamespace, tmp_path: Path) -> ChainConfig:
    """The chain as it was submitted, without masters."""
    files = {"kind": "hdfs", "path": str(tmp_path / "files")}
    chain = between(files if request.param == "files" else {"kind": "log", "log": "out"})
    create_chain(registry, descriptor_of(chain, 1))
    create_between(registry, chain)
    for config in chain.dataflows.values():
        register_holds(registry, config)
        with OpenedDataflow(config, Environment(registry=registry, dataflow=config.name, nodes=STREAM_NODES)) as opened:
            claims = [sink.resource for sink in opened.sinks.values()]
        DataflowView(registry, config.name).submit(config, claims, 1)
    return chain


def count_between(namespace: LogNamespace) -> int:
    for log in ("mid/0", "mid/1"):
        namespace.purge(log)
    return sum(namespace.count(log) for log in ("mid/0", "mid/1"))


def test_every_record_goes_through_the_chain_once_though_its_second_half_stood_still(
    registry: Registry, namespace: LogNamespace, chain: ChainConfig
) -> None:
    ends = ends_of(registry, get_chain(registry, "orders"))
    sources = [edge.source for edge in graph_of(chain).feeding("last")]
    first, last = (DataflowView(registry, chain.dataflows[key].name) for key in ("first", "last"))
    assert generate(registry, ends, COUNT) == 2
    with ExitStack() as opened:
        Worker(registry, chain.dataflows["first"], 1, opened).work(3)
        Worker(registry, chain.dataflows["first"], 2, opened).read_all()  # the first one is fenced where it stood
    assert count_between(namespace) == 2 * COUNT, "nothing that `last` has not committed is dropped"
    assert min(len(namespace.segments(log)) for log in ("mid/0", "mid/1")) > 3
    assert left_to_read(last, sources) == ("src:mid/0", "src:mid/1")
    assert verify(registry, ends, within_s=0).complete is False

    with ExitStack() as opened:
        reader = Worker(registry, chain.dataflows["last"], 1, opened)
        reader.work(2)
        assert left_to_read(last, sources) == ("src:mid/0", "src:mid/1")
        reader.read_all()
    assert left_to_read(last, sources) == ()
    found = verify(registry, ends, within_s=0)
    assert found.good, found
    assert [(chunk.stream, chunk.sent, chunk.arrived) for chunk in found.chunks] == [
        ("in/0", COUNT, COUNT),
        ("in/1", COUNT, COUNT),
    ]
    assert count_between(namespace) < 2 * COUNT, "what `last` has committed is let go"
    assert first.status().state == "starting"


def test_clocks_that_jump_by_hours_change_nothing_of_what_comes_out(registry: Registry, chain: ChainConfig) -> None:
    ends = ends_of(registry, get_chain(registry, "orders"))
    assert generate(registry, ends, COUNT) == 2
    with ExitStack() as opened:
        for generation in (1, 2, 3):  # each fences the one before it, and none of them has the same time
            Worker(registry, chain.dataflows["first"], generation, opened, JumpingClock(generation)).work(2)
        Worker(registry, chain.dataflows["first"], 4, opened, JumpingClock(4)).read_all()
        Worker(registry, chain.dataflows["last"], 1, opened, JumpingClock(5)).work(3)
        Worker(registry, chain.dataflows["last"], 2, opened, JumpingClock(6)).read_all()
    found = verify(registry, ends, within_s=0)
    assert found.good, found
    assert [(chunk.stream, chunk.arrived) for chunk in found.chunks] == [("in/0", COUNT), ("in/1", COUNT)]
