"""Segments in cold storage, read through a proxy: it opens what the registry names, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from scribengin.errors import DamagedEntry
from scribengin.log import LogConfig
from scribengin.proxy.wire import segments as wire
from scribengin.proxy.wire.answers import AskDone, Refused
from scribengin.proxy.wire.requests import ASK, encode_ask
from scribengin.testing.log_samples import fill_log, payloads_left, payloads_read
from scribengin.testing.memory.files import MemoryFiles
from tests.integration.proxy.proxied import LOG, ProxiedPlace, proxied_place

CONFIG = LogConfig(segment_bytes_max=4096, cold_url="cold://kept", hot_hours=0)


@pytest.fixture
def place() -> Iterator[ProxiedPlace]:
    yield from proxied_place()


@pytest.fixture
def cold() -> Iterator[MemoryFiles]:
    files = MemoryFiles("cold")
    with files.opened_by("cold"):
        yield files


def test_a_reader_behind_a_proxy_crosses_the_border_to_cold_storage(place: ProxiedPlace, cold: MemoryFiles) -> None:
    namespace = place.bound(LOG, config=CONFIG.model_copy(update={"cold_url": None, "hot_hours": None}))
    payloads = fill_log(namespace, LOG, 9, 3)
    server = place.start()
    client = place.client()
    with client.open_reader(LOG) as reader:
        assert [record.payload for record in reader.read(2)] == payloads[:2]
        namespace.configure(LOG, CONFIG)
        assert namespace.offload(LOG) == 3
        namespace.purge(LOG)
        segment = namespace.segments(LOG)[1]
        assert segment.file.place
        for name in (segment.raw_file, segment.copy_file):
            if name is not None:
                namespace._store.remove(name)
        assert payloads_left(reader) == payloads[2:]
    assert payloads_read(client, LOG) == payloads
    named = wire.about_segment(wire.OPEN, segment.file)
    assert named.fields["segment"] == list(segment.file[:4])  # who asks says no place
    assert isinstance(server.service.answer(ASK, pa.py_buffer(encode_ask(named))), AskDone)
    another = wire.about_segment(wire.OPEN, segment.raw_file.moved("cold://elsewhere", "0" * 12))
    assert isinstance(server.service.answer(ASK, pa.py_buffer(encode_ask(another))), Refused)


def test_a_proxy_whose_server_of_the_registry_is_behind_finds_what_is_cold_by_now(
    place: ProxiedPlace, cold: MemoryFiles
) -> None:
    namespace = place.bound(LOG, config=CONFIG.model_copy(update={"cold_url": None, "hot_hours": None}))
    payloads = fill_log(namespace, LOG, 9, 3)
    behind = place.stack.enter_context(place.ensemble.connect(follower=place.ensemble.follower()))
    server = place.start(behind)
    namespace.configure(LOG, CONFIG)
    assert namespace.offload(LOG) == 3
    namespace.purge(LOG)
    segment = namespace.segments(LOG)[1].file
    assert segment.place
    named = wire.about_segment(wire.OPEN, segment)
    assert isinstance(server.service.answer(ASK, pa.py_buffer(encode_ask(named))), AskDone)
    assert payloads_read(place.client(), LOG) == payloads


def test_a_cold_segment_that_is_missing_is_named_to_who_reads_through_a_proxy(
    place: ProxiedPlace, cold: MemoryFiles
) -> None:
    namespace = place.bound(LOG, config=CONFIG)
    fill_log(namespace, LOG, 3)
    namespace.offload(LOG)
    namespace.purge(LOG)
    (segment,) = namespace.segments(LOG)
    namespace._store.remove(segment.file)
    place.start()
    with place.client().open_reader(LOG) as reader, pytest.raises(DamagedEntry, match=r"segment 1.*cold://kept"):
        reader.read(1)
