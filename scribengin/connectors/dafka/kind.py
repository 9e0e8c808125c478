"""Topics of Dafka as a kind of connector. Its sockets are imported when they are needed: not everybody has pyzmq."""

from __future__ import annotations

from scribengin.connectors.contract import Sink, Source
from scribengin.connectors.dafka.config import DafkaSinkConfig, DafkaSourceConfig
from scribengin.connectors.log.holds import Holds
from scribengin.connectors.opening import Environment, Kind
from scribengin.dafka.config import require_sockets


def _open_source(name: str, config: DafkaSourceConfig, environment: Environment) -> Source:
    require_sockets()
    from scribengin.connectors.dafka.source import DafkaSource

    return DafkaSource(name, config, environment.has_tasks)


def _open_sink(name: str, config: DafkaSinkConfig, environment: Environment) -> Sink:
    require_sockets()
    from scribengin.connectors.dafka.sink import DafkaSink

    opened = (environment.registry, environment.clock, Holds(environment.nodes))
    return DafkaSink(name, config, *opened, looking=environment.looking, awaited=environment.submitted)


DAFKA = Kind(DafkaSourceConfig, DafkaSinkConfig, _open_source, _open_sink, packages=("zmq",))
