"""What is left of a file whose store did not take it."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from scribengin.errors import SystemUnreachable
from scribengin.filesystems.contract import NewFile
from scribengin.filesystems.fsspec import FsspecDurableFileSystem
from tests.garbage import collect_garbage

BLOCK = 100


class Upload(AbstractBufferedFile):  # type: ignore[misc]  # fsspec ships no types
    """As the files of object stores: sent a block at a time, and complete with the last one."""

    def _initiate_upload(self) -> None:
        """Nothing is asked of the store."""

    def _upload_chunk(self, final: bool = False) -> bool:
        self.fs.sent.append((self.buffer.getvalue(), final))
        if self.fs.away:
            raise ConnectionError("the store does not answer")
        return True


class Store(AbstractFileSystem):  # type: ignore[misc]  # fsspec ships no types
    """An object store that may be away."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.sent: list[tuple[bytes, bool]] = []

    def info(self, path: str, **_options: Any) -> dict[str, Any]:
        raise FileNotFoundError(path)

    def _open(self, path: str, mode: str = "rb", **_options: Any) -> Upload:
        return Upload(self, path, mode, block_size=BLOCK)


def test_who_collects_garbage_does_not_complete_a_file_that_was_given_up() -> None:
    """It would ask the store once more, which may take minutes, and make a file of what nobody has committed."""
    store = Store()

    def given_up() -> weakref.ref[NewFile]:
        file = FsspecDurableFileSystem(store).create("bucket/file")
        store.away = True
        with pytest.raises(SystemUnreachable, match="the store does not answer"):
            file.append(b"x" * (BLOCK + 1))
        store.away = False
        file.close()
        return weakref.ref(file)

    gone = given_up()
    collect_garbage()
    assert (gone(), store.sent) == (None, [(b"x" * (BLOCK + 1), False)])


def test_a_file_is_complete_once_it_is_synced() -> None:
    store = Store()
    file = FsspecDurableFileSystem(store).create("bucket/file")
    file.append(b"all of it")
    file.sync()
    file.close()
    assert store.sent == [(b"all of it", True)]
