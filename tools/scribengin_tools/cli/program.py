"""How each program of the tools begins."""

from __future__ import annotations

import signal
from importlib import import_module

from scribengin_registry.client import interrupt


def run_program(module: str) -> None:
    """Import `module`, and call its `main`.

    Imports take a second or two. Ctrl-C meanwhile just ends the process, as it ends one that is written in C: Python
    would print a traceback from the middle of somebody's module, and there are modules that swallow it, so that the
    program would run on. Afterwards it interrupts where that is heard.
    """
    before = signal.getsignal(signal.SIGINT)
    interrupted = before is signal.default_int_handler
    if interrupted:  # and not ignored, as `nohup` and shells have it for what runs behind
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    main = import_module(module).main
    signal.signal(signal.SIGINT, interrupt if interrupted else before)
    main()
