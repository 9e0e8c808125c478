"""A tower: tells every role where the others are. Several of them may stand side by side; none of them keeps anything.

Works on a machine with loopback only, where the C tower ends with a segmentation fault.
"""

from __future__ import annotations

import logging
import socket

import zmq

from scribengin.base.closing import ClosedAtExit
from scribengin.base.threads import background
from scribengin.dafka.config import DafkaConfig
from scribengin.dafka.curve import load_keys
from scribengin.dafka.curve.gate import PeerGate, fingerprint_in
from scribengin.dafka.role import check_files_left, no_message, unopened
from scribengin.dafka.state import endpoint_of
from scribengin.dafka.wire import WELCOME, decode_beacon, encode_peer
from scribengin.errors import DafkaClosed, DafkaError, FrameInvalid

_LOG = logging.getLogger(__name__)
_BEACONS_MAX = 1000
_WAIT_MS = 50
_ANYWHERE = ("192.0.2.1", 9)
"""An address for documentation: nothing is sent there, it only finds the way out."""


class DafkaTower(ClosedAtExit):
    """Listens from when it is made until `close`. `sub_address` and `pub_address`: where, with the ports it has got.
    Raises ConfigInvalid for keys that cannot be read, and DafkaError for an address that is taken, or where its process
    may have no more files or threads."""

    def __init__(self, config: DafkaConfig | None = None) -> None:
        self._config = config or DafkaConfig()
        check_files_left("a tower")
        keys = load_keys(self._config.curve)
        self.invalid_frames = 0
        """Messages that were no beacons."""
        self.failure: BaseException | None = None
        self._closing = False
        tower = self._config.tower
        self._gate: PeerGate | None = None
        self._sockets: list[zmq.Socket[bytes]] = []
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._thread = background("dafka-tower", self._run)
        try:
            self._host = way_out() if self._config.is_for_other_machines else None
            self._gate = None if keys is None else PeerGate(self._context, keys)
            self._beacons = self._socket(zmq.XSUB)
            self._peers = self._socket(zmq.XPUB)
            self._listen()
            self._thread.start()
        except zmq.ZMQError as error:
            self._release()
            raise DafkaError(f"a tower cannot listen on {tower.sub_address}, {tower.pub_address}: {error}") from error
        except (OSError, RuntimeError) as error:  # no more files, or threads
            self._release()
            raise DafkaError(unopened("a tower", error)) from error

    @property
    def refused_peers(self) -> int:
        """How often somebody has tried to connect whose key is not allowed."""
        return self._gate.refused if self._gate is not None else 0

    def check(self) -> None:
        """Raises DafkaClosed if the tower has ended, with why."""
        if self.failure is not None:
            raise DafkaClosed(f"the tower at {self.sub_address} has ended: {self.failure}") from self.failure

    def close(self) -> None:
        """Stop telling. Roles go on with whom they know. Idempotent."""
        self._closing = True
        self._thread.join()

    def _listen(self) -> None:
        self._peers.setsockopt(zmq.XPUB_WELCOME_MSG, WELCOME)
        for one, address in (
            (self._beacons, self._config.tower.sub_address),
            (self._peers, self._config.tower.pub_address),
        ):
            if self._gate is not None:
                self._gate.guard(one)
            one.bind(address)
        self.sub_address = self._beacons.getsockopt_string(zmq.LAST_ENDPOINT)
        self.pub_address = self._peers.getsockopt_string(zmq.LAST_ENDPOINT)
        self._beacons.send(b"\x01")  # an XSUB socket subscribes by a message: to everything

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        made = self._context.socket(kind)
        made.setsockopt(zmq.LINGER, 0)
        self._sockets.append(made)
        return made

    def _run(self) -> None:
        try:
            poller = zmq.Poller()
            poller.register(self._beacons, zmq.POLLIN)
            if self._gate is not None:
                poller.register(self._gate.socket, zmq.POLLIN)
            while not self._closing:
                if self._beacons in dict(poller.poll(_WAIT_MS)):
                    self._pass_on()
                if self._gate is not None:
                    self._gate.answer()
                while self._peers.poll(0):
                    self._peers.recv()  # who subscribes to what does not matter: it is all that there is
        except BaseException as error:  # noqa: BLE001  the thread's outermost loop: `failure` tells of it
            self.failure = error
        finally:
            self._release()

    def _pass_on(self) -> None:
        for _ in range(_BEACONS_MAX):
            try:
                frames = self._beacons.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            try:
                beacon = decode_beacon([frame.bytes for frame in frames])
                fingerprint = "" if self._gate is None else fingerprint_in(frames[0])
                peer = endpoint_of(beacon, str(frames[0].get("Peer-Address")), self._host, fingerprint)
            except FrameInvalid as error:
                if not self.invalid_frames:
                    _LOG.warning(no_message(f"tower at {self.sub_address}", error))
                self.invalid_frames += 1  # whoever sees the count finds it said
                continue
            self._peers.send_multipart(encode_peer(peer))

    def _release(self) -> None:
        for one in self._sockets:
            one.close()
        if self._gate is not None:
            self._gate.close()
        self._context.term()


def way_out() -> str | None:
    """The address of this machine that others see. None: it has loopback only."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ANYWHERE)
        except OSError:
            return None
        return str(probe.getsockname()[0])
