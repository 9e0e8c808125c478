"""Java in this process, through JPype: the clients of the peers have no other way in that tells when a record came.

Started in a child process only: a process must not fork once it has a JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jpype

from scribengin_registry.java.runtime import find_java

_OPTIONS = ("-Xrs", "-Xmx2g", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true")


def start_jvm(jars: Sequence[str], log4j: str) -> None:
    """Start it with these jars; `log4j` is the configuration of what it logs. Raises JavaMissing."""
    library = next(find_java().home.glob("**/libjvm.so"), None)
    place = str(library) if library else None
    jpype.startJVM(place, *_OPTIONS, f"-Dlog4j2.configurationFile={log4j}", classpath=list(jars), convertStrings=False)


def java(name: str) -> Any:
    """A Java class."""
    return jpype.JClass(name)


def java_bytes(data: bytes) -> Any:
    """A byte[]."""
    return jpype.JArray(jpype.JByte)(data)
