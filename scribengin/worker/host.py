"""What a worker takes from the process that it is: Spark, signals, how it ends. A simulator gives it others."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from scribengin.base.jvm import JvmUse
from scribengin.base.process.lifetime import end_at_once
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.opened import OpenDataflow, OpenedDataflow
from scribengin.dataflow.round.runner import RoundTransform
from scribengin.dataflow.round.state.query import StreamTransform
from scribengin.errors import NotNarrow, TransformationFailed
from scribengin.spark import runtime
from scribengin.spark.session.memory import beside_heap_mb
from scribengin.spark.stateful.transformation import load_transformation
from scribengin.spark.transform.transformation import Transformation

AnyTransform = RoundTransform | StreamTransform
"""The user's transformation: record by record, or with state."""


def start_spark(resources: OpenedDataflow, worker: str) -> AnyTransform:
    """A Spark session for `worker`, with the user's transformation in it. Raises what Spark and the user's code do."""
    config = resources.config
    session = runtime.start(
        f"{config.name}-{worker}",
        master=config.spark.master or f"local[{config.container.cores}]",
        memory_mb=config.container.memory_mb,
        beside_mb=beside_mb(config, resources.with_jvms()),
        conf=config.spark.conf,
    )
    transformation = load_transformation(resources.transformation_spec(), session)
    if isinstance(transformation, Transformation):
        with contextlib.suppress(NotNarrow, TransformationFailed):
            transformation.warm_up()  # what is suppressed is raised again by the first round, for its task's report
    return transformation


def beside_mb(config: DataflowConfig, with_jvms: Mapping[str, JvmUse]) -> int:
    """What a worker wants beside the heap of its Spark, where its sources and sinks `with_jvms` have JVMs; 0: nothing
    is said."""
    if config.state is None:
        return 0
    return beside_heap_mb(config.state.memory_mb, config.container.cores, with_jvms=bool(with_jvms))


def on_sigterm(told: Callable[[], None]) -> None:
    """Call `told` whenever this process is told to end. On the main thread."""
    signal.signal(signal.SIGTERM, lambda *_: told())


@dataclass(frozen=True, slots=True)
class WorkerHost:
    """The process around a worker. By default a real one."""

    open_dataflow: OpenDataflow = OpenedDataflow
    """Opens the sources and sinks of a config."""
    start_transform: Callable[[OpenedDataflow, str], AnyTransform] = start_spark
    """Starts what transforms, for the worker of that name."""
    on_termination: Callable[[Callable[[], None]], None] = on_sigterm
    """Has something called whenever the process is told to end."""
    end_at_once: Callable[[str, str, int], NoReturn] = end_at_once
    """Ends the process in the middle of whatever it does: the event, the words for it, the exit code."""


THIS_PROCESS = WorkerHost()
"""The process that this is."""
