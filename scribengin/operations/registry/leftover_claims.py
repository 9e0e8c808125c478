"""What the claims of a dataflow that is not there still mean: a commit log may be the only word about a last round.

A worker that was killed between its commit and the completion leaves such a round. `delete` brings it to its end, but
a dataflow whose nodes were lost in another way was not deleted. So a commit log is removed only when nobody will ask
for it: no log whose last segment is unfinished names it, no staged file is named by it, no other system decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scribengin.base.commit_log import CommitLog
from scribengin.base.model import from_node_name
from scribengin.base.names import log_command
from scribengin.connectors.files.formats.kinds import NOUN as FILES
from scribengin.connectors.files.remains import StreamRemains, files_on_their_way, remains_of
from scribengin.connectors.log.reaching import open_namespace
from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.view import DataflowView, dataflow_names
from scribengin.errors import DescriptorUnreadable, LogNotFound, ScribenginError
from scribengin.log import LogNamespace
from scribengin.operations.chain.registry import chain_names, get_chain
from scribengin.operations.submit.origins import remembered_packages
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
                    who = f"submit '{owner}' again" if owner else "have a dataflow write there again"
                    return ClaimRemains(tuple(files), (found.awaited, f"{who}, which ends it"))
            elif (awaited := _awaited_by_log(registry, resource, node, stream, namespaces)) is not None:
                return ClaimRemains(tuple(files), awaited)
    except (ScribenginError, OSError) as error:
        return ClaimRemains(tuple(files), (f"it cannot be looked at from here: {error}", "check again where it can be"))
    return ClaimRemains(tuple(files))


def unclaimed_files(registry: Registry, home: Path) -> Iterator[tuple[str, str]]:
    """Directories of file sinks with files on their way, whose claim has gone: which, and how many files of each kind.

    Without the claim nobody can say which of them were committed. Only directories can be looked at that somebody still
    names: a config of this registry, or the descriptor in a package that this user has submitted.
    """
    seen: set[str] = set()
    for path in _directories_written(registry, home):
        if path in seen:
            continue
        seen.add(path)
        with suppress(ScribenginError, OSError):  # a file system that is not to be had here is another place's to check
            resource, found = files_on_their_way(path)
            if found and registry.find(paths.sink_resource(resource)) is None:
                yield path, ", ".join(f"{count} {kind}" for kind, count in found.items())


def _directories_written(registry: Registry, home: Path) -> Iterator[str]:
    configs: list[DataflowConfig] = []
    for name in dataflow_names(registry):
        with suppress(ScribenginError):
            configs.append(DataflowView(registry, name).config_in_force().value)
    for name in chain_names(registry):
        with suppress(ScribenginError):
            configs += get_chain(registry, name).parsed().dataflows.values()
    for package in remembered_packages(home, registry.hosts):
        with suppress(ScribenginError, OSError):
            configs.append(load_config(package))
    for config in configs:
        written = [sink.endpoint() for sink in config.sinks.values()]
        yield from (thing.name for thing in written if thing.noun == FILES)


def asked_for(namespace: LogNamespace, log: str, commit_log: str) -> str | None:
    """Why somebody will ask for that commit log of a log, if so."""
    try:
        coordinator = namespace.commit_log_of(log)
    except LogNotFound:
        return None
    except ScribenginError as error:
        return f"log '{log}' cannot be read: {error}"
    return f"log '{log}' was left unfinished, and asks it for its last round" if coordinator == commit_log else None


def next_step_of(log: str, namespace: str) -> str:
    """How a log is brought to its end."""
    return f"{log_command(namespace, 'recover', log)} ends it; then check again"


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
        return (
            f"'{prepared.decision.coordinator}' decides about its last round",
            "submit the dataflow again, which asks it",
        )
    for namespace in namespaces:
        within = resource.removeprefix(f"{_LOG}{namespace}/")
        if within != resource:
            with open_namespace(namespace, registry=registry) as opened:
                why = asked_for(opened, log := f"{within}/{stream}", path)
            return None if why is None else (why, next_step_of(log, namespace))
    return None
