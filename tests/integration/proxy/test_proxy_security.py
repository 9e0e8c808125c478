"""Proxies that show a certificate and ask for a token, over real sockets: who is let in, who is not, and what shows."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from scribengin.errors import AccessDenied, CallerUnknown, ConfigInvalid, LogError, ProxyUnreachable
from scribengin.log import DLSN, LogConfig
from scribengin.proxy import ProxyServer
from scribengin.proxy.config import CA_VARIABLE, TOKEN_VARIABLE
from scribengin.testing.log_samples import fill_log, payloads_of, payloads_read
from tests.integration.proxy.proxied import LOG, ProxiedPlace, proxied_place

TOKEN, READER = "0f3a-the-token-of-ingest-9c", "77d1-the-token-of-reports-e2"


@dataclass
class Guarded:
    """Proxies behind TLS that know two callers: `ingest` may do everything to `flights/*`, `reports` may read."""

    place: ProxiedPlace
    folder: Path
    authority: trustme.CA

    def start(self, *names: str) -> ProxyServer:
        """A proxy more, whose certificate names these hosts."""
        certificate = self.authority.issue_cert(*(names or ("127.0.0.1",)))
        shown, key = self.folder / "shown.pem", self.folder / "key.pem"
        shown.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        key.write_bytes(certificate.private_key_pem.bytes())
        return self.place.start(
            tls={"certificate_file": str(shown), "key_file": str(key)},
            access={
                "callers": {
                    "ingest": {
                        "token": f"${{file:{self.folder}/ingest}}",
                        "logs": {"flights/*": ["read", "write", "administer"]},
                    },
                    "reports": {"token": f"${{file:{self.folder}/reports}}", "logs": {"*": ["read"]}},
                }
            },
        )


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trustme.CA().cert_pem.write_to_path(tmp_path / "another.pem")
    (tmp_path / "ingest").write_text(f"{TOKEN}\n")
    (tmp_path / "reports").write_text(READER)
    monkeypatch.setenv(CA_VARIABLE, str(tmp_path / "ca.pem"))
    monkeypatch.setenv(TOKEN_VARIABLE, f"${{file:{tmp_path}/ingest}}")
    for place in proxied_place():
        yield Guarded(place, tmp_path, authority)


def test_who_has_the_token_writes_and_reads_though_proxies_come_and_go(guarded: Guarded) -> None:
    place = guarded.place
    namespace = place.bound(LOG, config=LogConfig(segment_bytes_max=4096))
    one, other = guarded.start(), guarded.start()
    assert one.address.startswith("grpc+tls://127.0.0.1:")
    client, late = place.client(reads="proxy"), place.client(reads="proxy")
    with client.open_writer(LOG) as writer, late.open_writer(LOG) as second:
        writer.write(b"1").result(120)
        (owner,) = (server for server in (one, other) if server.service.logs)
        owner.close()
        second.write(b"2").result(120)
        writer.write(b"3").result(120)
        assert payloads_read(client, LOG) == [b"1", b"2", b"3"]
    client.create("flights/1")
    assert client.names() == [LOG, "flights/1"]
    client.delete("flights/1")
    client.release(LOG)
    assert payloads_read(namespace, LOG) == [b"1", b"2", b"3"]


def test_a_planned_range_is_read_elsewhere_with_the_token_that_is_there(guarded: Guarded) -> None:
    place = guarded.place
    payloads = fill_log(place.bound(LOG), LOG, 5, 3)
    guarded.start()
    token = f"${{file:{guarded.folder}/reports}}"
    client = place.client(reads="proxy", token=token)
    with client.open_reader(LOG) as reader:
        plan = reader.plan(DLSN.INITIAL, 100, 1 << 30)
    assert plan is not None
    planned = pickle.dumps(plan.splits)
    assert READER.encode() not in planned
    assert token.encode() in planned
    assert payloads_of_splits(planned) == payloads
    (guarded.folder / "reports").write_text("0000-somebody-else-altogether")
    with pytest.raises(CallerUnknown):
        payloads_of_splits(planned)


def payloads_of_splits(planned: bytes) -> list[bytes]:
    """As another process reads what was planned here."""
    batches = (batch for split in pickle.loads(planned) for batch in split.read())
    return [payload for batch in batches for payload in payloads_of(batch)]


def test_others_are_told_in_one_line_and_nothing_is_done(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    place = guarded.place
    namespace = place.bound(LOG)
    server = guarded.start()
    reports = place.client(token=f"${{file:{guarded.folder}/reports}}", reads="proxy")
    monkeypatch.setenv("WRONG", wrong := "0123-not-the-token-of-anybody")
    stranger = place.client(token="${env:WRONG}", reads="proxy")
    monkeypatch.delenv(TOKEN_VARIABLE)
    nameless = place.client(reads="proxy")
    for client, kind, words in (
        (reports, AccessDenied, f"log '{LOG}': caller 'reports' may not write it, only read it"),
        (stranger, CallerUnknown, "the proxy knows no caller by the token that was sent"),
        (nameless, CallerUnknown, f"none was sent: set {TOKEN_VARIABLE}"),
    ):
        with pytest.raises(LogError) as refused:
            client.open_writer(LOG)
        assert type(refused.value) is kind
        assert words in str(refused.value)
        assert wrong not in str(refused.value)
    assert server.service.logs == []
    assert payloads_read(reports, LOG) == []
    assert payloads_read(namespace, LOG) == []


def test_a_proxy_that_is_not_known_is_told_nothing(guarded: Guarded) -> None:
    place = guarded.place
    place.bound(LOG)
    server = guarded.start("localhost")
    unknown = place.client(ca_file=str(guarded.folder / "another.pem"), patience_s=0.1)
    misnamed = place.client(patience_s=0.1)
    for client, words in (
        (unknown, f"certificate verify failed.*; name the authority .* `ca_file`, or {CA_VARIABLE}"),
        (misnamed, "does not answer: .*; have its certificate name the host"),
    ):
        with pytest.raises(ProxyUnreachable, match=words):
            client.release(LOG)
    assert server.service._denied == 0


def test_a_token_does_not_go_in_the_clear_to_a_proxy_on_another_machine(guarded: Guarded) -> None:
    place = guarded.place
    place.bound(LOG)
    server = place.start(host="0.0.0.0", insecure=True, advertised_host="box-1.example")
    with pytest.raises(ConfigInvalid, match=f"the proxy {server.address} encrypts nothing"):
        place.client().open_writer(LOG)


def test_tokens_are_shown_nowhere(
    guarded: Guarded, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    place = guarded.place
    place.bound(LOG)
    server = guarded.start()
    client = place.client(reads="proxy")
    with client.open_writer(LOG) as writer:
        writer.write(b"1").result(120)
        with pytest.raises(AccessDenied) as denied:
            client.create("orders")
    nodes, found = ["/"], b""
    for path in nodes:
        nodes += [f"{path.rstrip('/')}/{name}" for name in place.registry.children(path)]
        node = place.registry.find(path)
        found += b"" if node is None else node.data
    assert b"grpc+tls" in found
    out, err = capfd.readouterr()
    shown = "".join((out, err, caplog.text, str(denied.value), repr(server.service._config), repr(vars(client))))
    for token in (TOKEN, READER):
        assert token not in shown
        assert token.encode() not in found


def test_a_certificate_or_an_access_that_cannot_be_used_is_refused_in_one_line(guarded: Guarded) -> None:
    guarded.place.bound(LOG)
    guarded.start()
    other = trustme.CA().issue_cert("x").private_key_pem
    shown = str(guarded.folder / "shown.pem")
    other.write_to_path(guarded.folder / "other.pem")
    for certificate, key, words in (
        (shown, str(guarded.folder / "other.pem"), "no certificate and its key, as PEM (key values mismatch)"),
        (str(guarded.folder / "ingest"), shown, "no certificate and its key"),
        (shown, "absent.pem", "absent.pem cannot be read"),
    ):
        with pytest.raises(ConfigInvalid) as refused:
            guarded.place.start(tls={"certificate_file": certificate, "key_file": key})
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)
