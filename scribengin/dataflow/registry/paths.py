"""Where everything stands in the registry: the tree of docs/internals/registry.md. Pure functions of names."""

from __future__ import annotations

from dataclasses import dataclass

from scribengin.base.model import from_node_name, node_name
from scribengin.base.names import DATAFLOWS as DATAFLOWS
from scribengin.base.names import LOCKS
from scribengin.base.names import ROOT as ROOT

NUMBERS = f"{ROOT}/numbers"
"""What numbers have been used by dataflows that were deleted; below it by their names."""
SOURCES = f"{LOCKS}/sources"
"""Below it every source of a dataflow has its node, and below that every stream."""
SINKS = f"{LOCKS}/sinks"
"""Below it every physical sink has its node, and below that every stream."""

_DELETION = "deletion-"


@dataclass(frozen=True, slots=True)
class DataflowPaths:
    """The nodes of one dataflow."""

    dataflow: str

    @property
    def root(self) -> str:
        return f"{DATAFLOWS}/{node_name(self.dataflow)}"

    @property
    def config(self) -> str:
        return f"{self.root}/config"

    @property
    def status(self) -> str:
        return f"{self.root}/status"

    @property
    def config_in_force(self) -> str:
        return f"{self.root}/config-in-force"

    @property
    def master(self) -> str:
        """The election: a node a candidate."""
        return f"{self.root}/master"

    @property
    def history(self) -> str:
        return f"{self.root}/history"

    @property
    def origin(self) -> str:
        return f"{self.root}/origin"

    @property
    def edits(self) -> str:
        return f"{self.root}/edits"

    def edit(self, version: int) -> str:
        return f"{self.edits}/{version:010d}"

    @property
    def task_descriptors(self) -> str:
        return f"{self.root}/task-descriptors"

    @property
    def placement(self) -> str:
        return f"{self.root}/placement"

    @property
    def workers(self) -> str:
        return f"{self.root}/workers"

    @property
    def containers(self) -> str:
        return f"{self.root}/containers"

    def deletion(self, mark: str) -> str:
        """Stands while the dataflow is `deleting`; no other deletion has the same mark."""
        return f"{self.root}/{_DELETION}{mark}"

    def is_deletion(self, path: str) -> bool:
        return path.startswith(f"{self.root}/{_DELETION}")

    def task_descriptor(self, task: str) -> str:
        return f"{self.task_descriptors}/{node_name(task)}"

    def worker(self, worker: str) -> str:
        return f"{self.workers}/{node_name(worker)}"

    def session(self, worker: str) -> str:
        """The ephemeral node of a worker that lives."""
        return f"{self.worker(worker)}/session"

    def report(self, worker: str) -> str:
        return f"{self.worker(worker)}/report"

    def executor(self, worker: str, executor: str) -> str:
        return f"{self.worker(worker)}/{node_name(executor)}"

    def assignment(self, worker: str, executor: str, task: str) -> str:
        return f"{self.executor(worker, executor)}/{node_name(task)}"

    def source_stream(self, source: str, stream: str) -> str:
        """The parent of a source stream's `lock` and `commit-log`: positions belong to (dataflow, source stream)."""
        return source_stream(self.dataflow, source, stream)

    @property
    def all_gone_streams(self) -> str:
        """Below it every source has its node, of which streams have no nodes any more."""
        return f"{self.root}/gone-streams"

    def gone_streams(self, source: str) -> str:
        """The parent of the pages that say where the streams of a source were read up to that have no nodes any more
        (gone_streams.py)."""
        return f"{self.all_gone_streams}/{node_name(source)}"

    def gone_page(self, source: str, number: int) -> str:
        return f"{self.gone_streams(source)}/page-{number:06d}"


def numbers_of_name(dataflow: str) -> str:
    """What dataflows of that name that were deleted have used."""
    return f"{NUMBERS}/{node_name(dataflow)}"


def source_stream(dataflow: str, source: str, stream: str) -> str:
    """The parent of a source stream's `lock` and `commit-log`: positions belong to (dataflow, source stream)."""
    return f"{source_streams(dataflow, source)}/{node_name(stream)}"


def source_streams(dataflow: str, source: str) -> str:
    """The node of a source: every stream of it that was read has its own below that, unless it is gone. Its version is
    the source's era (gone_streams.py)."""
    return f"{SOURCES}/{node_name(f'{dataflow}.{source}')}"


def source_and_stream(stream_path: str) -> tuple[str, str] | None:
    """The source, and the name of its stream, whose nodes stand there. None: it is a sink's."""
    if not stream_path.startswith(f"{SOURCES}/"):
        return None
    node, _, stream = stream_path.removeprefix(f"{SOURCES}/").partition("/")
    return from_node_name(node).split(".", 1)[1], from_node_name(stream)


def reader_of_source(node: str) -> str:
    """The dataflow that a child of SOURCES belongs to."""
    return from_node_name(node).split(".", 1)[0]


def sink_resource(resource: str) -> str:
    """The node of a physical sink; its data names the dataflow that owns it."""
    return f"{SINKS}/{node_name(resource)}"


def sink_stream(resource: str, stream: str) -> str:
    """The parent of a sink stream's `lock` and `commit-log`."""
    return f"{sink_resource(resource)}/{node_name(stream)}"


def lock(stream_path: str) -> str:
    """The ephemeral node of a stream's owner."""
    return f"{stream_path}/lock"


def commit_log(stream_path: str) -> str:
    """The stream's commit log."""
    return f"{stream_path}/commit-log"


class _StreamNodes:
    """The functions above, as connectors are handed them."""

    def source_stream(self, dataflow: str, source: str, stream: str) -> str:
        return source_stream(dataflow, source, stream)

    def sink_stream(self, resource: str, stream: str) -> str:
        return sink_stream(resource, stream)

    def commit_log(self, stream_path: str) -> str:
        return commit_log(stream_path)


STREAM_NODES = _StreamNodes()
"""For the `Environment` of whoever opens a connector."""
