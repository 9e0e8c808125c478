"""The sandbox: everything that Scribengin needs around it, on one machine and in one directory."""

from __future__ import annotations

import shutil
import threading
from contextlib import ExitStack
from pathlib import Path

from scribengin.base.process.private import private_directory
from scribengin.errors import ConfigInvalid
from scribengin.launcher.contract import tail_of_log
from scribengin.log import DEFAULT_NAMESPACE, LogNamespace
from scribengin_registry.contract import ProtectedRegistry
from scribengin_registry.credentials import own_credentials
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.errors import NotAuthorised, RegistryUnreachable, ServerFailed
from scribengin_registry.opening import connect

USUAL_PORT = 2181
_LOOK_S = 0.5
_FULL_BYTES = 1 << 20
CREDENTIALS = "credentials"
"""The file of a directory with the registry's only user."""


def free_bytes(directory: Path) -> int:
    """What a directory's file system still takes of this user."""
    return shutil.disk_usage(directory).free


def why_it_died(directory: Path, log: Path, said: str, free: int) -> str:
    """Of the sandbox's ZooKeeper, for people. It writes each change to its disk, and ends when that takes no more; its
    log, on the same disk, then cannot say so."""
    if free < _FULL_BYTES or "No space left on device" in said:
        return (
            f"the sandbox's ZooKeeper has died, and the disk under {directory} is full ({free:,} bytes are free): make "
            "room there, then start the sandbox again; it goes on with all that was written"
        )
    words = f" ({said})" if said else ""
    return f"the sandbox's ZooKeeper has died{words}: see {log}, then start it again"


def take_hold(registry: ProtectedRegistry, store: Path, directory: Path) -> None:
    """Own all nodes, also those of before there were credentials, and bind the namespace. The root is closed last:
    where it is, so is everything. Raises NotAuthorised, NamespaceNotBound."""
    try:
        if registry.is_open("/"):
            for name in registry.children("/"):
                if name != "zookeeper":  # the server's own
                    registry.protect(f"/{name}")
            registry.protect("/")
        LogNamespace.bind(DEFAULT_NAMESPACE, store, registry=registry)
    except NotAuthorised:
        raise NotAuthorised(
            f"the registry belongs to other credentials than those in {directory / CREDENTIALS}: bring that file back, "
            f"or remove {directory} with all its data"
        ) from None


class Sandbox:
    """An embedded ZooKeeper with a log namespace bound to a directory beside it. A context manager; not thread-safe.

    `<directory>/zookeeper` is the registry's, `<directory>/logs` the namespace's. Both keep their data. All nodes
    belong to the user in `<directory>/credentials`: other users of the machine read them, and change nothing.
    """

    def __init__(self, directory: Path, *, port: int = 0) -> None:
        self.directory = directory.absolute()
        self.store = self.directory / "logs"
        self._server = EmbeddedZooKeeper(self.directory / "zookeeper", port=port, usual_port=USUAL_PORT)
        self._opened = ExitStack()
        self._registry: ProtectedRegistry | None = None
        self.auth = ""
        """What SCRIBENGIN_REGISTRY_AUTH is for its clients. Known once it was started."""

    @property
    def hosts(self) -> str:
        """The registry's address. Known once it was started."""
        return self._server.hosts

    def __enter__(self) -> Sandbox:
        """Start everything. Raises ConfigInvalid (the directory cannot be made), ServerFailed, JavaMissing,
        NamespaceNotBound (the registry's data is another's), NotAuthorised (it belongs to other credentials)."""
        try:
            private_directory(self.directory)
        except OSError as error:
            raise ConfigInvalid(
                f"the sandbox's directory {self.directory} cannot be made ({error.filename}: {error.strerror}); name "
                "another one (--dir)"
            ) from error
        with ExitStack() as opened:
            opened.enter_context(self._server)  # first: it is the one server of this directory
            self.auth = own_credentials(self.directory / CREDENTIALS)
            self._registry = opened.enter_context(connect(self.hosts, auth=self.auth, half_restored=True))
            take_hold(self._registry, self.store, self.directory)
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._opened.close()

    def wait(self, ended: threading.Event) -> ServerFailed | None:
        """Return when `ended` is set, or when the server has died: then why."""
        while not ended.wait(_LOOK_S):
            if self._server.pid is None:
                said = tail_of_log(self._server.log_path, lines_max=1)
                return ServerFailed(
                    why_it_died(self.directory, self._server.log_path, said, free_bytes(self.directory))
                )
        return None

    def kill_dataflows(self, home: Path) -> list[str]:
        """Kill what runs below `home` for the dataflows of this registry. A line for each that had to be."""
        from scribengin.dataflow.registry.view import dataflow_names
        from scribengin.errors import LauncherError
        from scribengin.operations.lifecycle import kill_dataflow

        if self._registry is None or self._server.pid is None:
            return []
        lines = []
        try:
            for name in dataflow_names(self._registry):
                try:
                    killed = kill_dataflow(self._registry, name, home)
                except (ConfigInvalid, LauncherError) as error:  # it runs on a cluster that is not to be had from here
                    lines.append(f"dataflow '{name}' was not killed: {error}")
                    continue
                if killed.anything:
                    lines.append(killed.line)
        except RegistryUnreachable as error:
            lines.append(str(error))
        return lines
