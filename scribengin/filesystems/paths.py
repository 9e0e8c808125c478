"""From what a user writes as a path to a file system and a path in it. Patterns are taken apart here, too."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import translate
from functools import cache

from scribengin.errors import ConfigInvalid
from scribengin.filesystems.contract import DurableFileSystem, FileInfo, FileSystem, TreeFileSystem
from scribengin.filesystems.local import LocalFileSystem

_LOCAL = frozenset({"file", "local"})
_HDFS = "hdfs"
_LOCAL_FILES = LocalFileSystem()
_LENT: dict[str, FileSystem] = {}
"""What `opened_by` says that protocols mean."""
_MAGIC = re.compile(r"[*?\[]")
_ANY_DEPTH = "**"
NEVER = re.compile(r"(?!)")


def any_of(globs: Iterable[str]) -> re.Pattern[str]:
    """What matches one of the patterns, each for one part of a path."""
    return re.compile("|".join(map(translate, globs)) or NEVER.pattern)


def absolute(path: str) -> str:
    """`path` as it stays true in every process: a URL, or an absolute local path (from this process's directory)."""
    if not path.strip():
        raise ValueError("a path cannot be empty")
    protocol, separator, rest = path.partition("://")
    if not separator:
        return os.path.abspath(os.path.expanduser(path))
    protocol = protocol.lower()
    if protocol in _LOCAL:
        return os.path.abspath(rest)
    return f"{protocol}://{rest.rstrip('/')}"


def file_system(path: str) -> tuple[FileSystem, str]:
    """The file system of an absolute path or URL, and the path in it.

    Raises ConfigInvalid for a protocol that nothing opens, or that needs a package which is not installed.
    """
    protocol, separator, rest = path.partition("://")
    if not separator:
        return _LOCAL_FILES, path
    if protocol in _LENT:
        return _LENT[protocol], f"/{rest.strip('/')}"
    if protocol == _HDFS:
        authority, _, name = rest.partition("/")
        return _hdfs(authority), f"/{name}"
    from scribengin.filesystems.fsspec import open_url

    return open_url(path)


@contextmanager
def opened_by(protocol: str, files: FileSystem) -> Iterator[None]:
    """Let URLs of that protocol mean these files while the block lasts, in this process alone: for tests and
    simulations. All of such a URL is a path. Raises ValueError when the protocol is taken."""
    if protocol in _LENT:
        raise ValueError(f"{protocol}:// means other files already; choose another protocol")
    _LENT[protocol] = files
    try:
        yield
    finally:
        del _LENT[protocol]


@cache
def _hdfs(authority: str) -> DurableFileSystem:
    try:
        from scribengin.filesystems.hdfs import HdfsFileSystem
    except ModuleNotFoundError as error:
        if error.name != "hdfs_native":
            raise
        raise ConfigInvalid("hdfs:// needs the package hdfs-native: pip install 'scribengin[hdfs]'") from None
    return HdfsFileSystem(authority)


def durable_file_system(path: str) -> tuple[DurableFileSystem, str]:
    """The same for writing, with the path that everybody has for the place. Raises ConfigInvalid where nothing can be
    written exactly once."""
    found, inside = file_system(path)
    if not isinstance(found, DurableFileSystem):
        raise ConfigInvalid(
            f"{path} cannot be a sink: {path.partition('://')[0]}:// can be read, and nothing is known of how it moves "
            "files; name a local directory, hdfs://, or one of those that docs/guide/dataflows.md lists"
        )
    return found, found.canonical(inside)


def tree_file_system(path: str) -> tuple[TreeFileSystem, str]:
    """The same where whole directories are to be moved. Raises ConfigInvalid where they cannot be, atomically."""
    found, inside = file_system(path)
    if not isinstance(found, TreeFileSystem):
        raise ConfigInvalid(f"{path} cannot hold what moves as a directory: name a local directory, or one on hdfs://")
    return found, found.canonical(inside)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which files a source means: those below `base` whose names match, or all when there is no `names`."""

    base: str
    names: re.Pattern[str] | None
    depth_max: int | None

    @classmethod
    def of(cls, path: str) -> Pattern:
        """A directory, a file, or a glob: `*`, `?` and `[...]` within one name, `**` for any number of directories.

        A name that holds one of these characters itself is written with it in brackets, as in `[*]`. Raises ValueError
        for `**` beside other characters.
        """
        match = _MAGIC.search(path)
        if match is None:
            return cls(path, None, None)
        base, _, glob = path[: match.start()].rpartition("/")
        glob += path[match.start() :]
        if any(_ANY_DEPTH in part and part != _ANY_DEPTH for part in glob.split("/")):
            raise ValueError(f"{path}: ** stands alone between slashes, as in **/*.log")
        from fsspec.utils import glob_translate

        return cls(base or "/", re.compile(glob_translate(glob)), _depth(glob))

    def matching(self, infos: list[FileInfo], on_their_way: re.Pattern[str] = NEVER) -> list[FileInfo]:
        """Those of the files below `base` that are meant, but for those on their way to their names (`on_their_way`
        matches a part of a name). A path that is one file means it, whatever its name."""
        return [info for info in infos if self._means(info.name, on_their_way)]

    def _means(self, name: str, on_their_way: re.Pattern[str]) -> bool:
        if self.names is not None and not self.names.match(name):
            return False
        is_path = self.names is None and self.base.rpartition("/")[2] == name
        return is_path or not any(map(on_their_way.fullmatch, name.split("/")))


def _depth(glob: str) -> int | None:
    return None if _ANY_DEPTH in glob else glob.count("/") + 1
