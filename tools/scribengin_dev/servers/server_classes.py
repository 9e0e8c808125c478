"""Archives of the classes that servers and tools of Java's load (Java's class data sharing): with one, each of them
starts in half of the processor's time.

The first process of a kind leaves its archive behind as it ends, and later ones take it. A kind is a class to run, in a
class path, on a Java. Java looks itself whether an archive is whole and fits, and does without one that does not.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin_registry.java.runtime import JavaRuntime

ARCHIVES_VARIABLE = "SCRIBENGIN_SERVER_CLASS_ARCHIVES"
"""A directory where servers and tools of Java's keep archives of their classes, with which they start sooner."""
_SILENT = ("-Xlog:disable", "-Xlog:all=error:stderr")
_UNFINISHED = bytes(4)
"""What an archive begins with until it is whole."""
_MAKING_S = 3600.0
"""Who has not left one by then has been killed."""


def archive_options(main: str, arguments: Sequence[str], jars: Sequence[Path], java: JavaRuntime) -> list[str]:
    """What a JVM that runs the class `main` of these jars is told: to take the archive, to make it, or nothing. Some of
    Hadoop's servers are told to do something else by arguments: then they load little."""
    folder = os.environ.get(ARCHIVES_VARIABLE)
    if not folder:
        return []
    try:
        archive = Path(folder) / f"{main.rpartition('.')[2]}-{_mark(main, bool(arguments), jars, java)}.jsa"
        if _is_whole(archive):
            return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *_SILENT]
        if _is_first(archive.with_suffix(".making")):
            return [f"-XX:ArchiveClassesAtExit={archive}", *_SILENT]
    except OSError:  # there is no such place, or none that can be written, or no such jar
        return []
    return []


def _mark(main: str, told: bool, jars: Sequence[Path], java: JavaRuntime) -> str:
    """Java takes jars for others once they were installed anew, though they are the same."""
    parts: list[object] = [main, told, java.home, java.major]
    for jar in jars:
        if jar.suffix == ".jar":
            about = jar.stat()
            parts += [jar, about.st_size, about.st_mtime_ns]
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


def _is_whole(archive: Path) -> bool:
    try:
        with archive.open("rb") as file:
            return file.read(len(_UNFINISHED)) not in (b"", _UNFINISHED)
    except FileNotFoundError:
        return False


def _is_first(making: Path) -> bool:
    """Whether nobody else makes it."""
    making.parent.mkdir(parents=True, exist_ok=True)
    try:
        if SYSTEM_CLOCK.now_ms() / 1000 - making.stat().st_mtime > _MAKING_S:
            making.unlink(missing_ok=True)
    except FileNotFoundError:
        pass
    try:
        making.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
