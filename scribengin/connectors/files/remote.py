"""Everything else that fsspec opens, for reading only: it promises no sync and no atomic rename.

fsspec is imported in this package only, and its file systems only when a path names them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import fsspec

from scribengin.connectors.files.system import FileInfo, FileSystem, clear_errors, is_hidden
from scribengin.errors import ConfigInvalid

_MS_PER_S = 1000
_MODIFIED_KEYS = ("mtime", "LastModified", "last_modified", "updated", "modificationTime", "modified")
"""Where the file systems of fsspec say when a file was written to; each has its own word."""


class FsspecFileSystem(FileSystem):
    """One protocol of fsspec. Paths are without the protocol."""

    def __init__(self, protocol: str) -> None:
        """Raises ConfigInvalid when fsspec does not know the protocol or misses a package for it."""
        try:
            self._fs: Any = fsspec.filesystem(protocol)
        except (ValueError, ImportError) as error:
            raise ConfigInvalid(f"'{protocol}://' cannot be opened here: {error}") from None

    def is_directory(self, path: str) -> bool:
        with clear_errors("look at", path):
            return bool(self._fs.isdir(path))

    def find(self, root: str, depth_max: int | None = None) -> list[FileInfo]:
        root = str(self._fs._strip_protocol(root)).rstrip("/")  # the form in which fsspec returns paths
        with clear_errors("look for files in", root):
            self._fs.invalidate_cache()
            found: dict[str, dict[str, Any]] = self._fs.find(root, maxdepth=depth_max, detail=True)
            if not found and not self._fs.exists(root):
                raise FileNotFoundError(root)
        infos = [_info(root, path, info) for path, info in found.items() if info["type"] == "file"]
        return sorted((info for info in infos if not is_hidden(info.name)), key=lambda info: info.name)

    def read(self, path: str, start: int, end: int) -> bytes:
        with clear_errors("read", path):
            return bytes(self._fs.cat_file(path, start=start, end=end))


def _info(root: str, path: str, info: dict[str, Any]) -> FileInfo:
    name = path.removeprefix(root).lstrip("/") or root.rpartition("/")[2]
    return FileInfo(name, int(info["size"]), _modified_ms(info))


def _modified_ms(info: dict[str, Any]) -> int:
    """0 where it is not said: such a file's last line counts as complete at once."""
    value = next((info[key] for key in _MODIFIED_KEYS if info.get(key) is not None), 0)
    if isinstance(value, datetime):
        value = value.timestamp()
    try:
        return int(float(value) * _MS_PER_S)
    except ValueError:
        return int(datetime.fromisoformat(str(value).replace("Z", "+00:00")).timestamp() * _MS_PER_S)
