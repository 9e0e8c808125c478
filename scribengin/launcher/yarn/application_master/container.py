"""What runs first in a worker's container: it starts the program, holds it to its memory, and lets nothing outlive it.

YARN ends a container by a signal to one process group, so what has made itself a group of its own (as Spark's Python
workers do) would stay. Every process below carries the container's id in its environment, and is ended with it: by this
process, or, where SIGKILL was faster, by a sweeper that it has left in a session of its own. And where YARN looks at
memory at all, it counts the files that a container has mapped. What the program prints goes through pipes into the
files that this process was given, which are rotated (output.py): a full disk is no trouble of who prints.

Run as `python -m scribengin.launcher.yarn.application_master.container MEMORY_MB PROGRAM [ARGUMENT ...]`; exits as a
shell says what became of the program: 128 + n for signal n, 127 when it could not be started; OVER_MEMORY with the
reason as the last line of stderr.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scribengin.base.process.variables import CONTAINER_VARIABLE
from scribengin.launcher.local.output import OutputFile, Pumps, regular_file
from scribengin.launcher.local.processes import Group
from scribengin.launcher.local.supervisor import LAST_OUTPUT_MAX_S, in_the_container, pause, watch

OVER_MEMORY = 96
_NOT_STARTED = 127
_SIGNALLED = 128


def main(memory_mb: int, argv: Sequence[str]) -> int:
    """Run the program to its end. Returns the exit code."""
    me = os.getpid()
    mark = os.environ.get("CONTAINER_ID") or f"{me}@{os.getppid()}"
    group = Group(me, mark)
    _leave_a_sweeper(mark)
    files = [regular_file(descriptor) for descriptor in (1, 2)]
    pumps = Pumps([file for file in files if file is not None])
    ends = iter(pumps.ends)
    try:
        process = subprocess.Popen(
            argv,
            env={**os.environ, CONTAINER_VARIABLE: mark},
            stdin=subprocess.DEVNULL,
            stdout=None if files[0] is None else next(ends),
            stderr=None if files[1] is None else next(ends),
            preexec_fn=lambda: in_the_container(me),  # safe: this process has one thread
        )
    except OSError as error:
        _last_words(f"could not be started: {error}", files[1])
        return _NOT_STARTED
    finally:
        pumps.start()
    signal.signal(signal.SIGTERM, lambda *_: group.kill(pause))  # SIGKILL follows in a quarter of a second
    over = watch(process, group, memory_mb)
    group.kill(pause)
    code = process.wait()
    pumps.join(LAST_OUTPUT_MAX_S)
    if over is not None:
        _last_words(over, files[1])
        return OVER_MEMORY
    return code if code >= 0 else _SIGNALLED - code


def _last_words(words: str, stderr: Path | None) -> None:
    """The last line of stderr. Not even a full disk changes the exit code."""
    if stderr is not None:
        file = OutputFile(stderr)
        file.write(f"{words}\n".encode(errors="backslashreplace"))
        file.close()
        return
    with contextlib.suppress(OSError):
        print(words, file=sys.stderr, flush=True)


def _leave_a_sweeper(mark: str) -> None:
    """A process that no signal to the container's group reaches: when this one has gone, it ends what is left."""
    keeper = os.pidfd_open(os.getpid())
    if os.fork():  # safe: this process has one thread
        os.close(keeper)
        return
    try:
        os.setsid()
        os.chdir("/")
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)  # or who reads the container's output would wait for its end, too
        gone = select.poll()
        gone.register(keeper, select.POLLIN)
        gone.poll()
        Group(os.getpid(), mark).kill(pause)  # by its mark alone: the keeper's session may be somebody else's by now
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
