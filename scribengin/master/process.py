"""The process of a master: a candidate, a leader, a candidate again, until the dataflow comes to its end."""

from __future__ import annotations

import queue
import signal
from dataclasses import replace

from scribengin.base.clock import Clock
from scribengin.base.threads import pause
from scribengin.dataflow.registry.descriptors import HistoryEvent
from scribengin.dataflow.registry.view import DataflowView
from scribengin.launcher.contract import ContainerLauncher
from scribengin.master.leadership import (
    RETRY_S,
    Demoted,
    Elected,
    Ending,
    Exited,
    Leadership,
    MasterSettings,
    Terminated,
    Wakeups,
)
from scribengin.master.monitoring import monitored
from scribengin.master.state.absences import Absences
from scribengin_registry.contract import Registry
from scribengin_registry.election import CandidateState, Election
from scribengin_registry.errors import RegistryError


class Master:
    """Stands for election, and leads whenever it is elected. `run` blocks; `end` may be called by any thread."""

    def __init__(self, registry: Registry, launcher: ContainerLauncher, settings: MasterSettings, clock: Clock) -> None:
        self._registry = registry
        self._launcher = launcher
        self._settings = settings
        self._clock = clock
        self._view = DataflowView(registry, settings.dataflow)
        self._wakeups: Wakeups = queue.SimpleQueue()
        self._leading = False
        self._absences = Absences(clock)
        self._election = Election(registry, self._view.paths.master, settings.name)

    def run(self) -> Ending:
        """Be a master until the dataflow is OVER, or this one is told to END. Raises what makes leading impossible."""
        self._launcher.on_exit(lambda container, how: self._wakeups.put(Exited(container, how)))
        self._registry.on_session(self._absences.heard)
        self._view.status()  # there is such a dataflow
        with monitored(self._view, self._settings.name, lambda: self._leading, self._clock) as metrics:
            self._settings = replace(self._settings, metrics=metrics)
            self._election.volunteer(self._on_standing)
            return self._stand()

    def end(self) -> None:
        """Have it leave, whatever it is just then."""
        self._wakeups.put(Terminated())

    def _stand(self) -> Ending:
        while True:
            match self._wakeups.get():
                case Elected():
                    ending = self._lead()
                    if ending is not Ending.REPLACED:
                        return ending
                    self._lead_again_if_still_elected()
                case Terminated():
                    return Ending.END
                case Demoted(error) if error is not None:
                    self._view.status()  # says it if the dataflow was deleted since
                    raise error
                case _:
                    continue  # of an earlier leadership

    def _lead(self) -> Ending:
        leadership = Leadership(
            self._registry,
            self._launcher,
            self._settings,
            self._wakeups,
            self._election.fence,
            self._clock,
            self._absences.take,
        )
        self._leading = True
        try:
            return leadership.run()
        except Exception as error:
            self._leave_word(error)
            raise
        finally:
            self._leading = False

    def _lead_again_if_still_elected(self) -> None:
        """The head was not to be had, or a word of a new election was missed: the election decides who leads."""
        if self._election.standing is CandidateState.LEADER:
            pause(RETRY_S)
            self._wakeups.put(Elected())

    def _leave_word(self, error: Exception) -> None:
        """The dataflow's history says why this master ended, if the registry still takes it."""
        text = f"{self._settings.name} ended: {error!r}"
        try:
            self._view.add_history([HistoryEvent(at_ms=self._clock.now_ms(), kind="master_failed", message=text)])
        except RegistryError:
            return  # the error itself goes on to the log of the process

    def _on_standing(self, standing: CandidateState) -> None:
        if standing is CandidateState.LEADER:
            self._wakeups.put(Elected())
        elif standing is not CandidateState.DOUBTFUL:
            self._wakeups.put(Demoted(self._election.error if standing is CandidateState.FAILED else None))


def run_master(registry: Registry, launcher: ContainerLauncher, settings: MasterSettings, clock: Clock) -> Ending:
    """Be a master, as this process: SIGTERM tells it to END. On the main thread. Raises what Master.run raises."""
    master = Master(registry, launcher, settings, clock)
    signal.signal(signal.SIGTERM, lambda *_: master.end())
    return master.run()
