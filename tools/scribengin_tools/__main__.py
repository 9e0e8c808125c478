"""`scribengin`, and `python -m scribengin_tools`: see `cli/main.py`."""

from __future__ import annotations

from scribengin_tools.cli.program import run_program


def main() -> None:
    """The console command."""
    run_program("scribengin_tools.cli.main")


if __name__ == "__main__":
    main()
