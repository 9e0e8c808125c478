"""The JVMs of a test run live for seconds, and what takes their time is to load classes and to compile them well.

So they are compiled lightly, and Spark's take their classes from an archive that the first run makes: a session has
started in 2.3 s instead of 5.5, and takes a third of the processor's time. All of it reaches them by the environment:
what is tested starts them as it always does.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from scribengin.spark.session.class_archive import ARCHIVE_VARIABLE, make, mark, using
from scribengin_dev.servers.java_server import OPTIONS_VARIABLE
from scribengin_registry.java.runtime import JavaRuntime, find_java

_LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CACHE = Path(__file__).parents[2] / ".cache"


def start_jvms_lightly(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set what `spark-submit` and our servers read of `environ`, after what stands there.

    Makes the archive when there is none of this Java and this Spark, unless that Java cannot use one. Raises
    JavaMissing.
    """
    environ[ARCHIVE_VARIABLE] = "off"  # one that is made beside tests costs them the processor
    archive = _archive(find_java())
    shared = f" {using(archive)}" if archive else ""
    for name, options in {
        "SPARK_LAUNCHER_OPTS": _LIGHT,
        "SPARK_SUBMIT_OPTS": _LIGHT + shared,
        OPTIONS_VARIABLE: _LIGHT,
    }.items():
        before = environ.get(name, "")
        if options not in before:
            environ[name] = f"{before} {options}".strip()


def _archive(java: JavaRuntime) -> Path | None:
    path = CACHE / f"spark-classes-{mark(java)}.jsa"
    if not path.is_file():
        make(path, java, _LIGHT)
    return path if path.stat().st_size else None
