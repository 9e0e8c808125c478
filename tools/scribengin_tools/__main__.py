"""`scribengin`, and `python -m scribengin_tools`: see `cli.py`."""

from __future__ import annotations

from scribengin_tools.program import run_program


def main() -> None:
    """The console command."""
    run_program("scribengin_tools.cli")


if __name__ == "__main__":
    main()
