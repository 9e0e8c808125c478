"""Running the crash flow in processes of their own, each stopped as a case wants it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from scribengin.base.failpoints import set_hook
from scribengin.errors import ScribenginError, SystemUnreachable
from scribengin.testing.chaos_proxy import ChaosProxy
from scribengin.testing.failpoints import at_failpoint, kill_this_process, pause_this_process, record_stops
from scribengin.testing.standstill import await_standstill
from scribengin.testing.waiting import WaitedInVain
from scribengin_registry.opening import connect
from tests.crash.flow import Place, run_to_the_end
from tests.crash.stops import FINISHED, STALE, UNREACHABLE, Stop

# A fresh process for each owner, in milliseconds: forked from a server that has imported everything and started
# nothing.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.crash.processes"])

_TRIES_MAX = 5
_SESSION_S = (
    100  # nobody waits for one to end: owners give way to generations, and an undisturbed one must not lose its own
)


def start_owner(
    place: Place, generation: int, stop: Stop | None = None, record_to: Path | None = None
) -> ForkServerProcess:
    """Start an owner of all tasks of the flow, under `generation`."""
    process = _CONTEXT.Process(target=_own, args=(place, generation, stop, record_to))
    process.start()
    return process


def finish(process: ForkServerProcess, timeout_s: float = 180.0) -> int:
    """Wait for the owner's end: its exit code (negative: the signal)."""
    process.join(timeout_s)
    if process.exitcode is None:
        process.kill()
        raise WaitedInVain(f"an owner did not end within {timeout_s} s")
    return process.exitcode


def own_to_the_end(place: Place, generation: int) -> int:
    """Run an owner that nobody stops: its exit code. When a system has not answered it, it is started again, as a
    worker asks again."""
    for _ in range(_TRIES_MAX):
        code = finish(start_owner(place, generation))
        if code != UNREACHABLE:
            break
    return code


def wait_until_stopped(process: ForkServerProcess) -> bool:
    """Wait until the process is stalled by SIGSTOP (True) or has ended without meeting its stop (False)."""

    assert process.pid is not None
    return await_standstill(process.pid)


def resume(process: ForkServerProcess) -> None:
    """Let a stalled owner go on."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)


def _own(place: Place, generation: int, stop: Stop | None, record_to: Path | None) -> None:
    owner = f"owner-{generation}"
    try:
        if record_to is not None:
            with record_stops() as passed:
                _run(place, generation, owner, place.hosts)
            record_to.write_text("\n".join(passed))
        elif stop is None:
            _run(place, generation, owner, place.hosts)
        elif stop.action == "lose_reply":
            _run_losing_a_reply(place, generation, owner, stop)
        else:
            action = kill_this_process if stop.action == "kill" else pause_this_process
            with at_failpoint(stop.name, action, occurrence=stop.occurrence):
                _run(place, generation, owner, place.hosts)
    except ScribenginError as error:
        print(f"{owner}: {type(error).__name__}: {error}", file=sys.stderr)
        os._exit(UNREACHABLE if isinstance(error, SystemUnreachable) else STALE)
    finally:
        set_hook(None)
    os._exit(FINISHED)


def _run(place: Place, generation: int, owner: str, hosts: str) -> None:
    with connect(hosts, session_timeout_s=_SESSION_S) as registry:
        run_to_the_end(registry, place, generation, owner)


def _run_losing_a_reply(place: Place, generation: int, owner: str, stop: Stop) -> None:
    address, _, chroot = place.hosts.partition("/")
    with (
        ChaosProxy(address) as proxy,
        at_failpoint(stop.name, lambda _stop: proxy.drop_next_reply(), occurrence=stop.occurrence),
    ):
        _run(place, generation, owner, f"{proxy.address}/{chroot}")
