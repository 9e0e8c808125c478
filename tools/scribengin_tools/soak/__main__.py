"""`python -m scribengin_tools.soak`: see `command.py`."""

from __future__ import annotations

from scribengin_tools.program import run_program

if __name__ == "__main__":
    run_program("scribengin_tools.soak.command")
