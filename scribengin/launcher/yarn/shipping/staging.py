"""What containers are given, on a file system that all nodes reach: uploaded once, named by its content.

A file appears under its name by a rename, whole, so that any number of submissions may upload the same at once. Its
modification time never changes afterwards: YARN refuses a file that has changed since an application named it.
"""

from __future__ import annotations

import uuid
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.jvm import is_java, java, java_errors
from scribengin.errors import LauncherError

FOLDER = ".scribengin"
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600
_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of the staging directory. `used_ms`: when it was last uploaded, or found to be there already."""

    name: str
    url: str
    size_bytes: int
    used_ms: int


class Staging:
    """The staging directory `folder` (a URL; default: `.scribengin` in the user's home on the default file system).

    `hadoop_conf` is a Java `Configuration`, so the JVM runs. Files and directory are the user's alone.
    """

    def __init__(self, hadoop_conf: Any, folder: str | None = None) -> None:
        """Raises LauncherError: no such file system, or it does not answer."""
        path = java("org.apache.hadoop.fs.Path")
        with java_errors(f"the staging directory {folder or f'~/{FOLDER}'} cannot be used"):
            if folder is None:
                home = java("org.apache.hadoop.fs.FileSystem").get(hadoop_conf).getHomeDirectory()
                self._folder = path(home, FOLDER)
            else:
                self._folder = path(folder)
            self._system = self._folder.getFileSystem(hadoop_conf)
            self._folder = self._system.makeQualified(self._folder)

    @property
    def url(self) -> str:
        """Of the directory."""
        return str(self._folder)

    def place(self, name: str) -> str:
        """The URL that a file of that name has, or would have."""
        return str(self._path(name))

    def find(self, name: str) -> StagedFile | None:
        """The file of that name, None when it is not there. Raises LauncherError."""
        with java_errors(f"{self.url}/{name} cannot be looked at"):
            target = self._path(name)
            return _staged(self._system.getFileStatus(target)) if self._system.exists(target) else None

    def put(self, file: Path, name: str) -> str:
        """Upload a file as `name`, which stands for its content, unless it is there. Returns its URL.

        Raises LauncherError: cannot be read or written.
        """
        with java_errors(f"{file} cannot be uploaded to {self.url}"):
            target = self._path(name)
            if self._system.exists(target):
                self._touch(target)
                return str(target)
            self._make_folder()
            draft = self._path(f".{name}.{uuid.uuid4().hex}")
            try:
                self._system.copyFromLocalFile(False, True, java("org.apache.hadoop.fs.Path")(file.as_uri()), draft)
                self._system.setPermission(draft, _permission(_PRIVATE_FILE))
                if not self._renamed(draft, target):
                    raise LauncherError(f"{draft} cannot be renamed to {name}: look at the directory's permissions")
            finally:
                self._system.delete(draft, False)
            return str(target)

    def files(self) -> list[StagedFile]:
        """Everything there, by name, also what an upload that was cut short has left. Raises LauncherError."""
        with java_errors(f"{self.url} cannot be listed"):
            if not self._system.exists(self._folder):
                return []
            found = [_staged(status) for status in self._system.listStatus(self._folder) if status.isFile()]
        return sorted(found, key=lambda file: file.name)

    def clean(self, days: float, keep: Container[str] = ()) -> list[StagedFile]:
        """Delete what nobody has used for so many days, but for the URLs in `keep`. Returns what went.

        Raises LauncherError.
        """
        before_ms = SYSTEM_CLOCK.now_ms() - days * _DAY_MS
        old = [file for file in self.files() if file.used_ms <= before_ms and file.url not in keep]
        with java_errors(f"what is old in {self.url} cannot be deleted"):
            return [file for file in old if self._system.delete(self._path(file.name), False)]

    def _path(self, name: str) -> Any:
        return java("org.apache.hadoop.fs.Path")(self._folder, name)

    def _make_folder(self) -> None:
        if not self._system.exists(self._folder):
            self._system.mkdirs(self._folder, _permission(_PRIVATE_FOLDER))

    def _renamed(self, draft: Any, target: Any) -> bool:
        """Whether the target is there, by this rename or by that of somebody as quick: it has the same bytes. Of a name
        that was taken just now some file systems say False, and HDFS may throw."""
        try:
            with java_errors(f"{draft} cannot be renamed"):
                renamed = bool(self._system.rename(draft, target))
        except LauncherError as error:
            if not is_java(error.__cause__, "FileAlreadyExistsException"):
                raise
            renamed = False
        return renamed or bool(self._system.exists(target))

    def _touch(self, target: Any) -> None:
        """Say that it was used: by the access time, which YARN does not look at."""
        self._system.setTimes(target, -1, SYSTEM_CLOCK.now_ms())


def _permission(mode: int) -> Any:
    return java("org.apache.hadoop.fs.permission.FsPermission")(java("java.lang.Short")(mode).shortValue())


def _staged(status: Any) -> StagedFile:
    used_ms = max(int(status.getModificationTime()), int(status.getAccessTime()))
    path = status.getPath()
    return StagedFile(str(path.getName()), str(path), int(status.getLen()), used_ms)
