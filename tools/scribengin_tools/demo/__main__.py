"""`python -m scribengin_tools.demo`: see `command.py`."""

from __future__ import annotations

from scribengin_tools.program import run_program

if __name__ == "__main__":
    run_program("scribengin_tools.demo.command")
