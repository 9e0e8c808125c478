"""The containers of one application as its master knows them, and as their records in the registry tell of them."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from scribengin.base.diagnostics import tagged
from scribengin.base.failpoints import failpoint
from scribengin.errors import ContainerUnreachable, LauncherError
from scribengin.launcher.contract import ContainerDescriptor, ContainerExit
from scribengin.launcher.yarn.client import node_web
from scribengin.launcher.yarn.container_records import ContainerRecordDescriptor, ContainerRecords
from scribengin.launcher.yarn.launching import Program
from scribengin_registry.errors import RegistryError

_LOG = logging.getLogger(__name__)

KILL_TIMEOUT_S = 20.0
"""So long a node may take to say that what it was told to kill has ended."""
KEPT_MAX = 100
"""Of so many containers the records stay; then those of the oldest ended ones go."""

Told = Callable[[ContainerDescriptor, ContainerExit], None]


@dataclass(slots=True)
class Member:
    """One container. `written`: whether the registry knows as much."""

    record: ContainerRecordDescriptor
    killing: bool = False
    written: bool = True

    @property
    def container(self) -> ContainerDescriptor:
        return self.record.container

    @property
    def exit(self) -> ContainerExit | None:
        return self.record.how_ended


MemberT = TypeVar("MemberT", bound=Member)


class Roster(ABC, Generic[MemberT]):
    """The containers of this process's application, for launchers to look at. Thread-safe.

    Who derives from it starts and ends containers, and says so with `_add`, `_end` and what it writes.
    """

    def __init__(self, records: ContainerRecords) -> None:
        self._records = records
        self._told: list[Told] = []
        self._changed = threading.Condition()
        self._members: dict[str, MemberT] = {}

    @abstractmethod
    def launch(self, container: ContainerDescriptor, program: Program) -> None:
        """Leave a record, ask for room; the rest comes by itself. Raises LauncherError, RegistryError."""

    @abstractmethod
    def kill(self, container: ContainerDescriptor) -> None:
        """Return once it is known to have ended. Raises ContainerUnreachable when it is not in time."""

    @abstractmethod
    def close(self) -> None:
        """Stop listening; containers go on."""

    def exit(self, container: ContainerDescriptor) -> ContainerExit | None:
        """How it ended, None while it runs or waits for room."""
        member = self._members.get(container.id)
        if member is None:
            return ContainerExit("lost", None, "nobody knows of it any more")
        return member.exit

    def running(self) -> list[ContainerDescriptor]:
        """Those that have not ended, oldest first."""
        found = [member.container for member in self._all() if member.exit is None]
        return sorted(found, key=lambda container: (container.launched_ms, container.id))

    def waiting(self) -> list[str]:
        """The names of those for which there is no room yet."""
        return [m.container.name for m in self._all() if m.exit is None and m.record.yarn_id is None]

    def log_end(self, container: ContainerDescriptor, stream: str, bytes_max: int) -> bytes:
        """The end of its output, as long as its node has it."""
        member = self._members.get(container.id)
        record = member.record if member is not None else None
        if record is None or record.yarn_id is None or record.web is None:
            return b""
        return node_web.log_end(record.web, record.yarn_id, stream, bytes_max)

    def on_exit(self, told: Told) -> None:
        """Call `told` at every exit, on a thread of the fleet's."""
        with self._changed:
            self._told.append(told)

    def forget(self, told: Told) -> None:
        """The opposite."""
        with self._changed:
            self._told = [known for known in self._told if known != told]

    # -- for those who derive

    def _all(self) -> list[MemberT]:
        with self._changed:
            return list(self._members.values())

    def _create(self, member: MemberT) -> None:
        """Leave the first record of a container, before anything else of it is. Raises as `ContainerRecords.create`."""
        with failpoint("yarn.trace"):
            self._records.create(member.record)

    def _await_end(self, member: MemberT) -> None:
        """Return once it is known to have ended. Raises ContainerUnreachable when it is not in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: member.exit is not None, KILL_TIMEOUT_S):
                raise ContainerUnreachable(
                    f"container '{member.container.name}' ({member.record.yarn_id}) was told to end, and "
                    f"{member.record.node} does not say that it has: what YARN has lost sight of may go on there, but "
                    "is fenced"
                )

    def _end(self, member: MemberT, how: ContainerExit, *, tell: bool = True) -> None:
        """It has ended so: unless it had before, write it down and say so."""
        with self._changed:
            if member.exit is not None:
                return
            member.record = member.record.ended(how)
            member.written = False
            told = list(self._told) if tell else []
            self._changed.notify_all()
        self._write_what_is_due()
        for listener in told:
            listener(member.container, how)

    def _write_what_is_due(self) -> None:
        """Ends that the registry did not take before are written as soon as it does."""
        for member in [m for m in self._all() if not m.written and m.exit is not None]:
            try:
                with failpoint("yarn.trace_end"):
                    self._write(member)
            except RegistryError:
                return
            except LauncherError as error:
                member.written = True
                _LOG.warning(str(error), extra=tagged("container_end_unknown"))

    def _write(self, member: MemberT) -> None:
        with self._changed:
            record = member.record
            self._records.write(record)
            member.written = record is member.record

    def _forget_oldest(self) -> None:
        """Something that dies at once and is launched again for days must not fill the registry."""
        with self._changed:
            ended = [m.container.id for m in self._members.values() if m.exit is not None and m.written]
            gone = ended[: max(0, len(self._members) - KEPT_MAX)]
            for name in gone:
                del self._members[name]
        for name in gone:
            self._records.forget(name)
