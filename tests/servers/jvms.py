"""The JVMs of a test run live for seconds, and what takes their time is to load classes and to compile them well.

So they are compiled lightly, and Spark's take their classes from an archive that the first run makes: a session has
started in 2.3 s instead of 5.5, and takes a third of the processor's time. Classes without an archive are not verified:
that is a seventh of a server's start, and compilers wrote them. Plans are interpreted: to have Java compiled for a
handful of records costs a quarter of a test's time. Capitals are Java's, not ICU's, which the first `upper` of a JVM
would load: 2.3 s. The archive costs 40 s of the processor's time, and is made beside the first tests (`python -m
tests.servers.jvms`); the first test that needs Spark waits for it. All of it reaches them by the environment: what is
tested starts them as it always does. The demo and what looks for bad records run with compiled plans, as users' do
(`with_compiled_plans`, `compiled_plans`).
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from scribengin.base.jvm import OPTIONS_VARIABLE as JVM_OPTIONS_VARIABLE
from scribengin.spark.session.class_archive import ARCHIVE_VARIABLE, make, mark, using
from scribengin_dev.servers.java_server import OPTIONS_VARIABLE
from scribengin_registry.java.runtime import JavaRuntime, cache_directory, find_java

_COMPILED_LIGHTLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_TRUSTING = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote -XX:-UsePerfData"
QUICK = f"{_COMPILED_LIGHTLY} {_TRUSTING}"
"""Of a JVM: it is soon there, and does nothing that it need not do."""
_INTERPRETED = (
    "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN "
    "-Dspark.sql.icu.caseMappings.enabled=false"
)
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""As Spark has it."""
CACHE = Path(__file__).parents[2] / ".cache"


def start_servers_lightly(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set what our servers read of `environ`, after what stands there, and have sessions make no archive."""
    environ[ARCHIVE_VARIABLE] = "off"  # one that is made beside tests costs them the processor
    # The archive is good for one home of Spark, which is in the cache: a test's user with a home of his own has ours.
    environ.setdefault("XDG_CACHE_HOME", str(cache_directory().parent))
    _add(environ, OPTIONS_VARIABLE, QUICK)
    _add(environ, JVM_OPTIONS_VARIABLE, _TRUSTING)  # which compiles lightly anyway


def start_jvms_lightly(environ: MutableMapping[str, str] = os.environ) -> None:
    """The same, and what `spark-submit` reads.

    Makes the archive when there is none of this Java and this Spark, unless that Java cannot use one; where somebody
    makes it, waits for that. Raises JavaMissing.
    """
    start_servers_lightly(environ)
    archive = _archive(find_java())
    shared = f" {using(archive)}" if archive else ""
    _add(environ, "SPARK_LAUNCHER_OPTS", QUICK)
    _add(environ, "SPARK_SUBMIT_OPTS", f"{QUICK}{shared} {_INTERPRETED}")


def with_compiled_plans(options: str) -> str:
    """What stands in `SPARK_SUBMIT_OPTS`, for a process whose plans are compiled as a user's are."""
    return options.replace(_INTERPRETED, "")


def _add(environ: MutableMapping[str, str], name: str, options: str) -> None:
    before = environ.get(name, "")
    if options not in before:
        environ[name] = f"{before} {options}".strip()


def _archive(java: JavaRuntime) -> Path | None:
    path = CACHE / f"spark-classes-{mark(java)}.jsa"
    if not path.is_file():
        make(path, java, _COMPILED_LIGHTLY)  # verified: so it is good for users' JVMs as well
    return path if path.is_file() and path.stat().st_size else None


if __name__ == "__main__":  # `tools/dev.py test` has the archive made while the first tests run, which need none
    start_jvms_lightly({})
