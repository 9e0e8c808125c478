"""Shipping a dataflow's package: a copy of its directory, named by its content, which no later edit can change."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from scribengin.base.process.private import private_directory
from scribengin.errors import PackageInvalid

PACKAGE_BYTES_MAX = 256 * 1024 * 1024
_CHUNK_BYTES = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same content is the same archive


def ship_package(directory: Path, home: Path) -> Path:
    """Copy a package to `<home>/packages/<hash of its content>`, unless it is there. Returns that directory.

    Hidden files and byte code stay behind; modes are kept. Raises PackageInvalid: no such directory, too large, a link
    that leads outside, cannot be copied.
    """
    if not directory.is_dir():
        raise PackageInvalid(f"package {directory} is no directory: name the one that holds the modules")
    try:
        files = list(_files(directory))
        target = home / "packages" / _digest(directory, files)
        if not target.is_dir():
            _copy(directory, files, target)
    except OSError as error:
        raise PackageInvalid(f"package {directory} cannot be copied to {home}: {error}") from error
    return target


def pack_package(directory: Path, home: Path) -> Path:
    """The package as one archive below `home`, named by its content. Raises PackageInvalid as `ship_package`."""
    copy = ship_package(directory, home)
    archive = copy.with_name(f"package-{copy.name}.zip")
    try:
        if not archive.is_file():
            with tempfile.TemporaryDirectory(dir=copy.parent, prefix=".", ignore_cleanup_errors=True) as scratch:
                draft = Path(scratch, archive.name)
                with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as packed:
                    for file in _files(copy):
                        entry = zipfile.ZipInfo(file.as_posix(), _EPOCH)
                        entry.external_attr = (stat.S_IFREG | _mode(copy / file)) << 16
                        packed.writestr(entry, (copy / file).read_bytes())
                draft.rename(archive)
    except OSError as error:
        raise PackageInvalid(f"package {directory} cannot be packed to {archive}: {error}") from error
    return archive


def _files(directory: Path) -> Iterator[Path]:
    """The files of the package relative to it, in a stable order."""
    size_bytes = 0
    for root, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if not _left_behind(name))
        for name in directories:
            if Path(root, name).is_symlink():
                raise PackageInvalid(f"package {directory}: {Path(root, name)} is a link to a directory: copy it there")
        for name in sorted(name for name in names if not _left_behind(name)):
            path = Path(root, name)
            _refuse_foreign(directory, path)
            size_bytes += path.stat().st_size
            if size_bytes > PACKAGE_BYTES_MAX:
                raise PackageInvalid(
                    f"package {directory} is larger than {PACKAGE_BYTES_MAX // 1024 // 1024} MiB: put the "
                    "transformation into a directory of its own, or set `package`"
                )
            yield path.relative_to(directory)


def _refuse_foreign(directory: Path, path: Path) -> None:
    """Raise PackageInvalid for what is no file of the package: who writes a package must not have whoever submits it
    ship a key of theirs."""
    if not path.resolve().is_relative_to(directory.resolve()):
        raise PackageInvalid(f"package {directory}: {path} is a link that leads outside: copy the file there")
    if not path.is_file():
        raise PackageInvalid(f"package {directory}: {path} is no file, or a link to nothing: take it out")


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777 | stat.S_IRUSR | stat.S_IWUSR


def _left_behind(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"


def _digest(directory: Path, files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        path = directory / file
        digest.update(f"{file.as_posix()}\0{path.stat().st_size}\0{_mode(path):o}\0".encode())
        with path.open("rb") as content:
            while chunk := content.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()[:32]


def _copy(directory: Path, files: list[Path], target: Path) -> None:
    """Make `target`, which appears whole or not at all."""
    private_directory(target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".", ignore_cleanup_errors=True) as scratch:
        draft = Path(scratch, "package")
        draft.mkdir()
        for file in files:
            (draft / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(directory / file, draft / file)
            (draft / file).chmod(_mode(directory / file))
        try:
            draft.rename(target)
        except OSError:
            if not target.is_dir():  # not that somebody else was as quick
                raise
