"""What is asked of proxies again, or known of late, and a log that was deleted and made anew meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scribengin.errors import EndOfStream, LogNotFound, ProxyUnreachable
from scribengin.log import DLSN, LogNamespace
from scribengin.proxy import ProxiedNamespace
from scribengin.proxy.client.transport import FlightTransport
from scribengin.proxy.nodes import ProxyDescriptor, ProxyNodes
from scribengin.testing.log_samples import bound_namespace, fill_log, payloads_read
from scribengin.testing.waiting import wait_until
from scribengin_registry.errors import RegistryUnreachable
from tests.integration.proxy.proxied import LOG, PATH, ProxiedPlace, proxied_place
from tests.open_files import open_below


@pytest.fixture
def place() -> Iterator[ProxiedPlace]:
    yield from proxied_place()


def made(namespace: LogNamespace, *payloads: bytes) -> None:
    """The log, with these records."""
    namespace.create(LOG)
    with namespace.open_writer(LOG) as writer:
        for payload in payloads:
            writer.write(payload)


class HeardLate(FlightTransport):
    """Loses the first answer. Before it is known to be lost, something else happens."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self._meanwhile: Callable[[], object] | None = meanwhile

    def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[object]:  # type: ignore[override]
        answer = super().call(address, kind, body, timeout_s)
        if self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
            raise ProxyUnreachable("the answer was lost")
        return list(answer)


def patient(place: ProxiedPlace, meanwhile: Callable[[], object]) -> ProxiedNamespace:
    transport = HeardLate(meanwhile)
    return place.stack.enter_context(ProxiedNamespace.open(PATH, registry=place.session(), transport=transport))


def test_a_deletion_that_is_asked_for_again_leaves_the_log_that_was_made_in_its_place(place: ProxiedPlace) -> None:
    namespace = place.bound()
    made(namespace, b"old")
    place.start()
    client = patient(place, lambda: made(namespace, b"new"))
    client.delete(LOG)
    assert payloads_read(namespace, LOG) == [b"new"]


def test_a_truncation_that_is_asked_for_again_takes_nothing_of_the_log_that_was_made_in_its_place(
    place: ProxiedPlace,
) -> None:
    namespace = place.bound()
    made(namespace, b"old", b"old")
    place.start()

    def make_anew() -> None:
        namespace.delete(LOG)
        made(namespace, b"new 1", b"new 2")

    client = patient(place, make_anew)
    with pytest.raises(LogNotFound, match="another one made in its place"):
        client.truncate(LOG, DLSN(2, 0, 0))
    assert payloads_read(namespace, LOG) == [b"new 1", b"new 2"]


def test_a_client_whose_server_of_the_registry_is_behind_has_the_log_that_there_is(place: ProxiedPlace) -> None:
    namespace = place.bound()
    made(namespace, b"old")
    place.start()
    behind = place.stack.enter_context(place.ensemble.connect(follower=place.ensemble.follower()))
    client = place.stack.enter_context(ProxiedNamespace.open(PATH, registry=behind))
    assert client.exists(LOG)
    namespace.delete(LOG)
    namespace.create(LOG)
    with client.open_writer(LOG) as writer:
        writer.write(b"new").result(120)
    assert payloads_read(namespace, LOG) == [b"new"]
    assert client.create("made/now").directory == namespace.info("made/now").log.directory
    namespace.delete(LOG, force=True)
    made(namespace, b"newest")
    client.delete(LOG)
    assert not namespace.exists(LOG)


@pytest.mark.parametrize("how", ["deleted", "stolen"])
def test_a_proxy_lets_go_of_a_log_that_it_has_lost_though_nobody_asks_for_it(
    place: ProxiedPlace, tmp_path: Path, how: str
) -> None:
    """Its files would be open for good, and the disk space of a log that is deleted would not be free."""
    namespace = bound_namespace(place.registry, tmp_path, LOG, "other")
    server = place.start()
    client = place.client(reads="proxy")
    for log in (LOG, "other"):
        with client.open_writer(log) as writer:
            writer.write(b"1").result(120)
    if how == "deleted":
        namespace.delete(LOG, force=True)
    else:
        namespace.open_writer(LOG, steal=True).close()
    wait_until(lambda: server.service.logs == ["other"], 120, "the proxy to have heard of it")
    server.service.sweep()
    assert {Path(file).parent.name.partition("-")[0] for file in open_below(tmp_path)} == {"other"}
    assert place.registry.children(f"{PATH}/proxies/owners") == ["other"]


def test_a_proxy_that_ends_while_the_registry_is_away_keeps_no_file_open(
    place: ProxiedPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can be told that its logs are free; their next owners recover them."""
    namespace = bound_namespace(place.registry, tmp_path, LOG, "other")
    service = place.start().service
    client = place.client(reads="proxy")
    for log in (LOG, "other"):
        with client.open_writer(log) as writer:
            writer.write(b"1").result(120)

    def away(_nodes: ProxyNodes, _proxy: ProxyDescriptor) -> None:
        raise RegistryUnreachable("no server answers")

    monkeypatch.setattr(ProxyNodes, "announce", away)
    with pytest.raises(RegistryUnreachable):
        service.close()
    assert open_below(tmp_path) == set()
    assert payloads_read(namespace, LOG) == [b"1"]


@pytest.mark.parametrize("before", [True, False], ids=["made anew", "new"])
def test_a_proxy_whose_server_of_the_registry_is_behind_reads_the_log_that_there_is(
    place: ProxiedPlace, before: bool
) -> None:
    namespace = place.bound(*([LOG] if before else []))
    behind = place.stack.enter_context(place.ensemble.connect(follower=place.ensemble.follower()))
    place.start(behind)
    if before:
        namespace.delete(LOG)
    namespace.create(LOG)
    payloads = fill_log(namespace, LOG, 3)
    assert payloads_read(place.client(reads="proxy"), LOG) == payloads
    with place.client().open_writer(LOG) as writer:
        writer.write(b"more").result(120)
    assert payloads_read(namespace, LOG) == [*payloads, b"more"]


def test_a_proxy_whose_server_of_the_registry_is_behind_writes_a_log_that_is_new(place: ProxiedPlace) -> None:
    namespace = place.bound()
    behind = place.stack.enter_context(place.ensemble.connect(follower=place.ensemble.follower()))
    place.start(behind)
    namespace.create(LOG)
    with place.client().open_writer(LOG) as writer:
        writer.write(b"1").result(120)
    assert payloads_read(namespace, LOG) == [b"1"]


@pytest.mark.parametrize("asked", ["delete", "truncate", "seal"])
@pytest.mark.parametrize("before", [True, False], ids=["made anew", "new"])
def test_a_proxy_whose_server_of_the_registry_is_behind_changes_the_log_that_there_is(
    place: ProxiedPlace, before: bool, asked: str
) -> None:
    namespace = place.bound(*([LOG] if before else []))
    behind = place.stack.enter_context(place.ensemble.connect(follower=place.ensemble.follower()))
    place.start(behind)
    client = place.client(reads="proxy")
    if before:
        namespace.delete(LOG)
    namespace.create(LOG)
    payloads = fill_log(namespace, LOG, 3)
    if asked == "delete":
        client.delete(LOG)
        assert not namespace.exists(LOG)
    elif asked == "truncate":
        with namespace.open_reader(LOG) as reader:
            second = reader.read(2)[1].dlsn
        assert client.truncate(LOG, second)
        assert payloads_read(namespace, LOG) == payloads[1:]
    else:
        with client.open_writer(LOG) as writer:
            writer.mark_end_of_stream()
        with pytest.raises(EndOfStream):
            namespace.open_writer(LOG)
