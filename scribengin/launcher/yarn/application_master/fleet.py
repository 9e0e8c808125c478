"""The containers of one application: asked for, started, heard of, found again after their master's death.

One fleet a master process; launchers look at it. What a crash leaves, at each step of a launch:

| step                                            | the next master finds                      | and says       |
|-------------------------------------------------|--------------------------------------------|----------------|
| record: a node in the registry, no room yet      | a record without room                       | lost           |
| ask; room given, and written into the record     | a record whose container YARN does not know | lost           |
|                                                 | (it takes unused room back)                |                |
| started                                         | its container among the earlier attempts'  | it runs        |
| ended, and YARN's word not written yet          | YARN's word, given again                   | how it ended   |

Nothing is ever started whose record does not say where. A container of an earlier attempt that no record knows, or
whose record says that it has ended, is given back, which kills it.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from scribengin.base.diagnostics import tagged
from scribengin.base.failpoints import failpoint
from scribengin.base.threads import background
from scribengin.errors import LauncherError
from scribengin.launcher.contract import ContainerDescriptor, ContainerExit
from scribengin.launcher.yarn.application_master.exits import exit_of
from scribengin.launcher.yarn.application_master.resource_manager import (
    ApplicationMaster,
    AttemptOver,
    Completed,
    Grant,
    RequestRefused,
)
from scribengin.launcher.yarn.container_records import ContainerRecordDescriptor, ContainerRecords
from scribengin.launcher.yarn.launching import Program
from scribengin.launcher.yarn.roster import KILL_TIMEOUT_S, Member, Roster
from scribengin_registry.errors import RegistryError

_LOG = logging.getLogger(__name__)

IDLE_BEAT_S = 0.5
BUSY_BEAT_S = 0.2
_STARTERS = 4
_SETTLING_BEATS = 2


@dataclass(slots=True)
class YarnMember(Member):
    """One container, and what YARN has been asked and has given for it."""

    program: Program | None = None
    request: int = 0
    grant: Grant | None = None
    starting: Future[None] | None = None


class Fleet(Roster[YarnMember]):
    """The containers of this process's application. Thread-safe. `over` is called once YARN has given this master
    up, with the reason."""

    def __init__(self, master: ApplicationMaster, records: ContainerRecords, over: Callable[[str], None]) -> None:
        """Find what earlier attempts have left. Raises LauncherError, RegistryError."""
        super().__init__(records)
        self._master = master
        self._over = over
        self._requests = itertools.count(1)
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._beats = 0
        self._starters = ThreadPoolExecutor(_STARTERS, thread_name_prefix="container-start")
        self._restore()
        self._thread = background("application-master", self._run)
        self._thread.start()

    # -- for launchers

    def launch(self, container: ContainerDescriptor, program: Program) -> None:
        member = YarnMember(ContainerRecordDescriptor(container=container), program=program)
        self._create(member)
        with self._changed:
            member.request = next(self._requests)
            self._members[container.id] = member
        try:
            self._master.ask(member.request, container.memory_mb, container.cores)
        except LauncherError as error:
            self._end(member, ContainerExit("lost", None, str(error)), tell=False)
            raise
        self._wake.set()
        self._forget_oldest()

    def kill(self, container: ContainerDescriptor) -> None:
        member = self._members.get(container.id)
        if member is None or member.exit is not None:
            return
        with self._changed:
            member.killing = True
            waiting = member.record.yarn_id is None
        if waiting:
            self._master.withdraw(member.request)
            self._end(member, ContainerExit("killed", None, "killed by the launcher before YARN had room for it"))
            return
        if member.starting is not None:
            wait([member.starting], KILL_TIMEOUT_S / 2)  # or it would be started after it was stopped
        if member.grant is not None:
            self._stop(member.grant)
        self._await_end(member)

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        self._thread.join(BUSY_BEAT_S + IDLE_BEAT_S)
        self._starters.shutdown(wait=False, cancel_futures=True)

    # -- beginning

    def _restore(self) -> None:
        for record in self._records.all():
            self._members[record.container.id] = YarnMember(record)
        self._find(self._master.earlier)
        for member in self._all():
            if member.exit is None and member.record.yarn_id is None:
                self._end(member, ContainerExit("lost", None, "its master ended before YARN had room for it"))

    def _find(self, grants: tuple[Grant, ...]) -> None:
        """Containers of earlier attempts that run."""
        by_yarn_id = {member.record.yarn_id: member for member in self._all() if member.record.yarn_id}
        for grant in grants:
            member = by_yarn_id.get(grant.yarn_id)
            if member is None or member.exit is not None:
                self._master.release(grant)
            else:
                member.grant = grant

    def _settle(self) -> None:
        """What YARN has not spoken of by now it does not know."""
        for member in self._all():
            if member.exit is None and member.record.yarn_id is not None and member.grant is None:
                self._end(member, ContainerExit("lost", None, "YARN does not know it any more"))

    # -- the master's thread

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._beat()
            except AttemptOver as error:
                self._over(str(error))
                return
            except RequestRefused as error:
                self._refuse(str(error))
            except LauncherError as error:
                _LOG.warning(
                    str(error), extra=tagged("resource_manager_away")
                )  # the ResourceManager is away: what runs goes on
            except Exception as error:  # noqa: BLE001  the thread's outermost loop: the master ends, and says why
                why = f"the application master's thread has ended: {error!r}"
                _LOG.warning(why, exc_info=error, extra=tagged("fleet_ended"))
                self._over(why)
                return
            self._wake.wait(BUSY_BEAT_S if self._busy() else IDLE_BEAT_S)
            self._wake.clear()

    def _busy(self) -> bool:
        """Whether news is to be expected soon."""
        waits = any(m.exit is None and (m.grant is None or m.killing) for m in self._all())
        return waits or self._beats <= _SETTLING_BEATS

    def _beat(self) -> None:
        self._write_what_is_due()
        for member in self._all():
            if member.starting is not None and member.starting.done() and member.exit is None:
                member.starting.result()  # what nobody has foreseen is raised here
        news = self._master.heartbeat()
        self._find(news.found)
        for grant in news.granted:
            self._place(grant)
        for completed in news.completed:
            self._complete(completed)
        self._beats += 1
        if self._beats == _SETTLING_BEATS:
            self._settle()

    def _refuse(self, why: str) -> None:
        """Nobody can say which of those that wait it was: whoever wants them asks again."""
        for member in [m for m in self._all() if m.exit is None and m.record.yarn_id is None]:
            self._master.withdraw(member.request)
            self._end(member, ContainerExit("lost", None, why))

    def _place(self, grant: Grant) -> None:
        """Use the room that YARN has given, or give it back."""
        with self._changed:
            member = next((m for m in self._members.values() if m.request == grant.request and m.grant is None), None)
            if member is not None and member.exit is None and not member.killing:
                member.grant = grant
                member.record = member.record.placed(grant.yarn_id, grant.node, grant.web)
                member.written = False
                member.starting = self._starters.submit(self._start, member, grant)
        self._master.withdraw(grant.request)
        if member is None or member.grant is not grant:
            self._master.release(grant)

    def _start(self, member: YarnMember, grant: Grant) -> None:
        """Write where it will run, then run it."""
        try:
            with failpoint("yarn.trace_place"):
                self._write(member)
            if member.killing:
                self._master.release(grant)  # YARN says that it has ended
                return
            assert member.program is not None
            with failpoint("yarn.start"):
                self._master.start(grant, member.program)
        except (LauncherError, RegistryError) as error:
            self._master.release(grant)
            self._end(member, ContainerExit("lost", None, f"it was not started: {error}"))

    def _complete(self, completed: Completed) -> None:
        member = next((m for m in self._all() if m.record.yarn_id == completed.yarn_id), None)
        if member is not None and member.exit is None:
            memory_mb = member.container.memory_mb
            self._end(member, exit_of(completed.status, completed.diagnostics, memory_mb, killing=member.killing))

    def _stop(self, grant: Grant) -> None:
        """Have its node end it, or at least YARN take the room back."""
        stopping: Future[None] = self._starters.submit(self._master.stop, grant)
        try:
            stopping.result(KILL_TIMEOUT_S / 2)
        except (LauncherError, TimeoutError):
            self._master.release(grant)
        self._wake.set()
