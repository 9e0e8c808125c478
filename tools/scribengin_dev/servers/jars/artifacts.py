"""The jars of a system: fetched once, kept in the user's cache directory, checked against the lock file at every use.

A jar lies in the cache under its own sum. It appears there by a rename, whole and checked, so any number of processes
may use, fetch and share them at once.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from scribengin.errors import ArtifactUnavailable
from scribengin_dev.servers.jars import ivy
from scribengin_dev.servers.jars.lock import LOCKS, Artifact, Lock, lock_path, sha256_of
from scribengin_registry.java.runtime import cache_directory


def jars_of(name: str, *, locks: Path = LOCKS) -> list[Path]:
    """The jars of a system, good as a class path. Fetches what is not there, or not what the lock file says.

    Raises ArtifactUnavailable, ConfigInvalid for an unknown name or a broken lock file, JavaMissing.
    """
    lock = Lock.read(lock_path(name, locks))
    places = {artifact: _place(artifact, checksum) for artifact, checksum in lock.sums.items()}
    if _unusable(lock, places):
        with _one_at_a_time():
            missing = _unusable(lock, places)  # another process may have fetched them meanwhile
            if missing:
                _fetch(missing, lock, places)
    return [places[artifact] for artifact in sorted(places)]


def refresh_lock(name: str, *, locks: Path = LOCKS) -> Lock:
    """Resolve what a lock file wants anew and write the file. Raises as `jars_of`."""
    path = lock_path(name, locks)
    before = Lock.read(path)
    with _staging() as staging:
        jars = ivy.resolve(before.roots, staging) | (ivy.fetch(before.alone, staging) if before.alone else {})
        lock = replace(before, sums={artifact: sha256_of(jar) for artifact, jar in jars.items()})
    lock.write(path)
    return lock


def _place(artifact: Artifact, checksum: str) -> Path:
    return _cache() / checksum[:32] / artifact.file_name


def _unusable(lock: Lock, places: dict[Artifact, Path]) -> list[Artifact]:
    return [
        artifact
        for artifact, checksum in lock.sums.items()
        if not places[artifact].is_file() or sha256_of(places[artifact]) != checksum
    ]


def _fetch(artifacts: list[Artifact], lock: Lock, places: dict[Artifact, Path]) -> None:
    with _staging() as staging:
        for artifact, jar in ivy.fetch(artifacts, staging).items():
            found = sha256_of(jar)
            if found != lock.sums[artifact]:
                raise ArtifactUnavailable(
                    f"{artifact} is not what the lock file says: its SHA-256 sum is {found}, and should be "
                    f"{lock.sums[artifact]}; find out who changed it before you trust it"
                )
            places[artifact].parent.mkdir(exist_ok=True)
            jar.replace(places[artifact])


@contextmanager
def _staging() -> Iterator[Path]:
    """A directory in the cache, so that what is in it can be renamed into place."""
    staging = tempfile.mkdtemp(dir=_made_cache(), prefix=".staging-")
    try:
        yield Path(staging)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    file = os.open(_made_cache() / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _made_cache() -> Path:
    try:
        _cache().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactUnavailable(
            f"there is no place for jars ({error}): let XDG_CACHE_HOME name a directory that can be written"
        ) from error
    return _cache()


def _cache() -> Path:
    return cache_directory() / "jars"
