"""What belongs to nobody, over the registry, the log stores and this machine: found, and removed if asked for.

Everything is made by somebody who then writes down that it is his, or taken down by somebody who has struck it out
before. A crash between the two leaves it. So a suspect is listed first, and who it could belong to is looked up
afterwards; and what is younger than an hour may be about to be written down.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.commit_log import CommitLog
from scribengin.base.model import from_node_name
from scribengin.connectors.log.reaching import open_namespace
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.config_node import owner_of_resource
from scribengin.dataflow.registry.view import OPERATIONS_PER_TRANSACTION_MAX, DataflowView, dataflow_names
from scribengin.dataflow.round.checkpoints import (
    OUT_OF_REACH,
    Checkpoints,
    FoundCheckpoint,
    checkpoint_root,
    checkpoints_below,
    named_checkpoints,
    registry_begun_ms,
)
from scribengin.errors import (
    ChainNotFound,
    ConfigInvalid,
    DataflowNotFound,
    DescriptorUnreadable,
    LogNotFound,
)
from scribengin.launcher.local.launcher import LocalLauncher
from scribengin.log import LogDescriptor, LogNamespace, NamespaceDescriptor, RetentionHold
from scribengin.operations.chain.registry import chain_names, get_chain
from scribengin.operations.registry.leftover_claims import asked_for, claim_remains, next_step_of, unclaimed_files
from scribengin_registry.compare_and_set import RACES
from scribengin_registry.contract import Check, Create, Delete, Node, Operation, Registry
from scribengin_registry.errors import NodeExists, NodeMissing, NotAuthorised

SETTLED_S = 3600.0
"""What is younger may be in the making."""
_DEPTH_MAX = 6
_INDEX_DRAFT = re.compile(r".+\.(?:idx|keys)-\d+")
_SINGLE_JOB = re.compile(r"job-[0-9a-f]{32}")
_RESTORE = "restore it from a backup, or delete it by hand"


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that belongs to nobody: `what` and where, for people. `remove` is None where people have to decide;
    then `next_step` says how."""

    kind: str
    what: str
    remove: Callable[[], object] | None = None
    next_step: str = ""

    @property
    def line(self) -> str:
        """The whole, for people."""
        return f"{self.kind}: {self.what}" + (f"; {self.next_step}" if self.next_step else "")


def leftovers(registry: Registry, home: Path, clock: Clock = SYSTEM_CLOCK) -> Iterator[Leftover]:
    """Everything of this registry, of its log stores and of this machine that belongs to nobody. Changes nothing."""
    yield from _of_dataflows(registry, clock.now_ms() / 1000)
    for error in _chains_to_come(registry)[1].values():
        yield Leftover("unreadable", error, next_step=_RESTORE)
    for path, files in unclaimed_files(registry, home):
        step = "nobody can say whether they were committed: keep what you need of them, and remove the rest by hand"
        yield Leftover("unclaimed files", f"{files} below {path}, which no claim names", next_step=step)
    for path, descriptor in namespaces(registry):
        yield from _of_namespace(registry, path, descriptor, clock.now_ms() / 1000)
    yield from _containers(registry, home)
    yield from _checkpoints(registry, home, clock.now_ms() / 1000)


def namespaces(
    registry: Registry, path: str = "/", depth: int = _DEPTH_MAX
) -> Iterator[tuple[str, NamespaceDescriptor]]:
    """The namespaces of logs below a node, with what each is bound to. What others have, and keep for themselves, is
    none: anybody may read nodes of ours."""
    try:
        names = _children(registry, path)
    except NotAuthorised:
        return
    for name in names:
        child = f"{path.rstrip('/')}/{name}"
        if depth == 0 or child in (paths.ROOT, "/zookeeper"):
            continue
        try:
            node = registry.find(child)
        except NotAuthorised:
            continue
        try:
            yield child, NamespaceDescriptor.from_bytes(node.data if node else b"", path=child)
        except DescriptorUnreadable:
            yield from namespaces(registry, child, depth - 1)


def _of_dataflows(registry: Registry, now_s: float) -> Iterator[Leftover]:
    """Positions and claims of dataflows that are not there, and dataflows that are half deleted."""
    sources = {child: paths.reader_of_source(child) for child in _children(registry, paths.SOURCES)}
    claims = {path: registry.find(path) for path in (f"{paths.SINKS}/{c}" for c in _children(registry, paths.SINKS))}
    there = dataflow_names(registry)
    for child, owner in sources.items():
        if owner not in there:
            remove = partial(_delete_positions, registry, f"{paths.SOURCES}/{child}", owner)
            yield Leftover("positions", f"{from_node_name(child)}, of dataflow '{owner}', which is not there", remove)
    logs = [path for path, _ in namespaces(registry)]
    for path, node in claims.items():
        if node is not None and not _is_owned(registry, path, node, there, now_s):
            yield from _of_claim(registry, path, node, logs)
    for name in there:
        with suppress(DataflowNotFound, DescriptorUnreadable):
            if DataflowView(registry, name).status().state == "deleting":
                yield Leftover(
                    "dataflow",
                    f"the deletion of '{name}' was cut short",
                    next_step=f"`scribengin delete {name}` ends it",
                )


def _is_owned(registry: Registry, claim: str, node: Node, there: Sequence[str], now_s: float) -> bool:
    """Whether a dataflow that is there has the sink. Where the node names none, a chain may be about to start it; and
    one that has written there has it still, whoever has harmed the node."""
    owner = owner_of_resource(node)
    if owner:
        return owner in there
    if now_s - node.modified_ms / 1000 < SETTLED_S:
        return True
    logs = [paths.commit_log(f"{claim}/{child}") for child in _children(registry, claim)]
    with suppress(DescriptorUnreadable):  # that is told
        written = [CommitLog.from_bytes(log.data, path=claim) for log in registry.find_all(logs) if log is not None]
        return any(log.dataflow in there for log in written)
    return False


def _of_claim(registry: Registry, claim: str, node: Node, logs: Sequence[str]) -> Iterator[Leftover]:
    """The sink of a dataflow that is not there: files that it never output, then, if nothing waits there, the claim."""
    owner = owner_of_resource(node)
    remains = claim_remains(registry, claim, owner, logs)
    if not _is_unclaimed(registry, claim, node):
        return  # somebody has it now
    gone = f"of dataflow '{owner}', which is not there" if owner else "which names no dataflow"
    for found in remains.files:
        remove = partial(_unless_claimed, registry, claim, node, found.remove_strays)
        yield Leftover("staged files", f"{len(found.strays)} in {found.directory}, {gone}", remove)
    what = f"{from_node_name(claim.rpartition('/')[2])}, {gone}"
    if remains.awaited is None:
        yield Leftover("claim", what, partial(_delete_claim, registry, claim, node))
    else:
        why, next_step = remains.awaited
        yield Leftover("claim", f"{what}; {why}", next_step=next_step)


def _is_unclaimed(registry: Registry, claim: str, seen: Node) -> bool:
    found = registry.find(claim)
    same = found is not None and found.version == seen.version
    return same and owner_of_resource(seen) not in dataflow_names(registry)


def _unless_claimed(registry: Registry, claim: str, seen: Node, remove: Callable[[], object]) -> None:
    if _is_unclaimed(registry, claim, seen):
        remove()


def _delete_claim(registry: Registry, claim: str, seen: Node) -> None:
    """Unless somebody has claimed the sink: each of the transactions holds that the node is as it was seen."""
    if _is_unclaimed(registry, claim, seen):
        absence = _absence(registry, owner_of_resource(seen))
        _delete_holding(registry, claim, [Check(claim, seen.version), *absence])


def _delete_positions(registry: Registry, path: str, owner: str) -> None:
    _delete_holding(registry, path, _absence(registry, owner))


def _absence(registry: Registry, dataflow: str) -> list[Operation]:
    """What can be applied only as long as the dataflow is not there, and changes nothing."""
    if not dataflow:
        return []
    root = paths.DataflowPaths(dataflow).root
    if registry.find(paths.DATAFLOWS) is None:
        with suppress(NodeExists):
            registry.create(paths.DATAFLOWS, parents=True)
    return [Create(root), Delete(root)]


def _delete_holding(registry: Registry, path: str, held: Sequence[Operation]) -> None:
    """Delete a node and all below it, as long as those operations can be applied, too. What then stays, because
    somebody has come, or was as quick, is found the next time if it is nobody's still."""
    gone = list(_deepest_first(registry, path))
    with suppress(*RACES):
        for start in range(0, len(gone), OPERATIONS_PER_TRANSACTION_MAX):
            registry.commit([*held, *map(Delete, gone[start : start + OPERATIONS_PER_TRANSACTION_MAX])])


def _deepest_first(registry: Registry, path: str) -> Iterator[str]:
    for child in _children(registry, path):
        yield from _deepest_first(registry, f"{path}/{child}")
    yield path


def _checkpoints(registry: Registry, home: Path, now_s: float) -> Iterator[Leftover]:
    """State that no commit log of this registry names, and that is of this registry, as far as this machine sees it."""
    begun_ms = registry_begun_ms(registry)
    if begun_ms is None:
        return  # no dataflow was ever submitted here: what lies there is of another registry
    there = {name: DataflowView(registry, name) for name in dataflow_names(registry)}
    suspects = []
    for root in sorted({str(home / "state"), *_checkpoint_roots(there.values())}):
        try:
            found = list(checkpoints_below(root))
        except OUT_OF_REACH as error:
            step = "look again once it can be read"
            yield Leftover("checkpoints", f"nobody can say what is below {root}: {error}", next_step=step)
            continue
        suspects += [
            one for one in found if one.mark.registry_ms == begun_ms and now_s - one.since_ms / 1000 >= SETTLED_S
        ]
    for one in suspects:
        try:
            named = _named(registry, one.dataflow)
        except DescriptorUnreadable as error:
            what = f"{one.mark.name} in {one.task}: nobody can say whether dataflow '{one.dataflow}' names it: {error}"
            yield Leftover("checkpoint", what, next_step=_RESTORE)
            continue
        if one.mark.name not in named:
            what = f"{one.mark.name} in {one.task}, which dataflow '{one.dataflow}' does not name"
            yield Leftover("checkpoint", what, partial(_remove_checkpoint, registry, one))


def _checkpoint_roots(views: Iterable[DataflowView]) -> Iterator[str]:
    for view in views:
        with suppress(DataflowNotFound, DescriptorUnreadable, ConfigInvalid):
            state = view.config_in_force().value.state
            if state is not None:
                yield checkpoint_root(state)


def _named(registry: Registry, dataflow: str) -> set[str]:
    with suppress(DataflowNotFound):
        return {name for _task, name in named_checkpoints(DataflowView(registry, dataflow))}
    return set()


def _remove_checkpoint(registry: Registry, found: FoundCheckpoint) -> None:
    if found.mark.name not in _named(registry, found.dataflow):
        Checkpoints(found.task.files, found.task.path).remove(found.mark.name)


def _of_namespace(registry: Registry, path: str, bound: NamespaceDescriptor, now_s: float) -> Iterator[Leftover]:
    store = None if bound.is_elsewhere else bound.directory
    directories = sorted(entry for entry in store.glob("*") if entry.is_dir()) if store is not None else []
    descriptors, damaged = _descriptors(registry, path)
    for error in damaged:
        yield Leftover("unreadable", error, next_step="restore it from a backup, for it says where its segments are")
    with open_namespace(path, registry=registry) as namespace:
        readable = {descriptor.name for descriptor, _ in descriptors}
        logs = [log for log in namespace.names() if log in readable]
        holds = [(log, hold) for log in logs for hold in _holds(namespace, log)]
        to_come, unreadable = _chains_to_come(registry)
        known = to_come.union(dataflow_names(registry))
        unsure = ", ".join(f"chain '{name}'" for name in unreadable)
        for log, hold in holds:
            if hold.dataflow in known:
                continue
            what = f"log '{log}' of {path} keeps records for dataflow '{hold.dataflow}', which is not there"
            if unsure:
                yield Leftover("hold", what, next_step=f"it may be one of {unsure}, which cannot be read")
            else:
                yield Leftover("hold", what, partial(_release_hold, registry, path, log, hold))
    yield from _cut_short(registry, path, bound, descriptors, now_s)
    named = {descriptor.directory for descriptor, _ in descriptors}
    for directory in directories:
        if directory.name in named:
            yield from _index_drafts(directory, now_s)
        elif not damaged:  # it may be that of such a log
            yield from _stray_directory(directory, now_s)
    with open_namespace(path, registry=registry) as namespace:
        yield from _spark_jobs(registry, namespace, now_s)


def _cut_short(
    registry: Registry,
    path: str,
    bound: NamespaceDescriptor,
    descriptors: Sequence[tuple[LogDescriptor, float]],
    now_s: float,
) -> Iterator[Leftover]:
    for log_descriptor, modified_s in descriptors:
        if log_descriptor.deleting and now_s - modified_s >= SETTLED_S:  # else it is, or is made as a copy, just now
            what = f"the deletion of '{log_descriptor.name}' of {path} was cut short"
            if bound.is_elsewhere:  # its cold storage may be a directory there, too
                yield Leftover("log", what, next_step=f"end it on the machine of {bound.location} by the same command")
            else:
                yield Leftover("log", what, partial(_end_deletion, registry, path, log_descriptor.name))


def _descriptors(registry: Registry, path: str) -> tuple[list[tuple[LogDescriptor, float]], list[str]]:
    """The logs of a namespace, those that are half deleted among them, and when each was last changed; and what is
    wrong with those that cannot be read."""
    found, unreadable = [], []
    for child in _children(registry, f"{path}/logs"):
        node = registry.find(f"{path}/logs/{child}")
        if node is not None:
            try:
                descriptor = LogDescriptor.from_bytes(node.data, path=f"{path}/logs/{child}")
            except DescriptorUnreadable as error:
                unreadable.append(str(error))
            else:
                found.append((descriptor, node.modified_ms / 1000))
    return found, unreadable


def _end_deletion(registry: Registry, path: str, log: str) -> None:
    with open_namespace(path, registry=registry) as namespace, suppress(LogNotFound):
        if not namespace.exists(log):  # else somebody has created it again
            namespace.delete(log)


def _holds(namespace: LogNamespace, log: str) -> list[RetentionHold]:
    try:
        return list(namespace.retention_holds(log))
    except (LogNotFound, DescriptorUnreadable):
        return []  # deleted since it was listed, or nobody's to judge


def _chains_to_come(registry: Registry) -> tuple[set[str], dict[str, str]]:
    """The dataflows of chains: logs hold back for them before they are there. And what is wrong with the chains that
    cannot be read: theirs nobody knows."""
    dataflows: set[str] = set()
    unreadable: dict[str, str] = {}
    for name in chain_names(registry):
        try:
            dataflows.update(member.dataflow for member in get_chain(registry, name).members)
        except DescriptorUnreadable as error:
            unreadable[name] = str(error)
        except ChainNotFound:  # deleted since it was listed
            continue
    return dataflows, unreadable


def _release_hold(registry: Registry, path: str, log: str, hold: RetentionHold) -> None:
    to_come, unreadable = _chains_to_come(registry)
    if unreadable or hold.dataflow in to_come.union(dataflow_names(registry)):
        return  # it is back, or may be
    with open_namespace(path, registry=registry) as namespace, suppress(LogNotFound):
        namespace.unregister_reader(log, hold.reader)


def _stray_directory(directory: Path, now_s: float) -> Iterator[Leftover]:
    """A crash in `create` leaves it empty, one in `delete` with segments. But a registry that was restored from an
    older copy does not name it either: what may be somebody's records is nobody's to remove but his."""
    try:
        held = sum(file.stat().st_size for file in directory.glob("*.log"))
        young = now_s - directory.stat().st_mtime < SETTLED_S
    except FileNotFoundError:
        return
    what = f"{directory}, which no log names"
    if held:
        step = "if the log was deleted, and no older registry was restored, remove the directory by hand"
        yield Leftover("log directory", f"{what}, with {held:,} bytes of segments", next_step=step)
    elif not young:
        yield Leftover("log directory", what, partial(shutil.rmtree, directory, ignore_errors=True))


def _index_drafts(directory: Path, now_s: float) -> Iterator[Leftover]:
    for file in sorted(directory.iterdir()):
        if _INDEX_DRAFT.fullmatch(file.name):
            with suppress(FileNotFoundError):
                if now_s - file.stat().st_mtime >= SETTLED_S:
                    yield Leftover("index draft", str(file), partial(file.unlink, missing_ok=True))


def _spark_jobs(registry: Registry, namespace: LogNamespace, now_s: float) -> Iterator[Leftover]:
    """Commit logs of single jobs that failed, or died between their commit and forgetting them. What a job has
    committed stands in its logs, unless one was left unfinished: whoever takes that next asks its commit log."""
    for child in _children(registry, f"{namespace.path}/spark"):
        folder = f"{namespace.path}/spark/{child}"
        node = registry.find(folder)
        if node is None or not _SINGLE_JOB.fullmatch(child):
            continue
        logs = {log: registry.find(f"{folder}/{log}") for log in _children(registry, folder)}
        found = {log: node for log, node in logs.items() if node is not None}
        if now_s - max(one.modified_ms for one in (node, *found.values())) / 1000 < SETTLED_S:
            continue
        try:
            said = [CommitLog.from_bytes(one.data, path=f"{folder}/{log}") for log, one in found.items()]
        except DescriptorUnreadable as error:
            yield Leftover("unreadable", str(error), next_step=_RESTORE)
            continue
        end = "has died after its commit" if any(one.round for one in said) else "has failed"
        what = f"{folder}, of a job that {end}"
        asked = {from_node_name(log): asked_for(namespace, from_node_name(log), f"{folder}/{log}") for log in found}
        waiting = next(((log, why) for log, why in asked.items() if why is not None), None)
        if waiting is None:
            yield Leftover("Spark job", what, partial(_delete, registry, folder))
        else:
            log, why = waiting
            yield Leftover("Spark job", f"{what}; {why}", next_step=next_step_of(log, namespace.path))


def _containers(registry: Registry, home: Path) -> Iterator[Leftover]:
    """Of dataflows that were deleted: their output, and what of them still runs."""
    with LocalLauncher(home) as launcher:
        found = [container for name in launcher.dataflows() for container in launcher.all_containers(name)]
        there = set(dataflow_names(registry))
        for container in found:
            if container.registry == registry.hosts and container.dataflow not in there:
                runs = " (it runs)" if launcher.poll(container) is None else ""
                what = f"{container.directory}, of dataflow '{container.dataflow}', which is not there{runs}"
                yield Leftover("container", what, partial(launcher.forget, container))


def _delete(registry: Registry, path: str) -> None:
    with suppress(NodeMissing):  # somebody else was as quick
        registry.delete(path, recursive=True)


def _children(registry: Registry, path: str) -> list[str]:
    try:
        return registry.children(path)
    except NodeMissing:
        return []
