"""How each program of the tools begins."""

from __future__ import annotations

import io
import os
import signal
import sys
from importlib import import_module

from scribengin_registry.client import interrupt


def run_program(module: str) -> None:
    """Import `module`, and call its `main`.

    Imports take a second or two. Ctrl-C meanwhile just ends the process, as it ends one that is written in C: Python
    would print a traceback from the middle of somebody's module, and there are modules that swallow it, so that the
    program would run on. Afterwards it interrupts where that is heard.
    """
    _open_all_streams()
    before = signal.getsignal(signal.SIGINT)
    interrupted = before is signal.default_int_handler
    if interrupted:  # and not ignored, as `nohup` and shells have it for what runs behind
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    main = import_module(module).main
    signal.signal(signal.SIGINT, interrupt if interrupted else before)
    main()


def _open_all_streams() -> None:
    """Have what the caller has closed, as by `>&-`, be nothing from now on. Python has no stream there, so what is said
    on stderr would come on stdout; and the next file that is opened would be the one that libraries and child processes
    write to. What stdout cannot encode is written out, as stderr does: names of files may be any bytes.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
