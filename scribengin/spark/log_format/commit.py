"""Appending the output of a Spark job to logs: all of it or nothing, and that of a stream's micro-batch once.

A job's output is staged in its logs (docs/internals/log-store.md) and becomes part of them by one registry
transaction, which moves the commit log of each. Commit logs stand below `<namespace>/spark/<writer>`, their `round` is
the number after that of the last micro-batch written, and their `owner` the query that it was of: micro-batches are
counted by a checkpoint, and another one begins at 0 again.

| step | a crash, or a lost reply, leaves |
|---|---|
| commit logs are created, if there are none | nodes that say nothing |
| the logs are opened, in the order of their names | nothing |
| the output is staged and made durable | staged entries that no commit log names: the next writer rolls them back |
| one transaction moves all commit logs | nothing, or everything |
| each log shows what its commit log names | a log that does not show it yet: its next writer does, whoever it is |

The mistake to avoid: looking at a commit log before the logs are one's own. Opening a log settles what another writer
left there, after fencing it; only then what a commit log says stays true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial

import pyarrow as pa

from scribengin.base.commit_log import CommitDescriptor, CommitLog
from scribengin.base.failpoints import failpoint
from scribengin.base.model import node_name
from scribengin.errors import Fenced, LogError
from scribengin.log import LogNamespace, LogWriter, StagedRange
from scribengin_registry.compare_and_set import win_race
from scribengin_registry.contract import Registry, Set
from scribengin_registry.errors import NodeExists, NodeMissing, RegistryError, VersionConflict

KIND = "log"
_TRIES_MAX = 5

Output = Callable[[str], Iterable[pa.RecordBatch]]
"""The batches of a log, in order, by its name. It may be asked again."""


class JobCommit:
    """Commits what one writer (a stream, or a single job) has for its logs. `writer` names it for ever; `query` is what
    its checkpoint is called."""

    def __init__(
        self,
        namespace: LogNamespace,
        registry: Registry,
        writer: str,
        logs: Sequence[str],
        *,
        query: str,
        timeout_s: float,
    ) -> None:
        self._namespace = namespace
        self._registry = registry
        self._timeout_s = timeout_s
        self._writer = writer
        self._query = query
        self._logs = sorted(logs)  # two writers that wait for each other's logs would wait for ever
        self._folder = f"spark/{node_name(writer)}"

    def commit(self, number: int, output: Output) -> None:
        """Append the output of micro-batch `number`, unless it was appended before. Afterwards everybody can see it.

        Raises OwnershipAcquireFailed (somebody else writes a log), LogError (an older micro-batch, or that of another
        checkpoint; rows that are no records), LogNotFound, LogWriteFailed, Fenced, and what the registry raises. Then
        nothing was appended, unless it raises after the transaction: then the same call again says what became of it.
        """
        races = (VersionConflict, NodeExists, NodeMissing, Fenced)
        win_race(partial(self._commit, number, output), races=races, registry=self._registry, tries_max=_TRIES_MAX)

    def forget(self) -> None:
        """Delete the commit logs of a writer that is done. After `commit` returned, no log needs them.

        That may fail: the job has committed, and must not be done again because a few nodes are left.
        """
        with suppress(RegistryError):
            self._registry.delete(f"{self._namespace.path}/{self._folder}", recursive=True)

    def forget_unless_committed(self) -> None:
        """Delete the commit logs of a single job that has failed, if they say nothing and no log needs them. Those of a
        job that has committed stay, for its logs to show what it wrote; and while a log was left unfinished with staged
        entries, its next writer asks, and takes no silence for an answer. It may fail, as in `forget`."""
        with suppress(RegistryError, LogError):
            self._registry.sync()
            there = [log for log in self._logs if self._registry.find(self._node(log))]
            if all(self._read(log)[0].round == 0 and not self._asks(log) for log in there):
                self.forget()

    def _asks(self, log: str) -> bool:
        return self._namespace.exists(log) and self._namespace.commit_log_of(log) == self._node(log)

    def _commit(self, number: int, output: Output) -> None:
        self._create_commit_logs()
        with ExitStack() as stack:
            writers = {log: stack.enter_context(self._open(log)) for log in self._logs}
            before = {log: self._read(log) for log in self._logs}
            last = max((commit_log for commit_log, _version in before.values()), key=lambda found: found.round)
            self._check_query(last)
            if number < last.round:
                self._check_repeated(number, last.round)
                return
            staged = self._stage(writers, output)
            moves = [self._move(log, *before[log], staged[log], number) for log in self._logs]
            with failpoint("spark.log_commit"):
                self._registry.commit(moves)
            for log, prepared in staged.items():
                if prepared is not None:
                    writers[log].commit_staged(prepared)

    def _open(self, log: str) -> LogWriter:
        commit_log = f"{self._folder}/{node_name(log)}"
        return self._namespace.open_writer(log, timeout_s=self._timeout_s, commit_log=commit_log)

    def _stage(self, writers: dict[str, LogWriter], output: Output) -> dict[str, StagedRange | None]:
        try:
            for log, writer in writers.items():
                for batch in output(log):
                    writer.stage(batch)
            return {log: writer.prepare() for log, writer in writers.items()}
        except BaseException:
            with suppress(LogError, RegistryError):  # the next writer does it, if this one cannot
                for writer in writers.values():
                    writer.rollback_staged()
            raise

    def _move(self, log: str, before: CommitLog, version: int, staged: StagedRange | None, number: int) -> Set:
        committed = before.committed
        if staged is not None:
            data = staged.model_dump(mode="json")
            committed = CommitDescriptor(kind=KIND, records=staged.records, data=data)
        after = before.model_copy(update={"owner": self._query, "round": number + 1, "committed": committed})
        return Set(self._node(log), after.to_bytes(), version)

    def _check_query(self, last: CommitLog) -> None:
        if last.round and last.owner != self._query:
            raise LogError(
                f"the writer '{self._writer}' is query {last.owner}'s, which wrote its micro-batch {last.round - 1}; "
                f"this is query {self._query}, with another checkpoint, whose micro-batches are counted from 0 again. "
                f"Go on with the checkpoint of {last.owner}, or give the stream another writerId; then see that its "
                "source begins where the other query ended, or rows are written twice"
            )

    def _check_repeated(self, number: int, done: int) -> None:
        if number < done - 1:
            raise LogError(
                f"micro-batch {number} of the writer '{self._writer}' comes after micro-batch {done - 1} was written: "
                "its checkpoint was deleted, or is an old copy; what it is about to write stands in the logs already, "
                "or give the stream another writerId"
            )

    def _create_commit_logs(self) -> None:
        for log in self._logs:
            if self._registry.find(self._node(log)) is None:
                empty = CommitLog(dataflow=f"spark/{self._writer}", task=log, owner="", generation=0, epoch=0, round=0)
                self._registry.create(self._node(log), empty.to_bytes(), parents=True)

    def _read(self, log: str) -> tuple[CommitLog, int]:
        node = self._registry.get(self._node(log))
        return CommitLog.from_bytes(node.data, path=self._node(log)), node.version

    def _node(self, log: str) -> str:
        return f"{self._namespace.path}/{self._folder}/{node_name(log)}"
