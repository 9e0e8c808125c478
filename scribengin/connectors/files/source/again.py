"""What a planned range has read of which files: kept with a batch of a streaming query, so that it can be read again.

A position does not tell: which file is next depends on what is there, and more may have come since. So of each file
stands here where it was, what its system knew it by, the checksum of the last bytes that were read, and from where to
where. A file may have been renamed since, or have grown, or be a copy that was brought back. It may not be gone.

    {"files": [["/in/a.txt", "98a5.18c0", "1f2e3d4c", 120, 64, 120], ...]}
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from functools import partial

from scribengin.base.model import JsonObject
from scribengin.connectors.files.formats.reading import MARK_BYTES, FileToRead, mark_of
from scribengin.connectors.files.source.listing import unrotated
from scribengin.errors import DataflowError
from scribengin.filesystems.contract import FileInfo, FileSystem, is_version
from scribengin.filesystems.paths import file_system


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A piece of one file: from the place `first` to `end` (bytes, or records of a whole file)."""

    url: str
    identity: str
    mark: str
    """The checksum of the bytes before `size_bytes`."""
    size_bytes: int
    """The end of the piece or, of a whole file, the size that it has."""
    first: int
    end: int

    def to_read(self) -> FileToRead:
        """The file as it was then, wherever it is now. Raises DataflowError when it is not there any more."""
        files, path = file_system(self.url)
        try:
            if self._is(files, path, self.identity):
                return self._found(files, self.url, path, self.identity)
            directory, name = posixpath.split(path)
            # The name itself counts, too: a copy that was brought back has another identity.
            for info in sorted(files.find(directory, 1), key=lambda info: info.identity != self.identity):
                now = posixpath.join(directory, info.name)
                if self._may_be(name, info) and self._is(files, now, info.identity):
                    url = f"{self.url.rpartition('/')[0]}/{info.name}"
                    return self._found(files, url, now, info.identity)
        except FileNotFoundError:
            pass
        raise DataflowError(
            f"{self.url} is gone, or is another file, and a batch that read it has to read it again: put it back to go "
            "on. With state, leave a file where it is until the batch after that is committed"
        )

    def _may_be(self, name: str, info: FileInfo) -> bool:
        """Whether a file of its directory may be this one, by what its system knows it by, or as rotation names it."""
        is_same = bool(self.identity) and not is_version(self.identity) and info.identity == self.identity
        return info.size_bytes >= self.size_bytes and (is_same or unrotated(info.name) == unrotated(name))

    def _is(self, files: FileSystem, path: str, identity: str) -> bool:
        try:
            data = files.read_same(path, identity, max(self.size_bytes - MARK_BYTES, 0), self.size_bytes)
        except FileNotFoundError:
            return False
        return mark_of(data) == self.mark

    def _found(self, files: FileSystem, url: str, path: str, identity: str) -> FileToRead:
        info = FileInfo(posixpath.basename(path), self.size_bytes, 0, identity)
        return FileToRead(url, self.size_bytes, True, partial(files.read_same, path, identity), info)


def kept(read: Iterable[ReadFile]) -> JsonObject:
    """As PlannedRange.again."""
    return {"files": [list(astuple(one)) for one in read]}


def read_before(again: JsonObject, *, what: str) -> Iterator[ReadFile]:
    """What `kept` was given. Raises DataflowError for what it has not made."""
    try:
        for url, identity, mark, *numbers in again["files"]:
            size_bytes, first, end = map(int, numbers)
            yield ReadFile(str(url), str(identity), str(mark), size_bytes, first, end)
    except (KeyError, TypeError, ValueError):
        raise DataflowError(f"{what}: {str(again)[:200]} is nothing that files were read by: restore it") from None
