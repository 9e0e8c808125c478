"""Files that were given up: whoever collects garbage ends none of them, as that waits for servers that do not answer,
for as long as these take, and meanwhile nothing is collected in the process."""

from __future__ import annotations

import gc
from typing import Any, ClassVar

import pytest
from fsspec.registry import _registry
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from hdfs_native import Client

from scribengin.errors import ScribenginError
from scribengin.filesystems import hdfs
from scribengin.filesystems.contract import DurableFileSystem
from scribengin.filesystems.fsspec import open_url


class RawFiles:
    """What hdfs-native writes with; DataNodes answer as long as `answers`."""

    def __init__(self) -> None:
        self.ended = 0
        self.answers = True

    def create(self, _path: str, _options: object) -> RawFiles:
        return self

    def write(self, data: memoryview) -> int:
        return len(data)

    def hsync(self) -> None:
        if not self.answers:
            raise ConnectionError("all datanodes are bad")

    def close(self) -> None:
        self.ended += 1


@pytest.fixture
def raw(monkeypatch: pytest.MonkeyPatch) -> RawFiles:
    client, raw = object.__new__(Client), RawFiles()
    client.inner = raw  # type: ignore[assignment]  # it does what is asked of it here
    monkeypatch.setattr(hdfs, "_client", lambda *_: client)
    return raw


@pytest.mark.parametrize("answers", [True, False])
def test_a_file_on_hdfs_that_nobody_has_closed_is_not_ended_as_garbage(raw: RawFiles, answers: bool) -> None:
    raw.answers = answers
    file = hdfs.HdfsFileSystem("hdfs://name-node:8020").create("/staged/a")
    file.append(b"abc")
    if not answers:
        with pytest.raises(ScribenginError):
            file.sync()
    del file
    gc.collect()
    assert raw.ended == 0


def test_a_file_on_hdfs_is_ended_once(raw: RawFiles) -> None:
    file = hdfs.HdfsFileSystem("hdfs://name-node:8020").create("/staged/a")
    file.append(b"abc")
    file.sync()
    file.close()
    file.close()
    del file
    gc.collect()
    assert raw.ended == 1


class Upload(AbstractBufferedFile):  # type: ignore[misc]  # fsspec ships no types
    """One that an object store takes at the second try."""

    tries: ClassVar[list[bool]] = []

    def _initiate_upload(self) -> None:
        pass

    def _upload_chunk(self, final: bool = False) -> bool:
        self.tries.append(final)
        if len(self.tries) == 1:
            raise TimeoutError("the store did not answer")
        return True


class Store(AbstractFileSystem):  # type: ignore[misc]
    protocol = "s3"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return f"/{str(path).removeprefix('s3://').strip('/')}"

    def info(self, path: str, **_options: Any) -> dict[str, Any]:
        raise FileNotFoundError(path)

    def _open(self, path: str, mode: str = "wb", **options: Any) -> Upload:
        return Upload(self, path, mode, **options)


def test_an_upload_that_failed_is_not_completed_as_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have ended the object with what there was, and asked a store that does not answer once more."""
    monkeypatch.setitem(_registry, "s3", Store)
    monkeypatch.setattr(Upload, "tries", [])
    files, folder = open_url("s3://bucket/staged")
    assert isinstance(files, DurableFileSystem)
    file = files.create(f"{folder}/a")
    with pytest.raises(ScribenginError):
        file.append(bytes(2 * Upload.DEFAULT_BLOCK_SIZE))
    file.close()
    del file
    gc.collect()
    assert Upload.tries == [False]
