"""Where a namespace is: from a URI to a registry session, and what its node says of its store."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationInfo, field_validator

from scribengin.base.failpoints import failpoint
from scribengin.base.jvm import JvmUse
from scribengin.base.model import Descriptor
from scribengin.base.names import log_command
from scribengin.base.process.machine import MachineIdentity, this_machine
from scribengin.base.text.refusals import did_you_mean
from scribengin.errors import ConfigInvalid, DescriptorUnreadable, NamespaceNotBound, StoreElsewhere
from scribengin.log.metadata.names import NamespaceUri
from scribengin.log.store.opening import DEFAULT_STORE, open_store, store_kind
from scribengin_registry.compare_and_set import win_race
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeExists, NodeMissing, RegistryError, VersionConflict


def session_for(uri: str, registry: Registry | None) -> tuple[Registry, str, bool]:
    """A registry session for `uri`, the namespace's path in it, and whether the session is the caller's to close.

    Raises ConfigInvalid, RegistryUnreachable.
    """
    parsed = NamespaceUri.parse(uri)
    if registry is None:
        if not parsed.hosts:
            raise ConfigInvalid(f"'{uri}' names no ZooKeeper hosts; write distributedlog-file://<hosts>{uri}")
        from scribengin_registry.opening import connect  # only who connects needs the client

        return connect(parsed.hosts), parsed.path, True
    if not parsed.hosts:
        return registry, parsed.path, False
    hosts, _slash, root = registry.hosts.partition("/")
    root = f"/{root}" if root else ""
    if not set(parsed.hosts.split(",")) & set(hosts.split(",")):
        raise ConfigInvalid(f"'{uri}' lies in another ensemble than the registry {registry.hosts}; use one for both")
    if root and not parsed.path.startswith(f"{root}/"):
        raise ConfigInvalid(f"'{uri}' lies outside {root}, which is all that the registry {registry.hosts} can see")
    return registry, parsed.path.removeprefix(root), False


class NewPlace(Descriptor):
    """Where a namespace's logs are being moved to: what its node will say of its store."""

    store: str
    location: str
    token: str


class NamespaceDescriptor(Descriptor):
    """What a namespace is bound to: a store, where it keeps its segments, and the token that the place holds, too.

    `machine` has the directory of a store of files (None: another store, or nobody has said). Others open it only if it
    is `shared`: a mount that they all see.
    """

    store: str
    location: str
    token: str
    machine: MachineIdentity | None = None
    shared: bool = False
    moving: NewPlace | None = None
    """Nobody opens the namespace until it is bound there (retention/migration.py)."""

    @property
    def directory(self) -> Path | None:
        """Where a store of files keeps them; None: this is no store of files."""
        return Path(self.location) if self.store == DEFAULT_STORE else None

    @property
    def is_elsewhere(self) -> bool:
        """Whether the store is a directory of another machine. What is called so on this one may be anybody's."""
        return self.machine is not None and not self.shared and not self.machine.is_this()

    @property
    def jvm_a_process(self) -> JvmUse | None:
        """What each process that reads or writes logs has a JVM for; None: it has none."""
        return store_kind(self.store).jvm_a_process

    @field_validator("store")
    @classmethod
    def _is_there(cls, store: str) -> str:
        store_kind(store)
        return store

    @field_validator("location")
    @classmethod
    def _is_a_place(cls, location: str, others: ValidationInfo) -> str:
        if "store" in others.data:  # else that is refused
            store_kind(others.data["store"]).check_location(location)
        return location


@dataclass(frozen=True, slots=True)
class BindOptions:
    """What is said of a directory when a namespace is bound to it: that machines share it, or that it is on this one
    alone, where it was on another, or shared."""

    shared: bool = False
    moved: bool = False


def bound(registry: Registry, path: str, uri: str, *, anywhere: bool = False) -> NamespaceDescriptor:
    """What the namespace is bound to; `anywhere`: also if that is a directory of another machine. Raises
    NamespaceNotBound, StoreElsewhere."""
    node = registry.find(path)
    if node is None or not node.data:
        near = did_you_mean(path, _bound_beside(registry, path))
        raise NamespaceNotBound(
            f"{uri} is bound to no store{f'{near} Else' if near else ':'} bind it ({log_command(path, 'bind')}, or "
            "LogNamespace.bind), or run a sandbox"
        )
    descriptor = NamespaceDescriptor.from_bytes(node.data, path=path)
    store = NamespaceUri.parse(uri).store
    if store not in (None, descriptor.store):
        raise NamespaceNotBound(f"{uri} is bound to the store '{descriptor.store}', and not to '{store}'")
    if descriptor.moving is not None:
        raise NamespaceNotBound(f"{uri} {how_to_end(descriptor, path)}")
    if not anywhere:
        check_machine(descriptor, path)
    return descriptor


def _bound_beside(registry: Registry, path: str) -> list[str]:
    """The namespaces under the same node, for who names one that there is not."""
    parent = path.rpartition("/")[0]
    found: list[str] = []
    with suppress(RegistryError):
        for name in registry.children(parent or "/"):
            node = registry.find(f"{parent}/{name}")
            with suppress(DescriptorUnreadable):
                NamespaceDescriptor.from_bytes(node.data if node else b"", path=path)
                found.append(f"{parent}/{name}")
    return found


def how_to_end(descriptor: NamespaceDescriptor, path: str) -> str:
    """What whoever finds a namespace that is being moved can do, for people."""
    assert descriptor.moving is not None, "it is being moved"
    finish, take_back = (
        log_command(path, "bind", "--migrate", place) for place in (descriptor.moving.location, descriptor.location)
    )
    return (
        f"is being moved to {descriptor.moving.location}: wait for that, or if whoever did it has died, finish it by "
        f"{finish}, or take it back by {take_back}"
    )


def check_machine(descriptor: NamespaceDescriptor, path: str) -> None:
    """Whether it is a shared directory that this machine sees is told by its mark. Raises StoreElsewhere."""
    machine = descriptor.machine
    if machine is None or not descriptor.is_elsewhere:
        return
    raise StoreElsewhere(
        f"{path} keeps its logs in {descriptor.location} on the machine {machine.name}, and this is "
        f"{this_machine().name}: open it there through a proxy (`scribengin proxy`), or keep logs where all machines "
        f"reach them ({log_command(path, 'bind')} with hdfs:// or bk://); if that directory is mounted here as well, "
        f"{log_command(path, 'bind', '--shared', descriptor.location)}"
    )


def chosen_store(uri: str, store: str | None) -> str:
    """The kind of store that a namespace is to be bound to: the URI's, or else `store`. Raises ConfigInvalid."""
    said = NamespaceUri.parse(uri).store
    if said is not None and store not in (None, said):
        raise ConfigInvalid(f"'{uri}' names the store '{said}', and not '{store}': say one of them")
    chosen = said or store or DEFAULT_STORE
    try:
        store_kind(chosen)
    except ValueError as error:
        raise ConfigInvalid(f"'{uri}': {error}") from None
    return chosen


def bind(
    registry: Registry, path: str, store: str, location: str, options: BindOptions = BindOptions()
) -> NamespaceDescriptor:
    """Make the namespace's node, its place in the store with its token, and the node its logs stand below. Idempotent.

    Raises NamespaceNotBound (it is bound to another place), StoreNotMounted (to this one, which is another one on this
    machine), StoreElsewhere (another machine has it), ConfigInvalid, LogWriteFailed.
    """
    kind = store_kind(store)
    location = kind.resolved(location)
    if (options.shared or options.moved) and not kind.on_one_machine:
        raise ConfigInvalid(f"{location} is the same for all machines: only directories are shared or moved")
    what = f"{path} keeps changing and could not be bound; see who else binds it, and try again"
    there = win_race(
        lambda: _bind(registry, path, store, location, options),
        races=(NodeExists, NodeMissing, VersionConflict),
        registry=registry,  # somebody else binds it, or our reply was lost: look again
        exhausted=lambda: NamespaceNotBound(what),
    )
    with suppress(NodeExists), failpoint("log.bind_logs"):
        registry.create(f"{path}/logs")
    return there


def _bind(registry: Registry, path: str, store: str, location: str, options: BindOptions) -> NamespaceDescriptor:
    node = registry.find(path)
    if node is not None and node.data:
        there = NamespaceDescriptor.from_bytes(node.data, path=path)
        if (there.store, there.location) != (store, location):
            raise NamespaceNotBound(
                f"{path} is bound to {there.location} already: use that, or another path, or move its logs "
                f"({log_command(path, 'bind', '--migrate', location)})"
            )
        open_store(store, location, there.token).check_mounted()
        wanted = told(there, options)
        check_machine(wanted, path)
        if wanted != there:
            with failpoint("log.bind_machine"):
                registry.set(path, wanted.to_bytes(), node.version)
        return wanted
    token = store_kind(store).prepare(location)  # first, so that a node never names a place that has no token
    wanted = told(NamespaceDescriptor(store=store, location=location, token=token), options)
    if node is None:
        with failpoint("log.bind_create"):
            registry.create(path, wanted.to_bytes(), parents=True)
    else:
        with failpoint("log.bind_set"):
            registry.set(path, wanted.to_bytes(), node.version)
    return wanted


def told(descriptor: NamespaceDescriptor, options: BindOptions) -> NamespaceDescriptor:
    """With what whoever binds it says of its machine."""
    if not store_kind(descriptor.store).on_one_machine:
        return descriptor
    nobody_has_said = descriptor.machine is None and not descriptor.shared
    machine: MachineIdentity | None = this_machine() if options.moved or nobody_has_said else descriptor.machine
    shared = options.shared or (descriptor.shared and not options.moved)
    return descriptor.model_copy(update={"machine": machine, "shared": shared})
