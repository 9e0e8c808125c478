"""What the claims of a dataflow that is not there still mean: a commit log may be the only word about a last round.

A worker that was killed between its commit and the completion leaves such a round. `delete` brings it to its end, but
a dataflow whose nodes were lost in another way was not deleted. So a commit log is removed only when nobody will ask
for it: no log whose last segment is unfinished names it, no staged file is named by it, no other system decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scribengin.base.commit_log import CommitLog
from scribengin.base.model import from_node_name
from scribengin.connectors.files.remains import StreamRemains, remains_of
from scribengin.dataflow.registry import paths
from scribengin.errors import DescriptorUnreadable, LogNotFound, ScribenginError
from scribengin.log import LogNamespace
from scribengin_registry.contract import Registry

_LOG = "log:"


@dataclass(frozen=True, slots=True)
class ClaimRemains:
    """Of one sink: `files` have strays, and `awaited` says why the claim must stay, and what to do."""

    files: tuple[StreamRemains, ...] = ()
    awaited: tuple[str, str] | None = None


def claim_remains(registry: Registry, claim: str, owner: str, namespaces: Sequence[str]) -> ClaimRemains:
    """Look at the streams of the sink whose node is `claim`. `namespaces` are those of the registry's logs."""
    resource = from_node_name(claim.rpartition("/")[2])
    files: list[StreamRemains] = []
    try:
        for child in registry.children(claim):
            node, stream = f"{claim}/{child}", from_node_name(child)
            if registry.find(f"{node}/merge") is not None:
                found = remains_of(registry, resource, node, stream)
                files += [found] if found.strays else []
                if found.awaited is not None:
                    return ClaimRemains(tuple(files), (found.awaited, f"submit '{owner}' again, which ends it"))
            elif (awaited := _awaited_by_log(registry, resource, node, stream, namespaces)) is not None:
                return ClaimRemains(tuple(files), awaited)
    except (ScribenginError, OSError) as error:
        return ClaimRemains(tuple(files), (f"it cannot be looked at from here: {error}", "check again where it can be"))
    return ClaimRemains(tuple(files))


def asked_for(namespace: LogNamespace, log: str, commit_log: str) -> str | None:
    """Why somebody will ask for that commit log of a log, if so."""
    try:
        decider = namespace.decided_by(log)
    except LogNotFound:
        return None
    except ScribenginError as error:
        return f"log '{log}' cannot be read: {error}"
    return f"log '{log}' was left unfinished, and asks it for its last round" if decider == commit_log else None


def next_step_of(log: str, namespace: str) -> str:
    """How a log is brought to its end."""
    return f"`scribengin log recover {log} --namespace {namespace}` ends it; then check again"


def _awaited_by_log(
    registry: Registry, resource: str, node: str, stream: str, namespaces: Sequence[str]
) -> tuple[str, str] | None:
    path = paths.commit_log(node)
    found = registry.find(path)
    if found is None:
        return None
    try:
        prepared = CommitLog.from_bytes(found.data, path=path).prepared
    except DescriptorUnreadable as error:
        return str(error), "restore it, or delete it by hand"
    if prepared is not None:
        return f"'{prepared.decision.decider}' decides about its last round", "submit the dataflow again, which asks it"
    for namespace in namespaces:
        within = resource.removeprefix(f"{_LOG}{namespace}/")
        if within != resource:
            with LogNamespace.open(namespace, registry=registry) as opened:
                why = asked_for(opened, log := f"{within}/{stream}", path)
            return None if why is None else (why, next_step_of(log, namespace))
    return None
