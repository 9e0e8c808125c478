"""Topics of Kafka as a kind of connector. Its client is imported when it is needed: it is not installed everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors.contract import Attempt, Sink, Source
from scribengin.connectors.kafka.client.connection import KafkaConnectionConfig, require_client
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig, TopicConfig
from scribengin.connectors.kafka.source.config import KafkaSourceConfig
from scribengin.connectors.opening import Environment, Kind
from scribengin.errors import SourceMissing
from scribengin_registry.contract import Registry


def create_topic(config: KafkaConnectionConfig, topic: str, settings: TopicConfig) -> None:
    """Create the topic unless it is there. Raises ConfigInvalid (the client is not installed), SystemUnreachable."""
    require_client()
    from scribengin.connectors.kafka.sink.topic import Topic

    made = Topic(config, topic)
    if made.facts() is None:
        made.create(settings)


def _open_source(name: str, config: KafkaSourceConfig, environment: Environment) -> Source:
    require_client()
    from scribengin.connectors.kafka.source.source import KafkaSource

    return KafkaSource(name, config, environment.dataflow, environment.clock, environment.has_tasks)


def _open_sink(name: str, config: KafkaSinkConfig, environment: Environment) -> Sink:
    require_client()
    from scribengin.connectors.kafka.sink.sink import KafkaSink

    registry, dataflow, nodes = environment.registry, environment.dataflow, environment.nodes
    return KafkaSink(name, config, registry, dataflow=dataflow, nodes=nodes, clock=environment.clock)


def _append(_registry: Registry, config: KafkaSourceConfig, stream: str, batches: Iterable[pa.RecordBatch]) -> None:
    require_client()
    from scribengin.connectors.kafka.sink.current import CurrentTarget
    from scribengin.connectors.kafka.sink.records import Target
    from scribengin.connectors.kafka.sink.topic import Topic
    from scribengin.connectors.kafka.sink.writing import AtLeastOnceWriter

    topic, _, number = stream.rpartition("/")
    facts = Topic(config, topic).facts()
    if facts is None:
        raise SourceMissing(f"there is no topic {topic} at {config.bootstrap} any more")
    target = Target(topic, facts.partitions, int(number), facts.bytes_max, by_key=False, tombstones=False)
    current = CurrentTarget(lambda: target, SYSTEM_CLOCK)
    connection = {key: getattr(config, key) for key in KafkaConnectionConfig.model_fields}
    made = KafkaSinkConfig(kind="kafka", topic=topic, guarantee="at_least_once", **connection)
    with closing(AtLeastOnceWriter(current, made, Attempt(owner="append", epoch=0, commit_log=""))) as writer:
        for batch in batches:
            writer.write(batch)
            writer.prepare_commit()


KAFKA = Kind(KafkaSourceConfig, KafkaSinkConfig, _open_source, _open_sink, _append, packages=("confluent_kafka",))
