"""What tests of Dafka's keys share: key pairs, configurations that name them, and strangers on bare sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq
from zmq.utils import z85

from scribengin.dafka import DafkaConfig, DafkaTower
from scribengin.dafka.curve import CurveConfig, CurveKeys, load_keys, make_key_file
from tests.integration.dafka.dafka_roles import LISTENING, config_of

FAILED = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_AUTH
SUCCEEDED = zmq.Event.HANDSHAKE_SUCCEEDED
LIMIT_MS = 60_000


class KeyRing:
    """Key pairs by name, in a folder; each is made when it is first named."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._public: dict[str, str] = {}

    def file(self, name: str) -> Path:
        """Its file."""
        file = self._folder / f"{name}.key"
        if name not in self._public:
            self._public[name] = make_key_file(file)
        return file

    def public(self, *names: str) -> list[str]:
        """Public keys."""
        return [self._public[name] for name in names if self.file(name)]

    def pair(self, name: str) -> CurveKeys:
        """As sockets take them."""
        keys = load_keys(CurveConfig(key=self.file(name)))
        assert keys is not None
        return keys

    def section(self, name: str, *allowed: str, tower: str = "tower") -> dict[str, Any]:
        """The section `curve` of the role of that name."""
        public = self.public(*allowed)
        return {"key": self.file(name), "allowed": public, "tower_key": self.public(tower)}


def with_keys(config: DafkaConfig, section: dict[str, Any]) -> DafkaConfig:
    """The same, with the section `curve`."""
    return DafkaConfig.model_validate({**config.model_dump(exclude={"curve"}), "curve": section})


def tower_with(section: dict[str, Any]) -> DafkaTower:
    """A tower with keys, on ports of its own."""
    return DafkaTower(with_keys(LISTENING, section))


def roles_with(tower: DafkaTower, section: dict[str, Any], **sections: dict[str, Any]) -> DafkaConfig:
    """Of roles with keys that find each other through that tower."""
    return with_keys(config_of(tower, **sections), section)


@contextmanager
def stranger(kind: int, keys: CurveKeys | None = None, *, server: str = "") -> Iterator[zmq.Socket[bytes]]:
    """A bare socket that connects with `keys` to whoever has the public key `server`; without keys, in the clear."""
    with zmq.Context() as context, context.socket(kind) as one:
        one.setsockopt(zmq.LINGER, 0)
        if keys is not None:
            one.setsockopt(zmq.CURVE_PUBLICKEY, keys.public)
            one.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
            one.setsockopt(zmq.CURVE_SERVERKEY, z85.decode(server))
        yield one


@contextmanager
def impostor(kind: int, keys: CurveKeys | None = None) -> Iterator[tuple[zmq.Socket[bytes], str]]:
    """A bare socket that is listening where somebody else is expected, and where. It lets everybody in."""
    with zmq.Context() as context, context.socket(kind) as one:
        one.setsockopt(zmq.LINGER, 0)
        if keys is not None:
            one.setsockopt(zmq.CURVE_SECRETKEY, keys.secret)
            one.setsockopt(zmq.CURVE_SERVER, 1)
        yield one, f"tcp://127.0.0.1:{one.bind_to_random_port('tcp://127.0.0.1')}"


@contextmanager
def handshakes_of(one: zmq.Socket[bytes], events: int = FAILED) -> Iterator[zmq.Socket[bytes]]:
    """What becomes of the handshakes of a socket: a message each."""
    monitor = one.get_monitor_socket(events)
    try:
        yield monitor
    finally:
        one.disable_monitor()


def expect_handshake(monitor: zmq.Socket[bytes]) -> None:
    """Wait for what becomes of the next one."""
    assert monitor.poll(LIMIT_MS), "no handshake came to its end"
    monitor.recv_multipart()
