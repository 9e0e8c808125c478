"""How much memory a worker gets where nobody has said it: by the stores that its logs lie on, and by its state."""

from __future__ import annotations

from collections.abc import Mapping

from scribengin.base.jvm import JvmUse
from scribengin.connectors.log.source import NOUN as LOG
from scribengin.dataflow.config import ContainerConfig, DataflowConfig, StateConfig
from scribengin.log import NamespaceDescriptor, NamespaceUri
from scribengin.spark.session.memory import memory_mb_min
from scribengin_registry.contract import Registry

JVM_MB = 512
"""For each core, and so for each of Spark's Python processes. A JVM takes about 200 MB, and of what a container has
more Spark's heap gets half. What the worker's own JVM takes the default has room for: 3,072 MB held with two cores."""


def planned(config: DataflowConfig, with_jvms: Mapping[str, JvmUse]) -> DataflowConfig:
    """The config, with room in its containers for what its sources and sinks `with_jvms` need: a JVM in the worker, and
    one in each Python process of its Spark, of which there is one a core. And for `state.memory_mb`, if that is more
    than by default. What the user has said stays."""
    container = config.container
    more_mb = _of_jvms_mb(config, with_jvms) + _of_state_mb(config, with_jvms)
    if not more_mb or "memory_mb" in container.model_fields_set:
        return config
    room_mb = container.memory_mb + more_mb
    return config.model_copy(update={"container": container.model_copy(update={"memory_mb": room_mb})})


def memory_note(config: DataflowConfig, with_jvms: Mapping[str, JvmUse]) -> str:
    """For people: why a worker's memory is what it is, or that it is too little; "" where it is as the config says."""
    if planned(config, with_jvms) is config:
        return _too_little(config, with_jvms)
    jvms, of_state = _of_jvms_mb(config, with_jvms), _of_state_mb(config, with_jvms)
    names = ", ".join(name for name, use in with_jvms.items() if use == "all")
    takes = [f"{jvms:,} of them for the JVMs that {names} take"] if jvms else []
    takes += [f"{of_state:,} of them for state"] if of_state else []
    return f"{', '.join(takes)}; set container.memory_mb for another number"


def _of_jvms_mb(config: DataflowConfig, with_jvms: Mapping[str, JvmUse]) -> int:
    """For those that are for what is open alone the default has room, unless there is state."""
    return JVM_MB * config.container.cores if "all" in with_jvms.values() else 0


def _of_state_mb(config: DataflowConfig, with_jvms: Mapping[str, JvmUse]) -> int:
    """What state takes beyond what the default of a container has room for, with the JVMs that `_of_jvms_mb` leaves
    out."""
    if config.state is None:
        return 0
    state_mb = config.state.memory_mb
    least = memory_mb_min(state_mb, config.container.cores, with_jvms="open" in with_jvms.values())
    return max(state_mb - StateConfig().memory_mb, least - ContainerConfig().memory_mb, 0)


def _too_little(config: DataflowConfig, with_jvms: Mapping[str, JvmUse]) -> str:
    state, container = config.state, config.container
    if state is None:
        return ""
    least = memory_mb_min(state.memory_mb, container.cores, with_jvms=bool(with_jvms))
    if container.memory_mb >= least:
        return ""
    jvms = f", and the JVMs that {', '.join(with_jvms)} take," if with_jvms else ""
    return (
        f"and with {state.memory_mb:,} for state{jvms} it will be ended for holding more once there is as much: set "
        f"container.memory_mb to {least:,}, or less for state.memory_mb"
    )


def with_room(registry: Registry, config: DataflowConfig) -> DataflowConfig:
    """The config of somebody who has said no memory, `planned` by what the registry says of its logs. Of who has, it is
    as it was. Raises what the registry raises."""
    said = "memory_mb" in config.container.model_fields_set
    return config if said else planned(config, _on_jvms(registry, config))


def with_other_needs(registry: Registry, config: DataflowConfig, before: DataflowConfig) -> DataflowConfig:
    """The config, which has other cores than `before`, or another `state.memory_mb`: who had the default of memory gets
    what it is now. Raises what the registry raises."""
    with_jvms = _on_jvms(registry, config)
    default_mb = planned(_unsaid(before), with_jvms).container.memory_mb
    return planned(_unsaid(config), with_jvms) if before.container.memory_mb == default_mb else config


def _unsaid(config: DataflowConfig) -> DataflowConfig:
    return config.model_copy(update={"container": ContainerConfig(cores=config.container.cores)})


def _on_jvms(registry: Registry, config: DataflowConfig) -> dict[str, JvmUse]:
    """As `OpenedDataflow.with_jvms`, but nothing is opened: whoever edits need not reach what a dataflow reads."""
    ends = {f"sources.{name}": one.endpoint() for name, one in config.sources.items()}
    ends |= {f"sinks.{name}": one.endpoint() for name, one in config.sinks.items()}
    uses = {name: _jvm_use(registry, end.system) for name, end in ends.items() if end.noun == LOG}
    return {name: use for name, use in uses.items() if use is not None}


def _jvm_use(registry: Registry, namespace: str) -> JvmUse | None:
    root = registry.hosts.partition("/")[2]
    path = NamespaceUri.parse(namespace).path
    node = registry.find(path.removeprefix(f"/{root}") if root and "://" in namespace else path)
    if node is None or not node.data:
        return None
    return NamespaceDescriptor.from_bytes(node.data, path=path).jvm_a_process
