"""What the engine asks of whatever runs its processes: local processes, YARN, skein.

A container is one process (and everything below it) with a name, a memory limit and log files. It outlives whoever
launched it: a master dies, the next one finds the containers by `containers`, watches them by `attach`, and hears of
their exits.

The mistakes this contract invites:
- Believing that a container is gone because nobody hears of it. It may be an orphan that still runs: only fencing stops
  it from writing. A launcher reports an exit when it knows of it, and not before.
- Launching first and writing down afterwards. `launch` leaves a record that `containers` finds before the process runs.

Not promised: that a container that is told to be killed had the time to say anything; that names are unique (ids are).

`scribengin.testing.conformance.launcher.check_launcher` holds an implementation against this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from scribengin.base.model import Descriptor

ExitKind = Literal["exited", "killed", "memory", "lost"]
HOME_VARIABLE = "SCRIBENGIN_HOME"
"""Where local processes, their output and shipped packages live on this machine. Default: `~/.scribengin`."""


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """What to run: `name` is for people and for finding it again; `env` is added to the launcher's own environment.

    `registry` is where the dataflow stands: the same place may run a dataflow of that name of another registry.
    """

    registry: str
    dataflow: str
    name: str
    argv: Sequence[str]
    memory_mb: int
    cores: int = 1
    env: Mapping[str, str] = field(default_factory=dict)


class ContainerDescriptor(Descriptor):
    """A container that was launched: all that another process needs to watch it, kill it and find its logs.

    `id` is unique for ever within one launcher's place. Of processes of this machine also `host`, `pid`, `directory`,
    and `start_token`, which tells the process from a later one of that pid; elsewhere the launcher finds it by its id.
    """

    id: str
    registry: str
    dataflow: str
    name: str
    host: str = ""
    pid: int = 0
    start_token: str = ""
    directory: str = ""
    memory_mb: int
    cores: int
    launched_ms: int


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """How a container ended. `code` as a shell has it, negative for a signal, None when nobody saw it.

    `kind`: `exited` by itself (or by a signal of somebody else), `killed` by the launcher, over its `memory` limit,
    or `lost` (it is gone, and with it the word of how). `reason` is one line for people.
    """

    kind: ExitKind
    code: int | None
    reason: str


LogName = Literal["stdout", "stderr"]
ExitListener = Callable[[ContainerDescriptor, ContainerExit], None]
"""Called once for each container that this launcher object launched or attached, on a thread of the launcher's own. It
must return at once and must not call the launcher."""


class ContainerPlace(ABC):
    """Where containers run, for whoever starts, finds and ends them but does not watch them. Thread-safe."""

    @abstractmethod
    def launch(self, request: ContainerRequest) -> ContainerDescriptor:
        """Have a container run, now or as soon as there is room for it. Raises LauncherError; then nothing runs."""

    @abstractmethod
    def poll(self, container: ContainerDescriptor) -> ContainerExit | None:
        """How the container ended, or None while it runs or waits for room. Raises LauncherError: nobody can tell just
        now."""

    @abstractmethod
    def kill(self, container: ContainerDescriptor) -> None:
        """End the container and everything below it, and nothing else, now. Idempotent; nothing of it runs on return.

        A container that ended by itself before keeps its own exit. Raises ContainerUnreachable when its machine does
        not say that it has ended: then it may still run there.
        """

    @abstractmethod
    def containers(self, registry: str, dataflow: str) -> list[ContainerDescriptor]:
        """The containers of a dataflow of this registry that have not ended, whoever launched them, oldest first.
        Raises LauncherError: nobody can tell just now."""

    @abstractmethod
    def log_tail(self, container: ContainerDescriptor, name: LogName, lines_max: int = 12) -> str:
        """The last lines of its output that say something, also after its end; an empty string where it has said
        nothing, or nobody has kept it."""

    @abstractmethod
    def close(self) -> None:
        """Let go of them: they go on. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class ContainerLauncher(ContainerPlace):
    """Runs containers for a master, and watches them: those that it launches, and those that it is told to."""

    @abstractmethod
    def attach(self, container: ContainerDescriptor) -> None:
        """Watch a container that another process launched. One that has ended meanwhile is reported at once."""

    def waiting(self) -> frozenset[str]:
        """The names of containers that were launched and wait for room; none where they start at once."""
        return frozenset()

    def ageing(self) -> frozenset[str]:
        """The names of containers that others are to be started for, as what they were given to show who they are ends
        in a while; none where that does not end."""
        return frozenset()

    @abstractmethod
    def on_exit(self, listener: ExitListener) -> None:
        """Tell `listener` of every exit from now on."""


def last_lines(data: bytes, lines_max: int) -> str:
    """The last lines of a log that say something."""
    lines = [line for line in data.decode(errors="replace").splitlines() if line.strip()]
    return "\n".join(lines[-lines_max:])


def tail_of_log(path: Path, lines_max: int = 12, bytes_max: int = 8192) -> str:
    """The last lines of a log file that say something, or an empty string when there is none."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - bytes_max))
            return last_lines(log.read(), lines_max)
    except FileNotFoundError:
        return ""
