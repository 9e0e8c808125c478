"""The life of a process of ours: it works whole, or it ends.

A thread that dies by an error takes its process along: what is left would hold its session, and so its tasks, and do
nothing. Whoever launched the process launches another one. A registry that is away for so long that it is gone for
good ends the process as well: nobody else would.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import NoReturn

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.diagnostics import configure_logging, tagged
from scribengin.base.process.openness import openness
from scribengin.base.process.variables import seconds_of
from scribengin.base.threads import delayed
from scribengin_registry.contract import ProtectedRegistry, Registry, SessionState
from scribengin_registry.errors import RegistryError, RegistryUnreachable
from scribengin_registry.opening import connect
from scribengin_registry.references import resolve_variables

_LOG = logging.getLogger(__name__)

EXIT_OK = 0
"""The process was removed, or told to end, and has given everything back."""
EXIT_FAILED = 1
"""An error, which is the last thing in its log. Where the config is to blame it is 2, as everywhere."""
EXIT_SESSION_LOST = 75
"""A worker's registry session expired, so its tasks are somebody else's; a new worker takes its place."""
EXIT_REGISTRY_GONE = 76
"""The process gave its registry up."""
PATIENCE_VARIABLE = "SCRIBENGIN_REGISTRY_PATIENCE_S"
"""For so many seconds a master or worker without a registry waits for it, then ends. Default: a day."""
PATIENCE_S = 24 * 3600.0
"""For so long a process without a registry waits for it to come back."""
_END_MAX_S = 60.0
_OURS = ("scribengin.", "scribengin_registry.")


def run_process(main: Callable[[list[str]], int]) -> NoReturn:
    """Be this process: `main` on the command line's arguments, then the end, with what it returns as the exit code."""
    threading.excepthook = _thread_died
    configure_logging()
    try:
        resolve_variables()
        code = main(sys.argv[1:])
    except Exception as error:  # noqa: BLE001  the process's outermost frame: it ends, and says why
        _LOG.warning(f"this process ends: {error!r}", exc_info=error, extra=tagged("process_ended"))
        code = EXIT_FAILED
    _end_within(_END_MAX_S, code)
    sys.exit(code)


def end_at_once(event: str, message: str, code: int) -> NoReturn:
    """End the process, whatever its threads are doing; the container's keeper ends what it has started."""
    _LOG.warning(message, extra=tagged(event))
    os._exit(code)


def connect_patiently(hosts: str, session_timeout_s: float) -> Registry:
    """A session with the registry, however long that is away: up to the patience of this process.

    Nobody launches a process again that gave up in an outage. From then on the process ends when the registry is away
    for longer than its patience. Raises RegistryUnreachable, and what `connect` raises.
    """
    patience_s = patience()
    deadline_s = SYSTEM_CLOCK.monotonic_s() + patience_s
    told = False
    while True:
        try:
            registry = connect(hosts, session_timeout_s=session_timeout_s)
        except RegistryUnreachable as error:
            if SYSTEM_CLOCK.monotonic_s() >= deadline_s:
                raise
            if not told:
                _LOG.warning(f"{error}; this process tries again for {patience_s:g} s", extra=tagged("registry_away"))
            told = True
            continue
        if told:
            _LOG.info(f"the registry at {hosts} answers", extra=tagged("registry_back"))
        RegistryPatience(registry, patience_s)
        _tell_of_open(registry)
        return registry


def _tell_of_open(registry: ProtectedRegistry) -> None:
    """Said once: who reads the log of a process may be nobody who uses commands."""
    with suppress(RegistryError):  # only a look; what the process is for tells of a registry that fails
        if (found := openness(registry)) is not None:
            _LOG.warning(found, extra=tagged("registry_open"))


def patience() -> float:
    """For how many seconds this process waits for its registry. Raises ConfigInvalid."""
    return seconds_of(PATIENCE_VARIABLE, PATIENCE_S)


class RegistryPatience:
    """Ends the process once its registry has been away for too long."""

    def __init__(self, registry: Registry, patience_s: float) -> None:
        self._registry = registry
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        registry.on_session(self._on_session)
        self._on_session(registry.state)

    def _on_session(self, state: SessionState) -> None:
        with self._lock:
            if state in (SessionState.CONNECTED, SessionState.CLOSED):
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = None
            elif self._timer is None:
                self._timer = delayed("registry-patience", self._patience_s, self.give_up)
                self._timer.start()

    @property
    def waits(self) -> bool:
        """Whether the registry is away."""
        return self._timer is not None

    def give_up(self) -> None:
        """Called when it has been away for too long."""
        if self._registry.state in (SessionState.CONNECTED, SessionState.CLOSED):
            return  # it came back just now
        text = (
            f"no ZooKeeper server at {self._registry.hosts} has answered for {self._patience_s:g} s "
            f"({PATIENCE_VARIABLE}): this process takes its registry for gone, and ends; `scribengin start` launches "
            "the dataflow again"
        )
        end_at_once("registry_gone", text, EXIT_REGISTRY_GONE)


def _thread_died(died: threading.ExceptHookArgs) -> None:
    """Called by Python on the thread that ends by an error. Threads that others have started are theirs."""
    name = died.thread.name if died.thread is not None else "a thread"
    error = died.exc_value if died.exc_value is not None else died.exc_type()
    if _began_in(died.exc_traceback).startswith(_OURS):
        _LOG.warning(f"{name} died of {error!r}, and this process with it", exc_info=error, extra=tagged("thread_died"))
        os._exit(EXIT_FAILED)
    if not isinstance(error, SystemExit):
        _LOG.warning(
            f"{name}, a thread that is not ours, died of {error!r}", exc_info=error, extra=tagged("thread_died")
        )


def _began_in(trace: TracebackType | None) -> str:
    """The module whose function the thread was to run."""
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module != threading.__name__:
            return module
        trace = trace.tb_next
    return ""


def _end_within(limit_s: float, code: int) -> None:
    """Threads of others may keep a process from ending: then it is ended."""
    delayed("end", limit_s, lambda: os._exit(code)).start()
