"""The Python environment of a dataflow as one archive: interpreter, standard library, packages, Scribengin itself.

    bin/python, bin/scribengin        shell scripts that find the rest from where they stand
    bin/python3.11                    the interpreter
    lib/python3.11/                   its standard library, and the packages
    lib/interpreter/                  libpython, where the interpreter needs it

It runs on every machine of the same operating system family and processor, wherever it is unpacked. Nothing in it names
the machine it was made on, so the same environment makes the same archive everywhere, and its name is its content's.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.process.scratch import ScratchDirectory
from scribengin.errors import ConfigInvalid, LauncherError
from scribengin.launcher.yarn.shipping.archive import Entry, content_digest, write_archive
from scribengin.launcher.yarn.shipping.digests import KnownDigests
from scribengin.launcher.yarn.shipping.packages import package_entries, tree_entries
from scribengin_registry.java.runtime import cache_directory

_LIBRARY_DIRECTORY = "lib/interpreter"
_LEFT_OUT = frozenset(
    {"test", "tests", "idle_test", "idlelib", "turtledemo", "ensurepip", "site-packages", "dist-packages"}
)
_SYSTEM_PREFIXES = (Path("/usr"), Path("/usr/local"))
_SHOWN_LINES = 8
_TIMEOUT_S = 1800.0
_FILE_MODE = 0o644
_KEPT_MAX = 3
_PYTHON = """#!/bin/sh
# Made by Scribengin: runs the interpreter beside it, wherever this is.
here=$(readlink -f "$0")
here=${{here%/*}}
unset PYTHONHOME
export PYTHONNOUSERSITE=1
export LD_LIBRARY_PATH="${{here%/*}}/{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/{binary}" "$@"
"""
_COMMAND = """#!/bin/sh
# Made by Scribengin.
here=$(readlink -f "$0")
exec "${here%/*}/python" -m scribengin_tools "$@"
"""


@dataclass(frozen=True, slots=True)
class EnvironmentArchive:
    """An environment as a file. `built` is False where it was there already."""

    path: Path
    digest: str
    files: int
    size_bytes: int
    built: bool
    duration_s: float


def build_environment(output: Path | None = None, requirements: Sequence[str] = ()) -> EnvironmentArchive:
    """Pack the environment of this interpreter, and `requirements` (as pip takes them) beside what is installed.

    Without `output` it goes to the cache directory, named by its content; one that is there is used again. Raises
    ConfigInvalid (this environment cannot be packed, a requirement cannot be had), LauncherError (the file cannot be
    written).
    """
    start_s = SYSTEM_CLOCK.monotonic_s()
    with _scratch() as scratch:
        added = _install(requirements, scratch) if requirements else None
        try:
            entries = environment_entries(added)
            known = KnownDigests(cache_directory() / "environments" / "digests.json")
            digest = content_digest(entries, known)
            known.keep()
            target = output or cache_directory() / "environments" / archive_name(digest)
            built = output is not None or not target.is_file()
            if built:
                _write(entries, target)
            if output is None:
                _forget_older(target)
            size_bytes = target.stat().st_size
        except OSError as error:
            raise LauncherError(f"the environment could not be packed: {error}") from error
    duration_s = SYSTEM_CLOCK.monotonic_s() - start_s
    return EnvironmentArchive(target, digest, len(entries), size_bytes, built, duration_s)


@contextmanager
def _scratch(parent: Path | None = None) -> Iterator[Path]:
    """A directory for what is on its way. One that a killed process has left there goes."""
    try:
        directory = ScratchDirectory(".scribengin-environment-", parent)
    except OSError as error:
        raise LauncherError(f"the environment could not be packed: {error}") from error
    try:
        yield directory.path
    finally:
        directory.remove()


def archive_name(digest: str) -> str:
    """The file name of an environment: YARN unpacks what is called so."""
    return f"environment-{digest}.tar.gz"


def environment_entries(added: Path | None = None) -> list[Entry]:
    """Everything of this environment, and of the directory `added`, sorted. Raises ConfigInvalid, OSError."""
    base = Path(sys.base_prefix).resolve()
    library = Path(sysconfig.get_path("stdlib")).resolve()
    if not (library / "os.py").is_file() or not library.is_relative_to(base):
        raise ConfigInvalid(
            f"this Python keeps its standard library in {library}, apart from {base}: it cannot be packed; make the "
            "environment with another Python, or name one that the nodes have: yarn.python.path"
        )
    place = library.relative_to(base).as_posix()
    found = {entry.name: entry for entry in tree_entries(library, place, _stdlib_wants)}
    for entry in [*_interpreter(base), *package_entries(_packages_place(base), added)]:
        found.setdefault(entry.name, entry)
    return sorted(found.values(), key=lambda entry: entry.name)


def _stdlib_wants(path: Path) -> bool:
    """Static libraries (`config-3.11-...`) are for those who compile."""
    return path.name not in _LEFT_OUT and not path.name.startswith("config-")


def _interpreter(base: Path) -> list[Entry]:
    binary = Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    script = _PYTHON.format(libraries=_LIBRARY_DIRECTORY, binary=name).encode()
    entries = [
        Entry(f"bin/{name}", binary, executable=True),
        Entry("bin/python", script, executable=True),
        Entry("bin/python3", script, executable=True),
        Entry("bin/scribengin", _COMMAND.encode(), executable=True),
    ]
    if (library := _shared_library(binary)) is not None:
        entries.append(Entry(f"{_LIBRARY_DIRECTORY}/{library.name}", library))
    if base not in _SYSTEM_PREFIXES:  # what a Python of one's own brings along stands beside it, and is found from it
        files = [file for file in sorted((base / "lib").glob("*.so*")) if not file.name.startswith("libpython")]
        entries += [Entry(f"lib/{file.name}", file) for file in files if file.is_file()]
    return entries


def _shared_library(binary: Path) -> Path | None:
    """libpython, where the interpreter is linked to it. Raises ConfigInvalid when it is not to be found."""
    name = str(sysconfig.get_config_var("INSTSONAME") or "")
    if ".so" not in name or name.encode() not in binary.read_bytes():
        return None
    places = [Path(str(sysconfig.get_config_var("LIBDIR") or "/usr/lib")), binary.parent.parent / "lib"]
    multiarch = sysconfig.get_config_var("MULTIARCH")
    places += [place / str(multiarch) for place in list(places) if multiarch]
    found = next((place / name for place in places if (place / name).is_file()), None)
    if found is None:
        raise ConfigInvalid(
            f"{binary} needs {name}, which is in none of {', '.join(map(str, places))}: install it (libpython), or "
            "make the environment with another Python"
        )
    return found.resolve() if found.resolve().name == name else found


def _packages_place(base: Path) -> str:
    """Where the interpreter looks for packages below its prefix; distributions have opinions."""
    code = "import site, sys; print(site.getsitepackages(['/prefix'])[-1])"
    python = getattr(sys, "_base_executable", "") or sys.executable
    done = subprocess.run([python, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    place = done.stdout.strip().removeprefix("/prefix/")
    if done.returncode or not place or place.startswith("/"):
        raise ConfigInvalid(
            f"the Python of {base} does not say where it has its packages: {done.stderr.strip()[-300:]}"
        )
    return place


def _install(requirements: Sequence[str], scratch: Path) -> Path:
    """Install `requirements` into a directory, at the versions that this environment has of what they share."""
    target, constraints = scratch / "packages", scratch / "constraints.txt"
    installed = {d.name: d.version for d in importlib.metadata.distributions() if d.name != "scribengin"}
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in sorted(installed.items())))
    words = ["install", "--quiet", "--disable-pip-version-check", "--no-compile", "--target", str(target)]
    command = [sys.executable, "-m", "pip", *words, "--constraint", str(constraints), *requirements]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-_SHOWN_LINES:])
        raise ConfigInvalid(f"pip could not install {', '.join(requirements)} beside what is there:\n{said}")
    return target


def _write(entries: Sequence[Entry], target: Path) -> None:
    """Write the archive; it appears whole, whoever else does the same."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(target.parent) as scratch:
        draft = scratch / "archive"
        with draft.open("wb") as stream:
            os.fchmod(stream.fileno(), _FILE_MODE)
            write_archive(entries, stream)
            stream.flush()
            os.fsync(stream.fileno())  # it is used again by its name: a power failure must not leave half of it there
        draft.rename(target)


def _forget_older(newest: Path) -> None:
    """Each is hundreds of megabytes, and can be packed again."""
    others = [file for file in newest.parent.glob(archive_name("*")) if file != newest]
    for file in sorted(others, key=lambda file: file.stat().st_mtime, reverse=True)[_KEPT_MAX - 1 :]:
        file.unlink(missing_ok=True)
