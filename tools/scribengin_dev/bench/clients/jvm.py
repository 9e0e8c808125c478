"""The JVM of a peer's client in this process: they have no other way in that tells when a record came.

Started in a child process only: a process must not fork once it has a JVM.
"""

from __future__ import annotations

from collections.abc import Sequence

from scribengin.base.jvm import start_jvm_with

_OPTIONS = ("-Xmx2g", "-XX:+UseSerialGC")


def start_peer(jars: Sequence[str], log4j: str) -> None:
    """Start it with these jars; `log4j` is the configuration of what it logs. Raises JavaMissing."""
    start_jvm_with(jars, [*_OPTIONS, f"-Dlog4j2.configurationFile={log4j}"])
