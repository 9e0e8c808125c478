"""The workers of one skein application: asked for, heard of, found again after their master's death.

Our master is a service of the application beside its workers, so its death leaves them running; skein starts it again.
With skein's own application master they all die; YARN starts that again, and it a master, which finds nothing of them
but their records. What a crash of our master leaves, at each step of a launch:

| step                                      | the next master finds                     | and says     |
|-------------------------------------------|-------------------------------------------|--------------|
| record: a node in the registry             | a record without room                      | lost         |
| added: skein runs it once there is room   | the same, and an instance of no record,    | lost         |
|                                           | which it kills                            |              |
| running, and written into the record       | its instance, by YARN's name              | it runs      |
| ended, and the word of it not written yet | its instance among the ended ones         | how it ended |
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.diagnostics import tagged
from scribengin.base.failpoints import failpoint
from scribengin.base.threads import background
from scribengin.errors import LauncherError
from scribengin.launcher.contract import ContainerDescriptor, ContainerExit, last_lines
from scribengin.launcher.skein.client import ENDED, Instance, SkeinApplication
from scribengin.launcher.skein.exits import exit_of_instance
from scribengin.launcher.skein.spec import EXIT_LOG, PROGRAM_VARIABLE, program_words
from scribengin.launcher.yarn.client import node_web
from scribengin.launcher.yarn.container_records import ContainerRecordDescriptor, ContainerRecords
from scribengin.launcher.yarn.launching import Program, escaped
from scribengin.launcher.yarn.roster import KILL_TIMEOUT_S, Member, Roster
from scribengin_registry.errors import RegistryError

_LOG = logging.getLogger(__name__)

IDLE_BEAT_S = 0.5
BUSY_BEAT_S = 0.2
SILENCE_S = 15.0
"""After so long without word from skein's application master this one gives up: a partitioned one must not lead on."""
_STDERR_BYTES = 4096
_ASKED_MAX = 3  # times that a node is asked how a worker ended: who waits for a dead one waits for its replacement


@dataclass(slots=True)
class SkeinMember(Member):
    """One container, and which instance of the service `worker` it is. Of one that was killed: `gone`, whether its node
    has said that it ended, and `gone_by_s`, when it has had its time to. `asked`: how often the node of one that ended
    did not tell how."""

    instance: str | None = None
    gone: bool = False
    gone_by_s: float = 0.0
    asked: int = 0


class SkeinFleet(Roster[SkeinMember]):
    """The workers of this process's application. Thread-safe. `over` is called once skein has gone silent, with the
    reason."""

    def __init__(
        self,
        application: SkeinApplication,
        records: ContainerRecords,
        over: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """What earlier masters have left is looked for when somebody asks for it, and no instance is killed before: a
        process that does not lead yet may stand behind one that does, an orphan of a lost node that still launches."""
        super().__init__(records)
        self._application = application
        self._over = over
        self._clock = clock
        self._adding = threading.Lock()
        """Held so that nobody looks at the instances between the adding of one and the knowing of it."""
        self._leading = False
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._thread = background("skein-workers", self._run)
        self._thread.start()

    def sign(self, registry: str, dataflow: str, name: str, memory_mb: int, cores: int) -> None:
        """Leave a record of this process, for whoever looks for its output. Raises RegistryError."""
        yarn_id, web = self._application.yarn_id, self._application.web
        master = ContainerDescriptor(
            id=f"{name}-{yarn_id}",
            registry=registry,
            dataflow=dataflow,
            name=name,
            memory_mb=memory_mb,
            cores=cores,
            launched_ms=self._clock.now_ms(),
        )
        self._create(SkeinMember(ContainerRecordDescriptor(container=master).placed(yarn_id, web, web)))

    def running(self) -> list[ContainerDescriptor]:
        self._lead()
        return super().running()

    def exit(self, container: ContainerDescriptor) -> ContainerExit | None:
        self._lead()
        return super().exit(container)

    def launch(self, container: ContainerDescriptor, program: Program) -> None:
        self._lead()
        most_mb = self._application.worker_memory_mb
        if container.memory_mb > most_mb:
            raise LauncherError(
                f"container '{container.name}' is to have {container.memory_mb} MB, and this application's workers "
                f"have {most_mb} MB for its life: stop the dataflow and start it again"
            )
        member = SkeinMember(ContainerRecordDescriptor(container=container))
        self._create(member)
        words = {name: escaped(value) for name, value in program.env.items()}
        words[PROGRAM_VARIABLE] = program_words(list(program.argv))
        try:
            with self._adding, failpoint("skein.add"):
                member.instance = self._application.add(words)
                self._keep(member)
        except LauncherError as error:
            self._keep(member)  # one that was added all the same is nobody's, and killed at the next look
            self._end(member, ContainerExit("lost", None, str(error)), tell=False)
            raise
        self._wake.set()
        self._forget_oldest()

    def kill(self, container: ContainerDescriptor) -> None:
        member = self._members.get(container.id)
        if member is None or member.exit is not None or member.instance is None:
            return
        member.killing = True
        try:
            self._application.kill(member.instance)
        except LauncherError as error:
            _LOG.warning(
                str(error), extra=tagged("container_not_killed")
            )  # it has ended, or nobody answers: the next looks tell
        self._wake.set()
        self._await_end(member)

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        self._thread.join(BUSY_BEAT_S + IDLE_BEAT_S)

    # -- beginning

    def _keep(self, member: SkeinMember) -> None:
        with self._changed:
            self._members[member.container.id] = member

    def _lead(self) -> None:
        """From the first question on this process leads: what there is of the application is its business. Raises
        LauncherError, RegistryError."""
        if self._leading:
            return
        with self._adding:
            if not self._leading:
                self._restore()
                self._leading = True

    def _restore(self) -> None:
        found = {one.yarn_id: one for one in (self._application.workers() | self._application.workers(ENDED)).values()}
        for record in self._records.all():
            member = SkeinMember(record)
            self._keep(member)
            instance = found.get(record.yarn_id) if record.yarn_id is not None else None
            if instance is not None:
                member.instance = instance.id
            elif member.exit is None:
                self._end(member, ContainerExit("lost", None, "it ended, and no master saw how"))

    # -- this object's thread

    def _run(self) -> None:
        heard_s = self._clock.monotonic_s()
        while not self._closing.is_set():
            try:
                self._beat()
                heard_s = self._clock.monotonic_s()
            except LauncherError as error:
                _LOG.warning(str(error), extra=tagged("skein_master_silent"))
                if self._clock.monotonic_s() - heard_s > SILENCE_S:
                    self._over(f"skein's application master has been silent for {SILENCE_S:.0f} s")
                    return
            except Exception as error:  # noqa: BLE001  the thread's outermost loop: the master ends, and says why
                why = f"the thread that watches the workers has ended: {error!r}"
                _LOG.warning(why, exc_info=error, extra=tagged("fleet_ended"))
                self._over(why)
                return
            self._wake.wait(BUSY_BEAT_S if self._busy() else IDLE_BEAT_S)
            self._wake.clear()

    def _busy(self) -> bool:
        return any(m.exit is None and (m.record.yarn_id is None or m.killing) for m in self._all())

    def _beat(self) -> None:
        self._write_what_is_due()
        with self._adding:
            active = self._application.workers()
            if not self._leading:
                return
            ours = {m.instance: m for m in self._all() if m.exit is None and m.instance is not None}
        for name in active.keys() - ours.keys():
            self._application.kill(name)
        missing = ours.keys() - active.keys()
        ended = self._application.workers(ENDED) if missing else {}
        for name, member in ours.items():
            instance = active.get(name) or ended.get(name)
            if instance is not None:
                self._place(member, instance)
            if name in missing:
                self._ended(member, instance)

    def _place(self, member: SkeinMember, instance: Instance) -> None:
        """Write down where it runs, once skein says so."""
        if member.record.yarn_id is None and instance.yarn_id is not None and instance.web is not None:
            with self._changed:
                member.record = member.record.placed(instance.yarn_id, instance.web, instance.web)
                member.written = False
        if not member.written:
            try:
                with failpoint("skein.trace_place"):
                    self._write(member)
            except RegistryError as error:
                _LOG.warning(str(error), extra=tagged("record_not_written"))  # the next look writes it

    def _ended(self, member: SkeinMember, instance: Instance | None) -> None:
        """Skein says so as soon as it has been told to kill; its node may take longer."""
        if instance is not None and instance.state == "KILLED" and self._may_run(member):
            return
        web, yarn_id = member.record.web, member.record.yarn_id
        code, stderr = b"", b""
        if instance is not None and instance.state != "KILLED" and web is not None and yarn_id is not None:
            try:
                code = node_web.asked_log_end(web, yarn_id, EXIT_LOG, _STDERR_BYTES)
                stderr = node_web.log_end(web, yarn_id, "stderr", _STDERR_BYTES)
            except LauncherError:
                member.asked += 1
                if member.asked < _ASKED_MAX:
                    return  # the next look asks again
        memory_mb = member.container.memory_mb
        how = exit_of_instance(instance, code, last_lines(stderr, 1), memory_mb, killing=member.killing)
        self._end(member, how)

    def _may_run(self, member: SkeinMember) -> bool:
        """Whether its node still has processes of it, or does not say, for as long as that matters.

        The shells around a worker go at the first signal, the worker's processes perhaps not before the second, a
        quarter of a second later: it is over at the second look that finds it ended.
        """
        web, yarn_id = member.record.web, member.record.yarn_id
        if web is None or yarn_id is None:
            return False
        if not member.gone_by_s:
            member.gone_by_s = self._clock.monotonic_s() + 2 * KILL_TIMEOUT_S
        try:
            before, member.gone = member.gone, not node_web.runs(web, yarn_id)
            return not (before and member.gone)
        except LauncherError:
            return self._clock.monotonic_s() < member.gone_by_s
