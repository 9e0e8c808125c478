"""A registry that goes away while somebody takes a log: whoever is refused leaves no lock behind.

The session may outlive that, and with it all that it holds: then nobody else would get the log. It goes away at each
call that taking the log makes, in turn; what was asked then is done or not.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scribengin.base import threads
from scribengin.errors import Fenced, InconsistentLog, LogWriteFailed, OwnershipAcquireFailed
from scribengin.log import LogNamespace, LogWriter
from scribengin.log.metadata import writer_lock
from scribengin.log.metadata.segments import LogMetadata, WriterEpoch
from scribengin.log.write.restored import SortedOut
from scribengin.testing.log_samples import bound_namespace, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import Loss, MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE, MemorySegmentStore
from scribengin.testing.waiting import wait_until
from scribengin_registry.errors import OutcomeUnknown, RegistryError, RegistryUnreachable

LOG = "log"
LOCK = "/logs/logs/log/lock"
Take = Callable[[LogNamespace], object]
TAKES = [
    pytest.param(lambda logs: logs.open_writer(LOG, timeout_s=0), id="free"),
    pytest.param(lambda logs: logs.open_writer(LOG, steal=True), id="stolen"),
    pytest.param(lambda logs: logs.recover(LOG, timeout_s=0), id="recovered"),
]


class Place:
    """A log that a writer has left unfinished, and a session that goes away at a call of its own."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(writer_lock, "_RETRY_S", 0.01)
        patch.setattr(threads, "_TRY_AGAIN_S", 0.01)
        self.ensemble = MemoryEnsemble()
        self.disk = MemoryDisk("left")
        self.others = bound_namespace(self.ensemble.connect(), self.disk.name, LOG, store=MEMORY_STORE)
        writer = self.others.open_writer(LOG)
        writer.write(b"before").result(60)
        writer.abort()
        self.session = self.ensemble.connect()
        self.logs = LogNamespace.open("/logs", registry=self.session)
        self.went_away = False

    def goes_away(self, patch: pytest.MonkeyPatch, at: int, *, done: bool) -> None:
        """With the call of that number, which is `done` or not."""
        calls = itertools.count()
        for name, error in (("_read", RegistryUnreachable), ("_write", OutcomeUnknown)):
            patch.setattr(self.session, name, self._counted(getattr(self.session, name), calls, at, done, error))

    def _counted(
        self, ask: Callable[..., Any], calls: Iterator[int], at: int, done: bool, error: type[RegistryError]
    ) -> Callable[..., Any]:
        def asked(act: str, path: str, how: Callable[[str], Any]) -> Any:
            away = next(calls) == at
            self.went_away |= away
            if away:
                self.session._session_timeout_s = 0.0  # from here on no call waits for it to come back
            if away and not done:
                self.ensemble.suspend(self.session)
            try:
                return ask(act, path, how)
            finally:
                if away:
                    self.ensemble.suspend(self.session)
                    raise error(f"cannot {act} {path}", path=path)

        return asked

    def comes_back(self) -> None:
        self.session._session_timeout_s = 10.0
        self.ensemble.resume(self.session)

    def expect_no_lock(self, *written: bytes) -> None:
        watched = self.ensemble.connect()
        wait_until(lambda: watched.find(LOCK) is None, 60, what="the lock to be given back")
        with self.others.open_writer(LOG, timeout_s=60) as writer:
            writer.write(b"after").result(60)
        assert payloads_read(self.others, LOG) == [b"before", *written, b"after"]


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("take", TAKES)
def test_whoever_is_refused_by_a_registry_that_is_away_leaves_no_lock(
    take: Take, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = 0
    for at in itertools.count():
        with monkeypatch.context() as patch:
            place = Place(patch)
            with monkeypatch.context() as patch_calls:
                place.goes_away(patch_calls, at, done=done)
                taken: object = None
                try:
                    taken = take(place.logs)
                except (RegistryError, Fenced):
                    refused += 1
            place.comes_back()
            if isinstance(taken, LogWriter):
                taken.abort()
            place.expect_no_lock()
            if not place.went_away:
                break  # it makes no more calls than that
    assert refused > 5


@pytest.mark.parametrize("done", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("end", [LogWriter.close, LogWriter.abort])
def test_a_writer_that_ends_while_the_registry_is_away_leaves_no_lock(
    end: Callable[[LogWriter], None], done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody calls it again, as a proxy does not."""
    refused = 0
    for at in itertools.count():
        with monkeypatch.context() as patch:
            place = Place(patch)
            writer = place.logs.open_writer(LOG)
            writer.write(b"last").result(60)
            with monkeypatch.context() as patch_calls:
                place.goes_away(patch_calls, at, done=done)
                try:
                    end(writer)
                except RegistryError:
                    refused += 1
            place.comes_back()
            place.expect_no_lock(b"last")
            if not place.went_away:
                break
    assert refused >= 2


@pytest.mark.parametrize("loss", ["request", "reply"])
def test_a_lock_that_went_is_taken_again_also_where_that_is_lost(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(monkeypatch)
    losses = iter([loss])
    with place.logs.open_writer(LOG) as writer:
        place.ensemble.lose = lambda act, _path: next(losses, None) if act == "commit" else None
        others = place.others.registry
        others.delete(LOCK)
        wait_until(lambda: others.find(LOCK) is not None, 60, what="the lock to be taken again")
        with pytest.raises(OwnershipAcquireFailed):
            place.others.open_writer(LOG, timeout_s=0)
        writer.write(b"last").result(60)
    place.expect_no_lock(b"last")


def test_an_epoch_that_was_raised_once_more_is_no_reason_to_keep_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the registry went back behind the log's files; then the store fails."""
    place = Place(monkeypatch)

    def full(*_of: object) -> None:
        raise LogWriteFailed("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(
            "scribengin.log.namespace.sort_out", lambda _log, _store, owner, **_how: SortedOut(owner.epoch + 5, 1)
        )
        patch.setattr(MemorySegmentStore, "announce", full)
        with pytest.raises(LogWriteFailed):
            place.logs.open_writer(LOG)
    place.expect_no_lock()


@pytest.mark.parametrize("take", TAKES)
def test_what_is_in_the_way_of_giving_the_lock_back_does_not_hide_the_first_error(
    take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(monkeypatch)
    released = iter([InconsistentLog("a race without an end"), InconsistentLog("once more"), None])

    def release(metadata: LogMetadata, owner: WriterEpoch) -> None:
        mine = metadata.registry is place.session  # and of no test before, which may be trying still
        if mine and (error := next(released, None)) is not None:
            raise error
        really(metadata, owner)

    def full(*_of: object, **_how: object) -> None:
        raise LogWriteFailed("the disk is full")

    really = writer_lock.release
    with monkeypatch.context() as patch:
        patch.setattr("scribengin.log.namespace.sort_out", full)
        patch.setattr(writer_lock, "release", release)
        with pytest.raises(LogWriteFailed, match="the disk is full") as raised:
            take(place.logs)
        assert any("a race without an end" in note for note in raised.value.__notes__)
        watched = place.ensemble.connect()
        wait_until(lambda: watched.find(LOCK) is None, 60, what="the lock to be given back")
    place.expect_no_lock()


def test_ctrl_c_does_not_wait_for_a_registry_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(monkeypatch)
    asked_on: list[threading.Thread] = []

    def release(metadata: LogMetadata, owner: WriterEpoch) -> None:
        if metadata.registry is place.session:
            asked_on.append(threading.current_thread())
        really(metadata, owner)

    def pressed(*_of: object, **_how: object) -> None:
        raise KeyboardInterrupt

    really = writer_lock.release
    with monkeypatch.context() as patch:
        patch.setattr("scribengin.log.namespace.sort_out", pressed)
        patch.setattr(writer_lock, "release", release)
        with pytest.raises(KeyboardInterrupt):
            place.logs.open_writer(LOG)
        wait_until(lambda: asked_on, 60, what="the lock to be given back")
    place.expect_no_lock()
    assert threading.current_thread() not in asked_on
