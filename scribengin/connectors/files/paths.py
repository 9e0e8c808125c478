"""From what a user writes as a path to a file system and a path in it. Patterns are taken apart here, too."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache

from fsspec.utils import glob_translate

from scribengin.connectors.files.local import LocalFileSystem
from scribengin.connectors.files.remote import FsspecFileSystem
from scribengin.connectors.files.system import DurableFileSystem, FileInfo, FileSystem
from scribengin.errors import ConfigInvalid

_LOCAL = frozenset({"file", "local"})
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
    """The file system of an absolute path or URL, and the path in it. Raises ConfigInvalid for an unknown protocol."""
    protocol, separator, rest = path.partition("://")
    return (_remote(protocol), rest) if separator else (_LOCAL_FILES, path)


@cache
def _remote(protocol: str) -> FsspecFileSystem:
    return FsspecFileSystem(protocol)


def durable_file_system(path: str) -> DurableFileSystem:
    """The same for writing. Raises ConfigInvalid where nothing can be written exactly once."""
    found, _ = file_system(path)
    if not isinstance(found, DurableFileSystem):
        raise ConfigInvalid(
            f"{path} cannot be a sink: only local paths can be written exactly once so far; "
            "name a directory of this machine"
        )
    return found


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
