"""From what a user writes as a path to a file system and a path in it. Patterns are taken apart here, too."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache

from fsspec.utils import glob_translate

from scribengin.connectors.files.local import LocalFileSystem
from scribengin.connectors.files.remote import open_url
from scribengin.connectors.files.system import DurableFileSystem, FileInfo, FileSystem
from scribengin.errors import ConfigInvalid

_LOCAL = frozenset({"file", "local"})
_HDFS = "hdfs"
_LOCAL_FILES = LocalFileSystem()
_MAGIC = re.compile(r"[*?\[]")
_ANY_DEPTH = "**"


def absolute(path: str) -> str:
    """`path` as it stays true in every process: a URL, or an absolute local path (from this process's directory)."""
    if not path.strip():
        raise ValueError("a path cannot be empty")
    protocol, separator, rest = path.partition("://")
    if not separator:
        return os.path.abspath(os.path.expanduser(path))
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
    if protocol == _HDFS:
        authority, _, name = rest.partition("/")
        return _hdfs(authority), f"/{name}"
    return open_url(path)


@cache
def _hdfs(authority: str) -> DurableFileSystem:
    try:
        from scribengin.connectors.files.hdfs import HdfsFileSystem
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
            "files; name a local directory, hdfs://, or one of those that the README lists"
        )
    return found, os.path.realpath(inside) if found is _LOCAL_FILES else inside


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which files a source means: those below `base` whose names match, or all when there is no `names`."""

    base: str
    names: re.Pattern[str] | None
    depth_max: int | None

    @classmethod
    def of(cls, path: str) -> Pattern:
        """A directory, a file, or a glob: `*`, `?` and `[...]` within one name, `**` for any number of directories.

        A name that holds one of these characters itself is written with it in brackets, as in `[*]`.
        """
        match = _MAGIC.search(path)
        if match is None:
            return cls(path, None, None)
        base, _, glob = path[: match.start()].rpartition("/")
        glob += path[match.start() :]
        return cls(base or "/", re.compile(glob_translate(glob)), _depth(glob))

    def matching(self, infos: list[FileInfo]) -> list[FileInfo]:
        """Those of the files below `base` that are meant."""
        return infos if self.names is None else [info for info in infos if self.names.match(info.name)]


def _depth(glob: str) -> int | None:
    return None if _ANY_DEPTH in glob else glob.count("/") + 1
