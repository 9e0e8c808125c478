"""How much memory a worker gets where nobody has said it: by the stores that its logs lie on. Pure."""

from __future__ import annotations

from collections.abc import Collection

from scribengin.dataflow.config import DataflowConfig

JVM_MB = 512
"""For each core, and so for each of Spark's Python processes. A JVM takes about 200 MB, and of what a container has
more Spark's heap gets half. What the worker's own JVM takes the default has room for: 3,072 MB held with two cores."""


def planned(config: DataflowConfig, with_jvms: Collection[str]) -> DataflowConfig:
    """The config, with room in its containers for what its sources and sinks `with_jvms` need: a JVM in the worker, and
    one in each Python process of its Spark, of which there is one a core. What the user has said stays."""
    container = config.container
    if not with_jvms or "memory_mb" in container.model_fields_set:
        return config
    room_mb = container.memory_mb + JVM_MB * container.cores
    return config.model_copy(update={"container": container.model_copy(update={"memory_mb": room_mb})})


def memory_note(config: DataflowConfig, with_jvms: Collection[str]) -> str:
    """For people: why a worker's memory is what it is; "" where it is as the config says."""
    if planned(config, with_jvms) is config:
        return ""
    more = JVM_MB * config.container.cores
    return f"{more:,} of them for the JVMs that {', '.join(with_jvms)} take; set container.memory_mb for another number"
