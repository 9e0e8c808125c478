"""The kinds of connectors there are: a new one is one entry here."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from scribengin.connectors.contract import Sink, SinkConfig, Source, SourceConfig
from scribengin.connectors.dafka.kind import DAFKA
from scribengin.connectors.files.kind import FILES
from scribengin.connectors.kafka.kind import KAFKA
from scribengin.connectors.log.kind import LOG
from scribengin.connectors.opening import Environment, Kind
from scribengin.connectors.spark.kind import SPARK

KINDS: dict[str, Kind] = {"log": LOG, "hdfs": FILES, "kafka": KAFKA, "spark": SPARK, "dafka": DAFKA}
"""By the `kind` of their configurations."""

if TYPE_CHECKING:
    AnySourceConfig = SourceConfig
    AnySinkConfig = SinkConfig
else:  # what is read: one of the table's, told by its `kind`
    AnySourceConfig = Annotated[reduce(or_, (kind.source for kind in KINDS.values())), Field(discriminator="kind")]
    AnySinkConfig = Annotated[reduce(or_, (kind.sink for kind in KINDS.values())), Field(discriminator="kind")]


def open_source(name: str, config: SourceConfig, environment: Environment) -> Source:
    """The source of that name. Raises ConfigInvalid, NamespaceNotBound; SourceMissing comes later."""
    return KINDS[config.kind].open_source(name, config, environment)


def open_sink(name: str, config: SinkConfig, environment: Environment) -> Sink:
    """The sink of that name. Creates nothing. Raises ConfigInvalid, NamespaceNotBound, InvalidLogName."""
    return KINDS[config.kind].open_sink(name, config, environment)
