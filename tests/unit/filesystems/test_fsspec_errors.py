"""Errors that a package behind fsspec raises in classes of its own: one line, with the URL and the error's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
from fsspec.registry import _registry
from fsspec.spec import AbstractFileSystem

from scribengin.errors import DataflowError, SystemUnreachable
from scribengin.filesystems.contract import DurableFileSystem
from scribengin.filesystems.fsspec import open_url


class HttpError(Exception):
    """As gcsfs has it."""

    def __init__(self, code: int | str, words: str) -> None:
        super().__init__(f"{words}, {code}")
        self.code = code


class ClientError(Exception):
    """As botocore has it."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.response: Mapping[str, Any] = {"ResponseMetadata": {"HTTPStatusCode": code}}


class EndpointConnectionError(Exception):
    """Another of botocore's, which no server has answered with."""


class NoCredentialsError(Exception):
    pass


class Store(AbstractFileSystem):  # type: ignore[misc]  # fsspec ships no types
    protocol = "gs"
    error: ClassVar[Exception]
    isdir = info = ls = exists = cat_file = cp_file = rm_file = makedirs = lambda self, *_args, **_options: self.fail()

    def fail(self) -> None:
        raise self.error

    def _open(self, path: str, mode: str = "rb", **options: Any) -> StoreFile:
        if mode == "rb":
            self.fail()
        return StoreFile()


class StoreFile:
    def write(self, _data: object) -> None:
        raise Store.error

    def close(self) -> None:
        raise Store.error


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> DurableFileSystem:
    monkeypatch.setitem(_registry, "gs", Store)
    files, _ = open_url("gs://bucket/out")
    assert isinstance(files, DurableFileSystem)
    return files


CALLS: dict[str, Callable[[DurableFileSystem], object]] = {
    "is_directory": lambda files: files.is_directory("bucket/out"),
    "find": lambda files: files.find("bucket/out"),
    "read": lambda files: files.read("bucket/out", 0, 1),
    "make_directories": lambda files: files.make_directories("bucket/out"),
    "names": lambda files: files.names("bucket/out"),
    "size": lambda files: files.size("bucket/out"),
    "create": lambda files: files.create("bucket/out"),
    "rename": lambda files: files.rename("bucket/out", "bucket/to"),
    "remove": lambda files: files.remove("bucket/out"),
    "snapshots": lambda files: files.snapshots(["bucket/out"]),
    "unwritable": lambda files: files.unwritable("bucket/out"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_call_tells_it_with_the_url(
    store: DurableFileSystem, call: Callable[[DurableFileSystem], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "error", HttpError(400, "Bad Request"), raising=False)
    with pytest.raises(DataflowError, match=r"gs://bucket/out: Bad Request, 400"):
        call(store)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (HttpError(503, "Service Unavailable"), SystemUnreachable),
        (HttpError("429", "Too Many Requests"), SystemUnreachable),
        (HttpError("", "no word"), DataflowError),
        (ClientError(500, "InternalError"), SystemUnreachable),
        (ClientError(400, "InvalidRequest"), DataflowError),
        (EndpointConnectionError("Could not connect to the endpoint URL"), SystemUnreachable),
        (NoCredentialsError("Unable to locate credentials"), DataflowError),
        (ValueError("a body that is no JSON"), DataflowError),
    ],
)
def test_what_may_pass_is_tried_again(
    store: DurableFileSystem, error: Exception, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "error", error, raising=False)
    with pytest.raises(kind) as raised:
        store.names("bucket/out")
    assert type(raised.value) is kind
    assert str(error) in str(raised.value)


def test_a_store_that_says_no_cannot_be_written(store: DurableFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "error", HttpError(403, "Forbidden"), raising=False)
    assert "may not list it (Forbidden, 403)" in str(store.unwritable("bucket/out"))


def test_a_file_that_fails_so_is_given_up(store: DurableFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "error", FileNotFoundError("bucket/out"), raising=False)
    file = store.create("bucket/out")
    monkeypatch.setattr(Store, "error", HttpError(502, "Bad Gateway"))
    with pytest.raises(SystemUnreachable, match=r"cannot write to gs://bucket/out: Bad Gateway, 502"):
        file.append(b"abc")
    file.close()
