"""A broker that permits some things and not others: what is not needed is not asked for, and what is missing is told in
one line that names what to do, and is neither waited for nor tried without end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing, nullcontext

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.commit_log import Decision
from scribengin.connectors import Environment, open_sink
from scribengin.connectors.contract import Attempt, RoundLimits
from scribengin.connectors.kafka.sink import transaction
from scribengin.connectors.kafka.sink.config import KafkaSinkConfig
from scribengin.connectors.kafka.source.config import KafkaSourceConfig
from scribengin.connectors.kafka.source.reading import close_idle
from scribengin.connectors.kafka.source.source import KafkaSource
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.errors import ConfigInvalid, SourceMissing
from scribengin_dev.servers.java_server import ports_of
from scribengin_dev.servers.kafka import KafkaServer
from scribengin_registry.contract import Registry
from tests.servers.kafka_side import KafkaSide

pytestmark = pytest.mark.servers  # also of those that start their own

ALL = RoundLimits(10**6, 10**9)
_ANY = AclOperation.ANY
_DESCRIBE, _READ, _WRITE = AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE
_TOPIC, _GROUP, _TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_ALL_LEAVES = [(_TOPIC, _WRITE), (_TOPIC, _READ), (_TRANSACTION, _WRITE), (_GROUP, _READ)]
Leave = tuple[ResourceType, AclOperation]


class Door:
    """A broker to which the user `reader` comes, and what that one may do there."""

    def __init__(self, admin: AdminClient, bootstrap: str) -> None:
        self._admin = admin
        self.bootstrap = bootstrap
        self.client = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "reader",
            "sasl.password": "secret",
        }

    def permit(self, *leaves: Leave) -> None:
        """These on all things, and nothing else."""
        everything = AclBindingFilter(
            *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, _ANY, AclPermissionType.ANY)
        )
        for gone in self._admin.delete_acls([everything]).values():
            gone.result()
        rules = [
            AclBinding(kind, "*", ResourcePatternType.LITERAL, "User:reader", "*", operation, AclPermissionType.ALLOW)
            for kind, operation in leaves
        ]
        for made in self._admin.create_acls(rules).values():
            made.result()

    def read(self) -> list[bytes]:
        """The records of the topic `in`, as a source reads them."""
        value = {"kind": "kafka", "bootstrap": self.bootstrap, "topics": "in", "client": self.client}
        config = KafkaSourceConfig.parse({**value, "mirror_offsets": False}, source="a test")
        with closing(KafkaSource("in", config, "flow", SYSTEM_CLOCK, lambda: False)) as source:
            reader = source.open_reader(source.streams()[0])
            plan = reader.plan(reader.initial_position(), ALL)
            assert plan is not None
            return [value for s in plan.splits for b in s.read() for value in b.column("payload").to_pylist()]

    def write(self, registry: Registry, **settings: object) -> None:
        """A round of the topic `out`, as a sink's first owner commits it."""
        value = {"kind": "kafka", "bootstrap": self.bootstrap, "topic": "out", "client": self.client, **settings}
        config = KafkaSinkConfig.parse(value, source="a test")
        nodes = f"flow-{uuid.uuid4().hex[:8]}"
        sink = open_sink("out", config, Environment(registry=registry, dataflow=nodes, nodes=STREAM_NODES))
        (stream,) = sink.streams(1)
        sink.create([stream])
        coordinator = sink.open_coordinator(stream, "task-0") if sink.coordinator_id(stream) else None
        with closing(coordinator) if coordinator is not None else nullcontext():
            if coordinator is not None:
                coordinator.recover()
                coordinator.establish(Decision(coordinator=coordinator.name, epoch=1, round=0))
            with closing(sink.open_writer(stream, Attempt("owner", 1, "/commit-log", coordinator))) as writer:
                writer.write(pa.record_batch({"payload": pa.array([b"1"], pa.binary())}))
                writer.prepare_commit()
                if coordinator is not None:
                    coordinator.prepare(Decision(coordinator=coordinator.name, epoch=1, round=1))
                    coordinator.commit()


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("permissions")
    plain, controller, guarded = ports_of(folder, 3)
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},DOOR://127.0.0.1:{guarded}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},DOOR://127.0.0.1:{guarded}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,DOOR:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "transaction.max.timeout.ms": 300_000,
        "listener.name.door.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_reader="secret";'
        ),
    }
    with KafkaServer(folder, settings=settings) as server:
        with closing(KafkaSide(server.bootstrap)) as side:
            side.create("in")
            side.create("out")
            side.send("in", [b"1", b"2"])
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})  # it outlives the broker
        yield Door(admin, f"127.0.0.1:{guarded}")


def test_a_source_needs_leave_for_its_topic_and_for_no_group(door: Door) -> None:
    door.permit((_TOPIC, _READ))
    for _again in range(5):  # the broker's refusal comes beside the records
        assert door.read() == [b"1", b"2"]
        close_idle()


def test_a_topic_that_may_not_be_seen_may_be_there(door: Door) -> None:
    door.permit((_GROUP, _READ))
    with pytest.raises(SourceMissing, match=r"no topic 'in' .* or permit the source's user to see it$"):
        door.read()


def test_a_sink_with_all_leaves_writes(door: Door, memory_registry: Registry) -> None:
    door.permit(*_ALL_LEAVES)
    door.write(memory_registry)


@pytest.mark.parametrize(
    ("leaves", "settings", "said"),
    [
        ([(_TOPIC, _WRITE), (_GROUP, _READ)], {}, r"ransactional Id authorization failed.*; correct"),
        (
            [(_TOPIC, _WRITE), (_TRANSACTION, _WRITE)],
            {},
            r"group scribengin-out-0-.*roup auth.* failed.*; correct",
        ),
        ([(_TOPIC, _DESCRIBE), (_TRANSACTION, _WRITE), (_GROUP, _READ)], {}, r"uthorization failed.*; correct"),
        (
            [(_TOPIC, _DESCRIBE)],
            {"guarantee": "at_least_once"},
            r"to topic out: .*uthorization failed.*; correct",
        ),
        (
            _ALL_LEAVES,
            {"transaction_timeout_s": 600},
            r"transaction\.max\.timeout\.ms.*; lower `transaction_timeout_s`",
        ),
    ],
    ids=["no transaction", "no group", "no topic", "no topic at least once", "not so long a transaction"],
)
def test_what_a_sink_may_not_do_is_told_at_once_with_what_there_is_to_do(
    door: Door,
    memory_registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
    leaves: list[Leave],
    settings: dict[str, object],
    said: str,
) -> None:
    monkeypatch.setattr(transaction, "REQUEST_TIMEOUT_S", 5.0)
    door.permit(*leaves)
    with pytest.raises(ConfigInvalid, match=said) as refused:
        door.write(memory_registry, **settings)
    assert "\n" not in str(refused.value)
