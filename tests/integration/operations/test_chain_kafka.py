"""Chains through topics: the topics of the chain's file are made, and tracking records are written and read there."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from scribengin.dataflow.registry.view import DataflowView
from scribengin.log import LogNamespace
from scribengin.operations.chain.config import ChainConfig, full_name, with_topics
from scribengin.operations.chain.draining import left_to_read
from scribengin.operations.chain.graph import graph_of
from scribengin.operations.chain.registry import create_chain, descriptor_of, get_chain
from scribengin.operations.chain.submit import create_between, problems_of
from scribengin.operations.verify.verify import ends_of, generate, verify
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_registry.contract import Registry


@pytest.fixture
def chain(kafka: KafkaServer) -> ChainConfig:
    names = {key: f"{key}-{uuid.uuid4().hex[:8]}" for key in ("raw", "clean")}
    endpoint: dict[str, Any] = {"kind": "kafka", "bootstrap": kafka.bootstrap}
    flows = {
        key: {
            "name": full_name("orders", key),
            "sources": {"src": {**endpoint, "topics": [names[source]]}},
            "sinks": {"out": sink},
            "sql": "SELECT payload FROM src",
        }
        for key, source, sink in (
            ("first", "raw", {**endpoint, "topic": names["clean"]}),
            ("last", "clean", {"kind": "log", "log": "out"}),
        )
    }
    topics = {name: {"bootstrap": kafka.bootstrap, "create": {"partitions": 2}} for name in names.values()}
    return with_topics(ChainConfig.parse({"name": "orders", "topics": topics, "dataflows": flows}, source="a test"))


def test_topics_of_a_chain_are_made_written_and_read(registry: Registry, chain: ChainConfig, tmp_path: Path) -> None:
    LogNamespace.bind("/logs", tmp_path, registry=registry)
    graph = graph_of(chain)
    assert (graph.order, graph.problems) == (("first", "last"), ())
    assert problems_of(registry, chain) == []
    create_chain(registry, descriptor_of(chain, 1))
    create_between(registry, chain)
    create_between(registry, chain)
    for config in chain.dataflows.values():
        DataflowView(registry, config.name).submit(config, [], 1)
    ends = ends_of(registry, get_chain(registry, "orders"))
    assert generate(registry, ends, 7_000) == 2
    raw = next(iter(chain.topics))
    found = verify(registry, ends, within_s=0)
    assert [(chunk.stream, chunk.sent, chunk.lost) for chunk in found.chunks] == [
        (f"{raw}/0", 7_000, 7_000),
        (f"{raw}/1", 7_000, 7_000),
    ]
    last, first = (DataflowView(registry, chain.dataflows[key].name) for key in ("last", "first"))
    assert left_to_read(last, [edge.source for edge in graph.edges]) == ()
    assert left_to_read(first, ["src"]) == (f"src:{raw}/0", f"src:{raw}/1")
