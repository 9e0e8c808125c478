"""A registry that goes away while somebody takes a log: whoever is refused leaves no lock behind.

The session may outlive that, and with it all that it holds: then nobody else would get the log. It goes away at each
call that taking the log makes, in turn; what was asked then is done or not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scribengin.errors import Fenced, LogWriteFailed
from scribengin.log import LogNamespace, LogWriter
from scribengin.log.metadata import writer_lock
from scribengin.log.write.restored import SortedOut
from scribengin.testing.log_samples import bound_namespace, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE, MemorySegmentStore
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import SessionState
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
        self.ensemble = MemoryEnsemble()
        self.disk = MemoryDisk("left")
        self.others = bound_namespace(self.ensemble.connect(), self.disk.name, LOG, store=MEMORY_STORE)
        writer = self.others.open_writer(LOG)
        writer.write(b"before").result(60)
        writer.abort()
        self.session = self.ensemble.connect(session_timeout_s=0.005)
        self.logs = LogNamespace.open("/logs", registry=self.session)

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
            if away and not done:
                self.ensemble.suspend(self.session)
            try:
                return ask(act, path, how)
            finally:
                if away:
                    self.ensemble.suspend(self.session)
                    raise error(f"cannot {act} {path}", path=path)

        return asked

    def expect_no_lock(self) -> None:
        watched = self.ensemble.connect()
        wait_until(lambda: watched.find(LOCK) is None, 60, what="the lock to be given back")
        with self.others.open_writer(LOG, timeout_s=60) as writer:
            writer.write(b"after").result(60)
        assert payloads_read(self.others, LOG) == [b"before", b"after"]


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
            if place.session.state is SessionState.CONNECTED:
                break  # it makes no more calls than that
            place.ensemble.resume(place.session)
            if isinstance(taken, LogWriter):
                taken.abort()
            place.expect_no_lock()
    assert refused > 5


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
