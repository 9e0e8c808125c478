"""What one commit says: the content of a stream's `commit-log` node, shared by the log store, connectors and dataflows.

Every source stream and every sink stream has one commit log. A round moves the commit logs of all streams of its task
in one transaction, each with a version check; that transaction *is* the commit. A sink's commit log names what the
last committed round made durable (`CommitDescriptor`), so that whoever finds staged output can tell whether it
belongs to a commit or not.

A task with a transaction coordinator (a system whose own transaction must commit, as Kafka's) commits in three
steps: its commit logs say what they would become (`prepared`), the other system's transaction commits, carrying a
`Decision`, and the commit logs move. Whoever finds a prepared round asks the other system, after fencing it there, and
`resolve_prepared` says what follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator

from scribengin.base.model import Descriptor, JsonObject, Part, Position, indented, path_within
from scribengin.base.names import LOCKS
from scribengin.errors import ConfigInvalid, DecisionMissing
from scribengin_registry.contract import Registry, Set


def _of_commit_log(path: str) -> str:
    inside = path.removeprefix(f"{LOCKS}/")
    try:
        path_within(inside)
    except ValueError:
        raise ValueError(
            f"'{path}' is no commit log: those of dataflows stand below {LOCKS}, and others are named from the node of "
            "their namespace"
        ) from None
    return path


CommitLogPath = Annotated[str, AfterValidator(_of_commit_log)]
"""Where a node says that a commit log stands: below LOCKS, or, without a leading slash, below the namespace's node.
Whoever finds it believes what it says, and rewrites it to fence it."""


def check_commit_log(path: str | None) -> None:
    """Raises ConfigInvalid for what is no `CommitLogPath`."""
    try:
        if path is not None:
            _of_commit_log(path)
    except ValueError as error:
        raise ConfigInvalid(str(error)) from None


class CommitDescriptor(Descriptor):
    """What one sink stream writer made durable and invisible. `data` is its connector's own."""

    kind: str
    records: int
    data: JsonObject


class Decision(Descriptor):
    """Names one round in the words of the transaction coordinator: what its transaction says there once it has
    committed.

    `coordinator` is where it says so (of Kafka: the group). `epoch` is that under which the round was prepared. Epoch
    and round 0 stand for no round at all.
    """

    coordinator: str
    epoch: int
    round: int


class QueryBatch(Part):
    """Of a task with state: the last batch of its streaming query that was committed, as a source stream's commit log
    says it. `position` there is where the batch's range ended."""

    checkpoint: str
    """The name of the checkpoint, where the query has its state."""
    number: int = -1
    """What the query calls the batch; -1: none was committed yet."""
    start: Position | None = None
    """Where the batch's range of this stream began; None: it had none."""


class PreparedRound(Descriptor):
    """What a commit log becomes if the transaction coordinator has committed `decision`.

    `verdict` is for operators, and believed only where the transaction coordinator does not know any more.
    """

    decision: Decision
    position: Position | None = None
    batch: QueryBatch | None = None
    committed: CommitDescriptor | None = None
    verdict: Literal["committed", "rolled back"] | None = None


class CommitLog(Descriptor):
    """The data of a `commit-log` node.

    `generation` is the master's assignment under which the owner came, `epoch` grows with every take-over, `round` with
    every commit. `position` is set for a source stream (None: from the start that its config names). `committed` is
    set for a sink stream: the last thing committed here, carried over rounds that write nothing, because completing
    it is made durable only by the round that follows (None: nothing yet).

    `batch` is set for a source stream of a task with state.

    `prepared` is a round that a transaction coordinator decides about: until it has, nobody may complete or roll back
    what is staged here. `decided` is the last such round that came to be.
    """

    format: int = 2
    dataflow: str
    task: str
    owner: str
    generation: int
    epoch: int
    round: int
    position: Position | None = None
    batch: QueryBatch | None = None
    committed: CommitDescriptor | None = None
    prepared: PreparedRound | None = None
    decided: Decision | None = None

    def to_bytes(self) -> bytes:
        """JSON without `batch` where there is none: most tasks have no state."""
        value = self.model_dump(mode="json")
        for part in (value, value["prepared"]):
            if part is not None and part["batch"] is None:
                del part["batch"]
        return indented(value)

    def preparing(self, moved: CommitLog, decision: Decision) -> CommitLog:
        """This commit log, saying that it would become `moved`."""
        prepared = PreparedRound(
            decision=decision, position=moved.position, batch=moved.batch, committed=moved.committed
        )
        return self.model_copy(update={"prepared": prepared})

    def forward(self) -> CommitLog:
        """This commit log after the prepared round, which has committed."""
        if (prepared := self.prepared) is None:
            return self
        moved = {"position": prepared.position, "batch": prepared.batch, "committed": prepared.committed}
        moved_on = {**moved, "round": prepared.decision.round}
        return self.model_copy(update={**moved_on, "decided": prepared.decision, "prepared": None})

    def back(self) -> CommitLog:
        """This commit log without the prepared round, which never came to be."""
        return self.model_copy(update={"prepared": None})


@dataclass(frozen=True, slots=True)
class Resolution:
    """What follows from the word of the transaction coordinator.

    `changed` are the commit logs that must be written, `forward` says which way; `last` is the decision that then
    holds, and `missing` whether the transaction coordinator has to be told of it again.
    """

    changed: Mapping[str, CommitLog]
    forward: bool
    last: Decision
    missing: bool


def resolve_prepared(logs: Mapping[str, CommitLog], coordinator: str, said: Decision | None) -> Resolution:
    """Decide about a prepared round, if there is one, from what the transaction coordinator says was its last (None:
    nothing).

    The commit logs were fenced, and then the transaction coordinator: nothing can be committed there any more by
    anybody else. That it says nothing is never taken for "not committed": an owner tells it of the last decision before
    it prepares anything, so it must have forgotten. Raises DecisionMissing.
    """
    prepared = {path: log.prepared for path, log in logs.items() if log.prepared is not None}
    known = [log.decided for log in logs.values() if log.decided is not None and log.decided.coordinator == coordinator]
    last = max(
        known, key=lambda one: (one.round, one.epoch), default=Decision(coordinator=coordinator, epoch=0, round=0)
    )
    if not prepared:
        if said not in (None, last):
            raise DecisionMissing(_contradiction(coordinator, said, last, sorted(logs)))
        return Resolution({}, forward=False, last=last, missing=said is None)
    decisions = {one.decision.to_bytes(): one.decision for one in prepared.values()}
    wanted = next(iter(decisions.values()))
    verdicts = {one.verdict for one in prepared.values() if one.verdict is not None}
    if len(decisions) > 1 or wanted.coordinator != coordinator:
        raise DecisionMissing(_several(coordinator, sorted(prepared), list(decisions.values())))
    if said == wanted or (said is None and verdicts == {"committed"}):
        changed = {path: logs[path].forward() for path in prepared}
        return Resolution(changed, forward=True, last=wanted, missing=said is None)
    if said == last or (said is None and verdicts == {"rolled back"}):
        changed = {path: logs[path].back() for path in prepared}
        return Resolution(changed, forward=False, last=last, missing=said is None)
    raise DecisionMissing(_undecided(coordinator, said, wanted, last, sorted(prepared)))


def fence_commit_log(registry: Registry, path: str) -> CommitLog:
    """Rewrite a commit log so that no transaction prepared against it can succeed any more, then return what it says.

    For whoever finds a pending round without owning its task (`log recover`, a plain writer of the log): the order is
    fence, then look. A round that is `prepared` there is not theirs to judge. Raises NodeMissing, VersionConflict (its
    owner just committed: look again), OutcomeUnknown.
    """
    node = registry.get(path)
    log = CommitLog.from_bytes(node.data, path=path)
    registry.commit([Set(path, log.to_bytes(), node.version)])
    return log


def _told(decision: Decision | None) -> str:
    return "nothing" if decision is None else f"round {decision.round} of epoch {decision.epoch}"


def _undecided(coordinator: str, said: Decision | None, wanted: Decision, last: Decision, paths: list[str]) -> str:
    return (
        f"{_told(wanted)} is prepared, and only '{coordinator}' can say whether it was committed there; it should "
        f"say so, or name {_told(last)}, and says {_told(said)}: its memory has expired, was deleted, or was "
        f"brought back from a copy. Look into the sink whether the output of that round is there (a reader of "
        f"committed records sees all of it or nothing), delete what '{coordinator}' says if it says anything, and "
        "write the answer, "
        f'"verdict": "committed" or "verdict": "rolled back", into `prepared` of {paths[0]}'
    )


def _contradiction(coordinator: str, said: Decision | None, last: Decision, paths: list[str]) -> str:
    return (
        f"'{coordinator}' says that {_told(said)} was committed, and the registry knows of {_told(last)}: one of the "
        f"two was brought back from an older copy, or a broker that was killed lost it. Bring both to the same state, "
        f"and set the positions in the commit logs ({paths[0]}, ...) by hand if need be; then delete what "
        f"'{coordinator}' says"
    )


def _several(coordinator: str, paths: list[str], decisions: list[Decision]) -> str:
    told = ", ".join(f"{_told(one)} of '{one.coordinator}'" for one in decisions)
    return (
        f"commit logs that move together wait for {told}, and '{coordinator}' decides here; restore {', '.join(paths)}"
    )
