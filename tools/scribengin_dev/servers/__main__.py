"""`python -m scribengin_dev.servers fetch|lock [NAME ...]`: fetch jars beforehand, or resolve lock files anew."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from scribengin.errors import ScribenginError
from scribengin_dev.servers.jars.artifacts import jars_of, refresh_lock
from scribengin_dev.servers.jars.lock import lock_names


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an exit code."""
    parser = argparse.ArgumentParser(prog="scribengin_dev.servers", description=__doc__)
    parser.add_argument("command", choices=("fetch", "lock"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(lock_names())}; default: all")
    given = parser.parse_args(arguments)
    try:
        for name in given.names or lock_names():
            jars = len(jars_of(name) if given.command == "fetch" else refresh_lock(name).sums)
            print(f"{name}: {jars} jars", flush=True)
    except ScribenginError as error:
        print(f"scribengin_dev.servers: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
