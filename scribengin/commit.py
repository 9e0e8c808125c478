"""What one commit says: the content of a stream's `commit-log` node, shared by the log store, connectors and dataflows.

Every source stream and every sink stream has one commit log. A round moves the commit logs of all streams of its task
in one transaction, each with a version check; that transaction *is* the commit. A sink's commit log names what the
last committed round made durable (`CommitDescriptor`), so that whoever finds staged output can tell whether it
belongs to a commit or not.
"""

from __future__ import annotations

from scribengin.model import Descriptor, JsonObject, Position
from scribengin_registry.contract import Registry, Set


class CommitDescriptor(Descriptor):
    """What one sink stream writer made durable and invisible. `data` is its connector's own."""

    kind: str
    records: int
    data: JsonObject


class CommitLog(Descriptor):
    """The data of a `commit-log` node.

    `lease` is the master's assignment under which the owner came, `epoch` grows with every take-over, `round` with
    every commit. `position` is set for a source stream (None: from the start that its config names). `committed` is
    set for a sink stream: the last thing committed here, carried over rounds that write nothing, because completing
    it is made durable only by the round that follows (None: nothing yet).
    """

    dataflow: str
    task: str
    owner: str
    lease: int
    epoch: int
    round: int
    position: Position | None = None
    committed: CommitDescriptor | None = None


def fence_commit_log(registry: Registry, path: str) -> CommitLog:
    """Rewrite a commit log so that no transaction prepared against it can succeed any more, then return what it says.

    For whoever finds a pending round without owning its task (`log recover`, a plain writer of the log): the order is
    fence, then look. Raises NodeMissing, VersionConflict (its owner just committed: look again), OutcomeUnknown.
    """
    node = registry.get(path)
    log = CommitLog.from_bytes(node.data, path=path)
    registry.commit([Set(path, log.to_bytes(), node.version)])
    return log
