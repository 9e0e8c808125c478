"""What a proxy keeps of the logs that it was asked for."""

from __future__ import annotations

import errno
import gc
from collections.abc import Iterator
from contextlib import ExitStack
from weakref import ref

import pyarrow as pa
import pytest

from scribengin.log.format.records import Record, body_of_records
from scribengin.proxy.config import ProxyConfig, RateConfig
from scribengin.proxy.nodes import ProxyDescriptor
from scribengin.proxy.owned import OwnedLog
from scribengin.proxy.service import ProxyService
from scribengin.proxy.wire.answers import AskDone, Refused
from scribengin.proxy.wire.requests import WRITE, AskRequest, encode_write
from scribengin.testing.clocks import ManualClock
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin.testing.waiting import wait_until

LOG, OTHER = "flights/0", "flights/1"
SENDER = bytes(16)


class Place:
    """A proxy that takes a record a second of each log."""

    def __init__(self, stack: ExitStack) -> None:
        registry = stack.enter_context(MemoryEnsemble().connect())
        disk = MemoryDisk(f"disk {id(stack)}")
        self.namespace = stack.enter_context(bound_namespace(registry, disk.name, LOG, OTHER, store=MEMORY_STORE))
        config = ProxyConfig(log_rates=RateConfig(records_s_hard=1))
        proxy = ProxyDescriptor(name="a", address="a proxy")
        self.service = stack.enter_context(ProxyService(self.namespace, registry, proxy, config, ManualClock()))

    def write(self, log: str, number: int = 1) -> str:
        """The answer's kind, or what it is refused with. Nothing of it is held."""
        body = body_of_records([Record(7, None, None, b"x", 0)])
        request = encode_write(log, SENDER, number, number - 1, body, txids=False)
        found = self.service.answer(WRITE, pa.py_buffer(request))
        return type(found.error if isinstance(found, Refused) else found).__name__

    def refused_so_far(self) -> int:
        said = self.service.ask(AskRequest("info"))
        assert isinstance(said, AskDone)
        return int(said.said["requests_refused"])


@pytest.fixture
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack)


def known_logs() -> set[str]:
    gc.collect()
    return {one.name for one in gc.get_objects() if isinstance(one, OwnedLog)}


def test_names_of_logs_that_are_not_there_are_not_kept(place: Place) -> None:
    assert place.write(LOG) == "Written"
    for n in range(20):
        assert place.write(f"nowhere/{n}") == "LogNotFound"
    assert known_logs() == {LOG}
    place.service.sweep()
    assert place.service.logs == [LOG], "it is written as before"


def test_a_log_that_is_written_no_more_is_forgotten_and_its_counters_stand(place: Place) -> None:
    assert place.write(LOG) == "Written"
    assert place.write(LOG, 2) == "WrittenTooFast"
    assert isinstance(place.service.ask(AskRequest("delete", LOG, {"force": False})), AskDone)
    place.service.sweep()
    assert known_logs() == set()
    assert place.refused_so_far() == 1


def test_a_name_has_one_owner_as_long_as_a_request_is_under_way(place: Place) -> None:
    under_way = place.service._log("nowhere")
    place.service.sweep()
    gc.collect()
    assert place.service._log("/nowhere") is under_way
    gone = ref(under_way)
    del under_way
    assert gone() is None


def cannot_close(place: Place, log: str) -> None:
    """The disk is broken: the log's files cannot be closed in order."""
    writer = place.service._log(log).writer
    assert writer is not None

    def abandon() -> None:
        raise OSError(errno.EIO, "Input/output error")

    writer._chain.abandon = abandon  # type: ignore[method-assign]


def test_a_file_that_cannot_be_closed_is_in_the_way_of_no_other_log_when_a_proxy_ends(place: Place) -> None:
    for log in (LOG, OTHER):
        assert place.write(log) == "Written"
    cannot_close(place, LOG)
    place.service.close()
    assert [place.service._nodes.owner(log) for log in (LOG, OTHER)] == [None, None]


def test_a_file_that_cannot_be_closed_is_in_the_way_of_no_other_log_that_was_lost(place: Place) -> None:
    for log in (LOG, OTHER):
        assert place.write(log) == "Written"
        cannot_close(place, log)
        place.namespace.delete(log, force=True)
    wait_until(lambda: place.service.logs == [], what="the proxy has heard of it")
    place.service.sweep()
    assert [place.service._nodes.owner(log) for log in (LOG, OTHER)] == [None, None]
