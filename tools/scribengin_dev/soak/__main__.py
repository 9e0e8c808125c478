"""`python -m scribengin_dev.soak`: see `command.py`."""

from __future__ import annotations

from scribengin_tools.cli.program import run_program

if __name__ == "__main__":
    run_program("scribengin_dev.soak.command")
