"""What readers, listeners and writers of a log leave with the registry when they are done: nothing, however many."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from scribengin.errors import Fenced, InconsistentLog, LogNotFound, OwnershipAcquireFailed, ScribenginError
from scribengin.log import DLSN, TAIL, LogNamespace
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry, Watch
from tests.garbage import collect_garbage

TIMES = 10


class Watched:
    """A registry that remembers the watches it was given for as long as anybody keeps them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._set: list[weakref.ref[Watch]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._registry, name)
        if name not in ("find", "get", "children"):
            return found

        def asked(path: str, watch: Watch | None = None) -> Any:
            if watch is not None:
                self._set.append(weakref.ref(watch))
            return found(path, watch)

        return asked

    def kept(self) -> list[Watch]:
        collect_garbage()
        return [watch for ref in self._set if (watch := ref()) is not None]


@pytest.fixture
def watched(registry: Registry) -> Watched:
    return Watched(registry)


@pytest.fixture
def namespace(watched: Watched, tmp_path: Path) -> LogNamespace:
    namespace = bound_namespace(cast(Registry, watched), tmp_path / "store", "quiet")
    with namespace.open_writer("quiet") as writer:
        writer.write(bytes(range(256))).result(120)
    return namespace


def read(namespace: LogNamespace) -> None:
    with namespace.open_reader("quiet") as reader:
        assert len(reader.read()) == 1
        assert reader.read() == []


def read_as_a_subscriber(namespace: LogNamespace) -> None:
    with namespace.open_reader("quiet", TAIL, subscriber="one") as reader:
        assert reader.read() == []


def fail_to_read(namespace: LogNamespace) -> None:
    with pytest.raises(InconsistentLog):
        namespace.open_reader("quiet", DLSN(7, 0, 0))


def listen(namespace: LogNamespace) -> None:
    heard: list[object] = []
    with (
        namespace.listen(lambda added, _removed: heard.append(added)),
        namespace.listen_segments("quiet", heard.append),
    ):
        wait_until(lambda: len(heard) == 2, what="the first calls")


def write(namespace: LogNamespace) -> None:
    with namespace.open_writer("quiet"):
        pass


@pytest.mark.parametrize("use", [read, read_as_a_subscriber, fail_to_read, listen, write])
def test_what_was_opened_and_closed_leaves_no_watch(
    namespace: LogNamespace, watched: Watched, use: Callable[[LogNamespace], None]
) -> None:
    for _time in range(TIMES):
        use(namespace)
    assert watched.kept() == []


def test_who_waits_in_vain_leaves_no_watch(namespace: LogNamespace, elsewhere: LogNamespace, watched: Watched) -> None:
    with elsewhere.open_writer("quiet"), elsewhere.open_reader("quiet", subscriber="one"):
        for _time in range(TIMES):
            with pytest.raises(OwnershipAcquireFailed):
                namespace.open_writer("quiet", timeout_s=0.01)
            with pytest.raises(OwnershipAcquireFailed):
                namespace.open_reader("quiet", subscriber="one", timeout_s=0.01)
        assert watched.kept() == []


def test_a_writer_that_was_replaced_leaves_no_watch(
    namespace: LogNamespace, elsewhere: LogNamespace, watched: Watched
) -> None:
    def failed(write: Callable[[], object]) -> bool:
        try:
            write()
        except ScribenginError:
            return True
        return False

    writer = namespace.open_writer("quiet")
    with elsewhere.open_writer("quiet", steal=True):
        wait_until(lambda: failed(lambda: writer.write(b"x").result(120)), 120, what="the end of the first")
        with suppress(Fenced):  # told once more, unless it is the write that found out
            writer.close()
        wait_until(lambda: watched.kept() == [], 120, what="its watch to go")


def test_a_listener_that_ends_by_itself_leaves_no_watch(namespace: LogNamespace, watched: Watched) -> None:
    def fail(_segments: object) -> None:
        raise ValueError("not today")

    listeners = [namespace.listen_segments("quiet", fail) for _time in range(TIMES)]
    wait_until(lambda: all(listener.error is not None for listener in listeners), 120, what="their ends")
    wait_until(lambda: watched.kept() == [], 120, what="the watches to go")
    with pytest.raises(LogNotFound):
        namespace.listen_segments("loud", fail)
