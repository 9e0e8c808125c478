"""A broker behind TLS that wants to know who one is: settings of the connection go through to the client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors.contract import RoundLimits
from scribengin.connectors.kafka.client import client as kafka_client
from scribengin.connectors.kafka.source.config import KafkaSourceConfig
from scribengin.connectors.kafka.source.source import KafkaSource
from scribengin.errors import ConfigInvalid
from scribengin_dev.servers.java_server import ports_of
from scribengin_dev.servers.kafka import KafkaServer
from tests.servers.kafka_side import KafkaSide

pytestmark = pytest.mark.servers  # also of those that start their own

ALL = RoundLimits(10**6, 10**9)
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True)
class Guarded:
    """A broker's guarded door, and what its callers need: the file of the authority that its certificate is of."""

    bootstrap: str
    authority: Path

    def client(self, password: str) -> dict[str, str]:
        """librdkafka's settings."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "reader",
            "sasl.password": password,
        }

    def source(self, **settings: object) -> KafkaSource:
        """A source of the topic `in`."""
        value = {"kind": "kafka", "bootstrap": self.bootstrap, "topics": "in", "mirror_offsets": False, **settings}
        config = KafkaSourceConfig.parse(value, source="a test")
        return KafkaSource("in", config, "flow", SYSTEM_CLOCK, lambda: False)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    plain, controller, door = ports_of(folder, 3)
    authority, keys = folder / "authority.pem", folder / "broker.pem"
    trusted = trustme.CA()
    trusted.cert_pem.write_to_path(str(authority))
    certificate = trusted.issue_cert("127.0.0.1")
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)  # Kafka reads no other form than PKCS 8
    form = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    keys.write_bytes(form + b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},DOOR://127.0.0.1:{door}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},DOOR://127.0.0.1:{door}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,DOOR:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "listener.name.door.plain.sasl.jaas.config": f'{_LOGIN} user_reader="secret";',
    }
    with KafkaServer(folder, settings=settings):
        yield Guarded(f"127.0.0.1:{door}", authority)


def test_whoever_has_the_password_reads_and_no_password_stands_in_the_registry(
    guarded: Guarded, tmp_path: Path
) -> None:
    login = {"security_protocol": "SASL_SSL", "ssl_cafile": str(guarded.authority), "sasl_mechanism": "PLAIN"}
    side = KafkaSide(guarded.bootstrap, **login, sasl_plain_username="reader", sasl_plain_password="secret")
    with closing(side):
        side.create("in")
        side.send("in", [b"1", b"2"])
    secret = tmp_path / "secret.properties"
    secret.write_text("sasl.password=secret\n")
    without_password = {key: value for key, value in guarded.client("").items() if key != "sasl.password"}
    with closing(guarded.source(client=without_password, client_file=str(secret))) as source:
        reader = source.open_reader(source.streams()[0])
        plan = reader.plan(reader.initial_position(), ALL)
        assert plan is not None
        assert [b.column("payload").to_pylist() for split in plan.splits for b in split.read()] == [[b"1", b"2"]]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sasl.password": "guessed"}, r"listing topics: .*uthentication fail.*; correct .*`client`"),
        ({"ssl.ca.location": ""}, r"listing topics: .*certificate verify failed.*; correct .*`client`"),
    ],
    ids=["a wrong password", "a certificate of nobody we know"],
)
def test_who_may_not_enter_is_told_so_in_one_line(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], said: str
) -> None:
    monkeypatch.setattr(kafka_client, "REQUEST_TIMEOUT_S", 4.0)  # for which it is tried again and again
    settings = {**guarded.client("secret"), **changed}
    client = {key: value for key, value in settings.items() if value}
    with closing(guarded.source(client=client)) as source, pytest.raises(ConfigInvalid, match=said) as refused:
        source.streams()
    assert "\n" not in str(refused.value)
