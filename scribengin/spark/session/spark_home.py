"""Spark's home without PySpark in a zip.

Spark has its Python processes import from `$SPARK_HOME/python/lib/pyspark.zip` before anything else. Modules in a zip
have no bytecode: each process compiles PySpark anew, half a second of a processor's time, and a session starts a dozen
(one that forks workers for every kind of work that Python does for it). So the home of our sessions is a directory of
links to what a session needs of the installed PySpark, without that zip: it comes from where this process has it.

It lies in the cache, because the archive of Spark's classes is good for one class path only (class_archive.py).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyspark

from scribengin_registry.java.runtime import cache_directory

_LINKED = ("bin", "conf", "jars", "sbin")
"""`conf` may be made by a user any time."""


def installed() -> Path:
    """Spark's home as it is installed, with the zip."""
    return Path(pyspark.__file__).parent


def zips() -> list[Path]:
    """PySpark and Py4J as Spark sends them to executors, whose nodes need not have them."""
    return sorted((installed() / "python" / "lib").glob("*.zip"))


def spark_home(scratch: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """The home of links, made where it is not there yet: in the cache, or in `scratch` where that cannot be written. A
    container of YARN leaves nothing behind: it takes the one in the cache where there is one. Where no links can be
    made, it is the installed one, with which everything takes longer."""
    with suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        if "CONTAINER_ID" not in environ or cached().is_dir():
            return _linked(cached())
    with suppress(OSError):
        return _linked(scratch / "spark-home")
    return installed()


def cached() -> Path:
    """Where it is in the cache. Raises RuntimeError."""
    mark = hashlib.sha256(str(installed()).encode()).hexdigest()[:16]
    return cache_directory() / f"spark-home-{mark}"


def _linked(home: Path) -> Path:
    """Any number of processes may make the links at once."""
    home.mkdir(parents=True, exist_ok=True)
    for name in _LINKED:
        with suppress(FileExistsError):
            (home / name).symlink_to(installed() / name)
    return home
