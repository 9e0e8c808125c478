"""A proxy whose namespace was moved to another store under it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin.errors import StoreNotMounted, StoreUnreachable
from scribengin.log import LogNamespace, migrate_namespace
from scribengin.log.store.opening import store_kind
from scribengin.proxy.client.elsewhere import NamespaceElsewhere
from scribengin.testing.log_samples import bound_namespace, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.segments import MEMORY_STORE
from tests.integration.proxy.proxied import LOG, PATH, ProxiedPlace, proxied_place


@pytest.fixture
def place() -> Iterator[ProxiedPlace]:
    yield from proxied_place()


@pytest.fixture
def moved_to(place: ProxiedPlace) -> MemoryDisk:
    return MemoryDisk(f"moved {id(place)}")


def test_it_leaves_logs_to_the_proxies_that_have_the_new_place(place: ProxiedPlace, moved_to: MemoryDisk) -> None:
    logs = [f"log/{number}" for number in range(8)]
    namespace = place.bound(*logs)
    place.start()
    with place.client().open_writer(logs[0]) as writer:
        writer.write(b"before").result(120)
    place.client().release(logs[0])
    namespace.close()
    migrate_namespace(PATH, moved_to.name, registry=place.registry, store=MEMORY_STORE)
    place.start()
    client = place.client(reads="proxy")
    for log in logs:
        with client.open_writer(log) as writer:
            writer.write(b"after").result(120)
    assert payloads_read(client, logs[0]) == [b"before", b"after"]
    with LogNamespace.open(PATH, registry=place.registry) as again:
        assert payloads_read(again, logs[0]) == [b"before", b"after"]


def test_writers_on_other_machines_write_in_the_new_place(place: ProxiedPlace, tmp_path: Path) -> None:
    logs = [f"log/{number}" for number in range(8)]
    bound_namespace(place.registry, tmp_path / "old", *logs).close()
    place.start()
    migrate_namespace(PATH, tmp_path / "new", registry=place.registry)
    place.start()
    elsewhere = NamespaceElsewhere.find(PATH, place.session())
    assert elsewhere is not None
    with elsewhere:
        for log in logs:
            with elsewhere.open_writer(log) as writer:
                writer.write(b"after").result(120)
    with LogNamespace.open(PATH, registry=place.registry) as again:
        assert payloads_read(again, logs[7]) == [b"after"]


def test_who_finds_no_other_proxy_is_told_to_start_that_one_again(place: ProxiedPlace, moved_to: MemoryDisk) -> None:
    place.bound(LOG).close()
    server = place.start()
    migrate_namespace(PATH, moved_to.name, registry=place.registry, store=MEMORY_STORE)
    client = place.client(patience_s=0.5)
    with pytest.raises(StoreUnreachable, match=f"{server.address} .* start it again"):
        client.open_writer(LOG, timeout_s=0)


def test_a_disk_that_is_not_mounted_is_told_as_it_is(place: ProxiedPlace) -> None:
    kept = place.bound(LOG).descriptor
    place.start()
    client = place.client()
    store_kind(kept.store).retire(kept.location, kept.token)
    with pytest.raises(StoreNotMounted, match="is not this namespace's disk"):
        client.open_writer(LOG)
