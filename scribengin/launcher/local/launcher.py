"""Containers as processes of this machine, each in a session and a directory of its own, below a home directory.

    <home>/containers/<dataflow>/<container>/      local/supervisor.py lists the files

Each container has a keeper, which outlives this launcher; what is here only starts keepers, watches them and kills what
stands below them. A container has ended when its keeper has. Linux only: `/proc`, pidfd.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.model import from_node_name, node_name
from scribengin.base.process.private import PRIVATE_MODE, private_directory, remove_directory, replacing
from scribengin.base.process.variables import CONTAINER_VARIABLE
from scribengin.base.threads import background, pause
from scribengin.errors import ContainerUnreachable, DescriptorUnreadable, LauncherError, ScribenginError
from scribengin.launcher.contract import (
    HOME_VARIABLE,
    ContainerDescriptor,
    ContainerExit,
    ContainerLauncher,
    ContainerRequest,
    ExitListener,
    LogName,
    tail_of_log,
)
from scribengin.launcher.local import supervisor as keeper
from scribengin.launcher.local.output import rotated
from scribengin.launcher.local.processes import Group, start_token

_DEATH_TIMEOUT_S = 10.0
_LAST_OUTPUT_S = 1.0
"""So long a keeper has to write down what its container, which is dead, had printed."""
_AGAIN_S = 0.5
_NOBODY = -1
KEPT_MAX = 100
"""Of so many containers of a dataflow the directories stay, with their logs; then the oldest ended ones go."""


def scribengin_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Where containers and packages live on this machine: `$SCRIBENGIN_HOME`, else `~/.scribengin`."""
    return Path(environ.get(HOME_VARIABLE) or Path.home() / ".scribengin").absolute()


@dataclass(frozen=True, slots=True)
class ContainerLogs:
    """Where a container's output goes."""

    stdout: Path
    stderr: Path


class LocalLauncher(ContainerLauncher):
    """Containers below one home directory. Two launchers of the same home see each other's containers."""

    def __init__(self, home: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._root = home.absolute() / "containers"
        self._clock = clock
        self._lock = threading.Lock()
        self._listeners: list[ExitListener] = []
        self._watched: set[str] = set()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._wakeup_read, self._wakeup_write = os.pipe()
        self._selector.register(self._wakeup_read, selectors.EVENT_READ)
        self._thread = background("container-watch", self._watch)
        self._thread.start()

    # -- the contract

    def launch(self, request: ContainerRequest) -> ContainerDescriptor:
        directory: Path | None = None
        try:
            directory = self._new_directory(request)
            (directory / keeper.REQUEST).write_text(
                json.dumps({"argv": list(request.argv), "env": dict(request.env), "memory_mb": request.memory_mb})
            )
            child = _start_keeper(directory)
        except OSError as error:
            if directory is not None:
                remove_directory(directory)  # or each try on a full disk would leave another one
            raise LauncherError(
                f"container '{request.name}' of {request.dataflow} could not be started: {error}"
            ) from error
        try:
            container = self._descriptor(request, directory, child.pid)
        except LauncherError:
            child.kill()
            child.wait()
            remove_directory(directory)  # as above: nobody would find it without a descriptor
            raise
        with self._lock:
            self._children[container.id] = child
        self._let_it_go(container, child)
        self.attach(container)
        self._forget_oldest(request.dataflow)
        return container

    def attach(self, container: ContainerDescriptor) -> None:
        with self._lock:
            if container.id in self._watched:
                return
            self._watched.add(container.id)
        try:
            self._follow(container)
        except OSError:  # this process may open no more files just now: nobody else would tell of its end
            background("container-attach", partial(self._follow_later, container)).start()

    def poll(self, container: ContainerDescriptor) -> ContainerExit | None:
        try:
            return self._poll(container)
        except OSError as error:
            raise LauncherError(
                f"container '{container.name}' of {container.dataflow} cannot be looked at just now: {error}; ask again"
            ) from error

    def kill(self, container: ContainerDescriptor) -> None:
        try:
            self._kill(container)
        except OSError as error:
            raise ContainerUnreachable(
                f"container '{container.name}' of {container.dataflow} may still run: {error}; kill it again"
            ) from error

    def _poll(self, container: ContainerDescriptor) -> ContainerExit | None:
        """Raises OSError."""
        if start_token(container.pid) == container.start_token:
            return None
        self._sweep(container)
        return _read_exit(Path(container.directory))

    def _kill(self, container: ContainerDescriptor) -> None:
        """Raises OSError."""
        if self._poll(container) is not None:
            return
        with contextlib.suppress(OSError):  # a full disk must not keep it alive
            keeper.write_exit(Path(container.directory), "killed", -signal.SIGKILL, "killed by the launcher")
        _group(container).kill(keeper.pause)
        self._kill_keeper(container)
        self._sweep(container)

    def containers(self, registry: str, dataflow: str) -> list[ContainerDescriptor]:
        found = [container for container in self.all_containers(dataflow) if container.registry == registry]
        return [container for container in found if self.poll(container) is None]

    def all_containers(self, dataflow: str) -> list[ContainerDescriptor]:
        """Every container of a dataflow (of any registry) that left its directory here, also ended ones, oldest
        first. One whose descriptor a power failure has spoilt has ended with it, and is none."""
        try:
            return self._found(dataflow)[0]
        except OSError as error:
            raise LauncherError(
                f"the containers of {dataflow} in {self._root} cannot be looked at just now: {error}; ask again"
            ) from error

    def dataflows(self) -> list[str]:
        """The dataflows (of any registry) that have left a container's directory here."""
        return sorted(from_node_name(path.name) for path in self._root.glob("*") if path.is_dir())

    def forget(self, container: ContainerDescriptor) -> None:
        """End the container, and delete its directory with its output."""
        self.kill(container)
        remove_directory(Path(container.directory))
        whole, spoilt = self._found(container.dataflow)
        for directory in () if whole else spoilt:  # with the last one: nobody would find these any more
            remove_directory(directory)
        with contextlib.suppress(OSError):  # others of its dataflow are still there
            Path(container.directory).parent.rmdir()

    def log_tail(self, container: ContainerDescriptor, name: LogName, lines_max: int = 12) -> str:
        path = getattr(self.logs(container), name)
        return tail_of_log(path, lines_max) or tail_of_log(rotated(path), lines_max)

    def logs(self, container: ContainerDescriptor) -> ContainerLogs:
        """Its log files; they stay after its end."""
        directory = Path(container.directory)
        return ContainerLogs(directory / keeper.STDOUT, directory / keeper.STDERR)

    def on_exit(self, listener: ExitListener) -> None:
        with self._lock:
            self._listeners.append(listener)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        os.write(self._wakeup_write, b"x")
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()
        os.close(self._wakeup_write)

    # -- launching

    def _new_directory(self, request: ContainerRequest) -> Path:
        """A directory of its own, named for the container; with a number where the name is taken."""
        parent = self._root / node_name(request.dataflow)
        private_directory(parent)
        number = 1
        while True:
            directory = parent / (node_name(request.name) + (f".{number}" if number > 1 else ""))
            try:
                directory.mkdir(mode=PRIVATE_MODE)
            except FileExistsError:
                number += 1
                continue
            return directory

    def _descriptor(self, request: ContainerRequest, directory: Path, pid: int) -> ContainerDescriptor:
        try:
            token = start_token(pid)
        except OSError as error:
            raise LauncherError(
                f"container '{request.name}' of {request.dataflow} could not be started: {error}"
            ) from error
        if token is None:
            raise LauncherError(f"container '{request.name}' died at once: {_keeper_log(directory)}")
        return ContainerDescriptor(
            id=f"{directory.parent.name}/{directory.name}/{uuid.uuid4().hex[:12]}",  # the directory may be used again
            registry=request.registry,
            dataflow=request.dataflow,
            name=request.name,
            host=socket.gethostname(),
            pid=pid,
            start_token=token,
            directory=str(directory),
            memory_mb=request.memory_mb,
            cores=request.cores,
            launched_ms=self._clock.now_ms(),
        )

    def _let_it_go(self, container: ContainerDescriptor, child: subprocess.Popen[bytes]) -> None:
        """Write the descriptor, then let the keeper start: a launcher that dies in between leaves nothing running. Who
        revives dataflows after a power failure goes by descriptors."""
        directory = Path(container.directory)
        assert child.stdin is not None
        try:
            with replacing(directory.resolve() / keeper.DESCRIPTOR, 0o600) as file:  # links there are the user's
                file.write(container.to_bytes())
            child.stdin.write(keeper.GO)
            child.stdin.close()
        except (OSError, ScribenginError) as error:
            child.kill()
            child.wait()
            with self._lock:
                self._children.pop(container.id, None)
            word = _keeper_log(directory)
            remove_directory(directory)
            raise LauncherError(f"container '{container.name}' did not start: {error}; {word}") from error

    def _forget_oldest(self, dataflow: str) -> None:
        """Something that dies at once and is launched again for days must not fill the disk."""
        with contextlib.suppress(OSError):  # what cannot be looked at just now stays until the next launch
            kept, spoilt = self._found(dataflow)
            too_many = len(spoilt) + len(kept) - KEPT_MAX
            if too_many > 0:
                ended = [Path(container.directory) for container in kept if self._poll(container) is not None]
                for directory in [*spoilt, *ended][:too_many]:
                    remove_directory(directory)

    def _found(self, dataflow: str) -> tuple[list[ContainerDescriptor], list[Path]]:
        """The containers of a dataflow, oldest first, and the directories of those whose descriptor is spoilt, and that
        have ended: one that a newer version has written may run."""
        found, spoilt = list[ContainerDescriptor](), list[Path]()
        for file in (self._root / node_name(dataflow)).glob(f"*/{keeper.DESCRIPTOR}"):
            try:
                found.append(ContainerDescriptor.from_bytes(file.read_bytes(), path=str(file)))
            except FileNotFoundError:  # it was the oldest one
                continue
            except DescriptorUnreadable:
                if not Group(_NOBODY, keeper.mark_of(file.parent)).pids():
                    spoilt.append(file.parent)
        return sorted(found, key=lambda container: (container.launched_ms, container.id)), spoilt

    # -- watching and killing

    def _follow(self, container: ContainerDescriptor) -> None:
        """Tell of its end. Raises OSError."""
        pidfd = _pidfd(container)
        if pidfd is None:
            background("container-ended", partial(self._ended, container)).start()
            return
        try:
            with self._lock:
                if not self._closed:
                    self._selector.register(pidfd, selectors.EVENT_READ, container)  # epoll takes it while it is asked
                    return
        except OSError:
            os.close(pidfd)
            raise
        os.close(pidfd)

    def _follow_later(self, container: ContainerDescriptor) -> None:
        while not self._closed:
            pause(_AGAIN_S)
            with contextlib.suppress(OSError):
                self._follow(container)
                return

    def _watch(self) -> None:
        """The watching thread: asleep until a keeper ends, something is added, or `close`."""
        while not self._closed:
            for key, _ in self._selector.select():
                if key.data is None:
                    os.read(self._wakeup_read, 1024)
                    continue
                with self._lock:
                    self._selector.unregister(key.fd)
                os.close(key.fd)
                self._ended(key.data)

    def _ended(self, container: ContainerDescriptor) -> None:
        with self._lock:
            child = self._children.pop(container.id, None)
            listeners = list(self._listeners)
        if child is not None:
            child.wait()
        how = self._how_it_ended(container)
        for listener in listeners:
            listener(container, how)

    def _how_it_ended(self, container: ContainerDescriptor) -> ContainerExit:
        """Once nothing is left of it. Where this process may open no more files just now, it is looked again: nobody
        else tells a master of the ends of its containers."""
        while True:
            try:
                self._sweep(container)
                return _read_exit(Path(container.directory))
            except OSError as error:
                if self._closed:
                    return ContainerExit("lost", None, f"how it ended could not be looked at: {error}")
            pause(_AGAIN_S)

    def _sweep(self, container: ContainerDescriptor) -> None:
        """Make sure that nothing of a container is left whose keeper has gone, also when somebody killed the keeper."""
        if start_token(container.pid) is None:
            _group(container).kill(keeper.pause)
        with contextlib.suppress(OSError):  # the next one who asks writes it, when there is room
            reason = "its keeper ended without a word (was it killed?)"
            keeper.write_exit(Path(container.directory), "lost", None, reason)

    def _kill_keeper(self, container: ContainerDescriptor) -> None:
        try:
            pidfd = os.pidfd_open(container.pid)
        except ProcessLookupError:
            return
        try:
            if start_token(container.pid) == container.start_token:
                with selectors.DefaultSelector() as gone:
                    gone.register(pidfd, selectors.EVENT_READ)
                    if gone.select(_LAST_OUTPUT_S):
                        return
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    gone.select(_DEATH_TIMEOUT_S)
        finally:
            os.close(pidfd)


def _start_keeper(directory: Path) -> subprocess.Popen[bytes]:
    with (directory / keeper.KEEPER_LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", keeper.__name__, str(directory)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            # The mark of the container that launches it is not its own.
            env={**os.environ, CONTAINER_VARIABLE: keeper.mark_of(directory)},
        )


def _pidfd(container: ContainerDescriptor) -> int | None:
    """What tells of its keeper's end; None: it has ended, and its pid may be another process's now. Raises OSError."""
    try:
        pidfd = os.pidfd_open(container.pid)
    except ProcessLookupError:
        return None
    try:
        if start_token(container.pid) in (None, container.start_token):
            return pidfd
    except OSError:
        os.close(pidfd)
        raise
    os.close(pidfd)
    return None


def _group(container: ContainerDescriptor) -> Group:
    return Group(container.pid, keeper.mark_of(Path(container.directory)))


def _read_exit(directory: Path) -> ContainerExit:
    try:
        value = json.loads((directory / keeper.EXIT).read_text())
    except FileNotFoundError:
        return ContainerExit("lost", None, f"how it ended could not be written down: is there room for {directory}?")
    except ValueError:
        return ContainerExit("lost", None, "how it ended was written down, and lost: has the machine lost power?")
    return ContainerExit(value["kind"], value["code"], value["reason"])


def _keeper_log(directory: Path) -> str:
    return " ".join((directory / keeper.KEEPER_LOG).read_text(errors="replace").split()) or "it left no word"
