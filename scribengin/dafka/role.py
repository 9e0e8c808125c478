"""What all roles have in common: their sockets, the thread that alone uses them, and how they find the others.

A role publishes on one socket of its own, which others connect to, and subscribes at everybody whom the towers tell
of. A role that has to know who has sent something has a subscribing socket for each peer; the others have one for all.
A role with keys has a gate, through which all of that goes. Other threads hand work over under `lock`, and wake the
role's thread. What ends that thread, every later call raises.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import zmq

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.closing import ClosedAtExit
from scribengin.base.text.counting import many
from scribengin.base.threads import background
from scribengin.dafka.config import DafkaConfig
from scribengin.dafka.curve import fingerprint_of, load_keys
from scribengin.dafka.curve.gate import PeerGate
from scribengin.dafka.state import (
    PEERS_MAX,
    STORE_CHARS,
    Connect,
    DisconnectPeer,
    DiscoveryState,
    SayTowersSilent,
    Send,
    SendBeacon,
)
from scribengin.dafka.wire import (
    WELCOME,
    Beacon,
    FrameDecoder,
    Frames,
    Message,
    PeerBeacon,
    RunDecoder,
    Subscription,
    decode_peer,
    decode_subscription,
    encode,
    encode_beacon,
    pack_sequence,
)
from scribengin.errors import DafkaClosed, DafkaError, FrameInvalid

_LOG = logging.getLogger(__name__)
MESSAGES_MAX = 5000
"""Taken from a socket at once, before anything else is looked at: so many messages, or so many records in batches."""
_TICK_S = 0.05
_BYTES_MAX = 512 * 1024 * 1024
_RECORDS_A_FRAME = 16
"""Where frames may hold many records, so many times fewer frames wait in a socket: a frame may be 32 KiB."""
_FRAMES_MIN = 1000
EVERYBODY = ""
_SOCKETS_MAX = 2 * PEERS_MAX
"""Of a role that has one for each peer: more than ZeroMQ gives by itself, as those that close count for a while."""
_MORE = int(zmq.SNDMORE)
"""For every frame of a message but the last. A plain number: pyzmq's enumerations take longer than the sending does."""
_NOW = int(zmq.NOBLOCK)


_NO_FILES = (errno.EMFILE, errno.ENFILE)
_FILES_MIN = 32
"""So many files a role may need that has just begun: sockets, and what libzmq wakes its threads by."""


def check_files_left(what: str) -> None:
    """Raises DafkaError where the process may open hardly any more files. libzmq ends it if it runs out of them
    while it begins."""
    held: list[int] = []
    try:
        for _ in range(_FILES_MIN):
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        raise DafkaError(unopened(what, error)) from error
    finally:
        for one in held:
            os.close(one)


def unopened(what: str, error: Exception) -> str:
    """The line about a role that cannot begin because its process may have no more of something."""
    said = error.strerror if isinstance(error, OSError | zmq.ZMQError) else str(error)
    return (
        f"{what} cannot be opened: {said}; close others of this process, or allow it more open files and threads "
        "(`ulimit -n`, `ulimit -u`)"
    )


def no_message(role: str, error: Exception) -> str:
    """The line about a message that is none of Dafka's."""
    return (
        f"the {role} was sent what is no message of Dafka's, and goes on without it: {str(error)[:200]}; what follows "
        "is counted (invalid_frames), and not told"
    )


def new_address(store: str | None = None) -> str:
    """A name that no other role has. Those of one store begin alike, whichever of its lives has them."""
    own = uuid.uuid4().hex.upper()
    return own if store is None else sha256(store.encode()).hexdigest()[:STORE_CHARS].upper() + own[STORE_CHARS:]


class Role(ClosedAtExit):
    """A role on the network, with a thread of its own. Subclasses say what it makes of what comes: each method that
    begins with `on_` runs on that thread. `prefixes` is what it subscribes to at everybody. Raises ConfigInvalid for
    keys that cannot be read, and DafkaError."""

    def __init__(
        self, name: str, address: str, config: DafkaConfig, prefixes: Iterable[bytes], *, hears: bool, by_peer: bool
    ) -> None:
        check_files_left(f"a {name}")
        self._keys = load_keys(config.curve)
        self.address = address
        self.invalid_frames = 0
        """Messages that were none of Dafka's."""
        self._told: set[int | None] = set()
        """Errors that have been told of."""
        self.lock = threading.Condition()
        self.failure: BaseException | None = None
        self.welcomed_s: float | None = None
        """When a tower has greeted it first, by the monotonic clock. None: none has yet."""
        self._name = name
        self._config = config
        self._prefixes = list(prefixes)
        self._by_peer = by_peer
        self._decoder = RunDecoder(FrameDecoder())
        self._closing = self._woken = False
        self._poller = zmq.Poller()
        self._control = zmq.Poller()
        self._subscribers: dict[str, zmq.Socket[bytes]] = {}
        self._sockets: list[zmq.Socket[bytes]] = []
        self._gate: PeerGate | None = None
        beacon = config.beacon
        self._discovery = DiscoveryState(
            address,
            interval_s=beacon.interval / 1000,
            timeout_s=beacon.timeout / 1000,
            allowed=("",) if self._keys is None else self._keys.allowed,
        )
        self._wake_in, self._wake_out = _wake_pair(f"a {name}")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        if by_peer:
            self._context.set(zmq.MAX_SOCKETS, _SOCKETS_MAX)
        try:
            self._open(hears)
        except zmq.ZMQError as error:
            self._release()
            if error.errno in _NO_FILES:
                raise DafkaError(unopened(f"a {name}", error)) from error
            towers = ", ".join((*beacon.sub_address, *beacon.pub_address))
            raise DafkaError(f"a {name} cannot connect to towers at {towers}: {error}") from error
        self._thread = background(f"dafka-{name}", self._run)

    @property
    def endpoint(self) -> str:
        """Where this role is connected to, on this machine."""
        return f"tcp://127.0.0.1:{self._port}"

    @property
    def peers(self) -> dict[str, PeerBeacon]:
        """Those that it is connected to, by their addresses, as towers tell of them."""
        return self._discovery.peers

    @property
    def refused_peers(self) -> int:
        """How often somebody has tried to connect whose key is not allowed."""
        return self._gate.refused if self._gate is not None else 0

    def wake(self) -> None:
        """Have `on_wake` run soon. The caller holds `lock`."""
        if not self._woken:
            self._woken = True
            self._wake_out.send(b"x")

    def check_open(self) -> None:
        """Raises DafkaClosed, and what has ended the thread."""
        if self.failure is not None:
            raise DafkaClosed(f"the {self._name} {self.address} has ended: {self.failure}") from self.failure
        if self._closing:
            raise DafkaClosed(f"the {self._name} {self.address} was closed")

    def close(self) -> None:
        """Leave the network. Idempotent."""
        self.begin_closing()
        self._thread.join()

    def begin_closing(self) -> None:
        """Leave the network soon. Whoever waits for this role is woken. Idempotent."""
        with self.lock:
            self._closing = True
            self.wake()
            self.lock.notify_all()

    def on_wake(self) -> None:
        """Another thread has called `wake`."""

    def on_messages(self, messages: list[Message], peer: str, now_s: float) -> None:
        """What has come, in its order. `peer`: from whom, if sockets are by peer."""

    def on_subscription(self, heard: Subscription) -> None:
        """Somebody has subscribed to this role, or has ended that, if it `hears` that."""

    def on_peer_gone(self, peer: str) -> None:
        """A peer is not there any more."""

    def on_tick(self, now_s: float) -> None:
        """Time has passed."""

    def on_failure(self) -> None:
        """The thread has ended with `failure`: nothing comes any more that somebody may wait for."""

    def is_listening(self) -> bool:
        """Whether it takes more from the network just now."""
        return True

    def send(self, instructions: Iterable[object]) -> None:
        """Publish what they say is to be sent."""
        for one in instructions:
            if isinstance(one, Send):
                self.publish_frames(encode(one.message))

    def publish_frames(self, frames: Sequence[bytes]) -> None:
        """Publish a message, on the role's thread."""
        for frame in frames[:-1]:
            self._send(frame, _MORE)
        self._send(frames[-1])

    def publish_records(self, prefix: bytes, sequences: Iterable[int], contents: Iterable[bytes]) -> None:
        """The same for records whose first frame begins so (`record_prefix`)."""
        send, number = self._send, pack_sequence
        for sequence, content in zip(sequences, contents, strict=False):
            send(prefix + number(sequence), _MORE)
            send(content)

    def start(self) -> None:
        """Begin, once the subclass is complete. Raises DafkaError where there can be no more threads."""
        try:
            self._thread.start()
        except RuntimeError as error:
            self._release()
            raise DafkaError(unopened(f"a {self._name}", error)) from error

    def subscribe(self, prefixes: Iterable[bytes]) -> None:
        """Subscribe to more at everybody, on the role's thread."""
        for prefix in prefixes:
            self._prefixes.append(prefix)
            for subscriber in self._subscribers.values():
                subscriber.setsockopt(zmq.SUBSCRIBE, prefix)

    def _open(self, hears: bool) -> None:
        if self._keys is not None:
            self._gate = PeerGate(self._context, self._keys)
        self._publisher = self._socket(zmq.XPUB if hears else zmq.PUB)
        self._send = super(zmq.Socket, self._publisher).send  # without what is for other kinds: half of a frame's time
        if hears:
            self._publisher.setsockopt(zmq.XPUB_VERBOSER, 1)  # each of them, and each end, also of who has gone
            self._watch(self._publisher)
        if self._gate is not None:
            self._gate.guard(self._publisher)
            self._watch(self._gate.socket)
        host = "*" if self._config.is_for_other_machines else "127.0.0.1"
        self._port = self._publisher.bind_to_random_port(f"tcp://{host}")
        self._beacons = self._socket(zmq.PUB)
        self._towers = self._socket(zmq.SUB)
        for prefix in (b"B", WELCOME):
            self._towers.setsockopt(zmq.SUBSCRIBE, prefix)
        self._connect_towers(self._beacons, self._config.beacon.sub_address)
        self._connect_towers(self._towers, self._config.beacon.pub_address)
        self._watch(self._towers)
        self._watch(self._wake_in)

    def _connect_towers(self, one: zmq.Socket[bytes], endpoints: Sequence[str]) -> None:
        keys = [None] * len(endpoints) if self._keys is None else self._keys.of_towers(len(endpoints))
        for endpoint, key in zip(endpoints, keys, strict=True):
            self._connect_to(one, endpoint, key)

    def _connect_to(self, one: zmq.Socket[bytes], endpoint: str, key: bytes | None) -> None:
        """To whoever has that key. Raises ZMQError."""
        if self._gate is None or key is None:
            one.connect(endpoint)
        else:
            self._gate.connect(one, endpoint, key)

    def _watch(self, source: Any) -> None:
        """Look at it also while the role takes no records."""
        self._poller.register(source, zmq.POLLIN)
        self._control.register(source, zmq.POLLIN)

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        made = self._context.socket(kind)
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.SNDHWM, self._frames_max(self._config.producer.high_watermark))
        made.setsockopt(zmq.RCVHWM, self._frames_max(self._config.consumer.high_watermark))
        made.setsockopt(zmq.MAXMSGSIZE, _BYTES_MAX)
        self._sockets.append(made)
        return made

    def _frames_max(self, records_max: int) -> int:
        """How many messages may wait in a socket for whoever is slow, before those that come are lost to it."""
        if not self._config.batches:
            return records_max
        return max(min(records_max, _FRAMES_MIN), records_max // _RECORDS_A_FRAME)

    def _run(self) -> None:
        try:
            self._discover(self._discovery.start(SYSTEM_CLOCK.monotonic_s()))
            tick_s = 0.0
            while not self._closing:
                self._turn()
                now_s = SYSTEM_CLOCK.monotonic_s()
                if now_s >= tick_s:
                    tick_s = now_s + _TICK_S
                    self._discover(self._discovery.tick(now_s))
                    self.on_tick(now_s)
        except BaseException as error:  # noqa: BLE001  the thread's outermost loop: every later call raises it
            self.failure = error
        finally:
            with self.lock:
                self._woken = True  # nobody is there to be woken any more
                self.lock.notify_all()
            self._release()
            if self.failure is not None:
                self.on_failure()

    def _turn(self) -> None:
        """Take what has come, after waiting for it a little."""
        poller = self._poller if self.is_listening() else self._control
        ready = dict(poller.poll(int(_TICK_S * 1000)))
        if self._publisher in ready:  # before anything is sent: it says in which form
            self._hear_subscriptions()
        if self._wake_in.fileno() in ready:
            with self.lock:
                self._wake_in.recv(64)
                self._woken = False
            self.on_wake()
        if self._gate is not None:
            self._gate.answer()
        if self._towers in ready:
            self._hear_towers()
        for peer, subscriber in list(self._subscribers.items()):
            if subscriber in ready:
                self._take(peer, subscriber)

    def _take(self, peer: str, subscriber: zmq.Socket[bytes]) -> None:
        in_batches = 0
        for frames in _waiting(subscriber):
            try:
                in_batches += self._decoder.add(frames)
            except FrameInvalid as error:
                self._count_invalid(error)
                continue
            if in_batches >= MESSAGES_MAX:
                break
        if messages := self._decoder.taken():
            if self._by_peer:  # who had ended before one of these came, is known to have
                self._hear_subscriptions()
            self.on_messages(messages, peer, SYSTEM_CLOCK.monotonic_s())

    def _hear_subscriptions(self) -> None:
        for frames in _waiting(self._publisher):
            try:
                self.on_subscription(decode_subscription(frames[0]))
            except FrameInvalid as error:
                self._count_invalid(error)

    def _count_invalid(self, error: Exception) -> None:
        """Somebody has sent what is none of Dafka's: it is said once, and counted. Whoever sees the count finds it
        said."""
        if not self.invalid_frames:
            _LOG.warning(no_message(f"{self._name} {self.address}", error))
        self.invalid_frames += 1

    def _tell_of_unreached(self, endpoint: str, error: zmq.ZMQError) -> None:
        """A peer cannot be connected to: each kind of reason is said once."""
        if error.errno in self._told:
            return
        self._told.add(error.errno)
        if error.errno == errno.EMFILE:
            others = many(len(self.peers), "peer")
            what = (
                f"cannot open one more socket, to reach a peer: {error}; it goes on with {others} and tries the rest "
                "again; allow its process more open files (`ulimit -n`)"
            )
        else:
            what = (
                f"cannot connect to {endpoint[:200]!r}, where a peer says that it is: {error}; it goes on without it; "
                "correct the peer's `beacon.address`"
            )
        _LOG.warning(f"the {self._name} {self.address} {what}")

    def _hear_towers(self) -> None:
        for frames in _waiting(self._towers):
            if frames == [WELCOME]:
                self.welcomed_s = self.welcomed_s or SYSTEM_CLOCK.monotonic_s()
                self._discover(self._discovery.welcomed())
                continue
            try:
                peer = decode_peer(frames)
            except FrameInvalid as error:
                self._count_invalid(error)
                continue
            self._discover(self._discovery.peer(peer, SYSTEM_CLOCK.monotonic_s()))

    def _discover(self, instructions: Iterable[object]) -> None:
        for one in instructions:
            match one:
                case SendBeacon():
                    host = self._config.beacon.address
                    self._beacons.send_multipart(encode_beacon(Beacon(self.address, host, self._port)))
                case Connect():
                    self._connect(one)
                case DisconnectPeer(address, endpoint):
                    self._disconnect(address, endpoint)
                case SayTowersSilent():
                    _LOG.warning(self._towers_silent())

    def _towers_silent(self) -> str:
        """A tower says nothing to those whose key it does not know: from here that looks as if it was not there."""
        keys = "" if self._keys is None else f", and does it allow the key {fingerprint_of(self._keys.public)[:16]}..."
        towers = ", ".join(self._config.beacon.pub_address)
        return f"no tower has answered the {self._name} at {towers} so far, and it goes on trying: is one there{keys}?"

    def _connect(self, to: Connect) -> None:
        name = to.address if self._by_peer else EVERYBODY
        try:
            subscriber = self._subscriber(name)
            self._connect_to(subscriber, to.endpoint, self._keys.allowed[to.fingerprint] if self._keys else None)
        except zmq.ZMQError as error:  # a host that cannot be, from a beacon of somebody's; or too many of them
            self._discovery.unreached(to.address)
            if self._by_peer:
                self._drop(name)
            self._tell_of_unreached(to.endpoint, error)

    def _subscriber(self, name: str) -> zmq.Socket[bytes]:
        """The one of that name. Raises ZMQError where there can be no more."""
        subscriber = self._subscribers.get(name)
        if subscriber is None:
            subscriber = self._subscribers[name] = self._socket(zmq.SUB)
            for prefix in self._prefixes:
                subscriber.setsockopt(zmq.SUBSCRIBE, prefix)
            self._poller.register(subscriber, zmq.POLLIN)
        return subscriber

    def _drop(self, name: str) -> None:
        """Close the one of that name, if there is one."""
        if (gone := self._subscribers.pop(name, None)) is not None:
            self._poller.unregister(gone)
            self._sockets.remove(gone)
            gone.close()

    def _disconnect(self, peer: str, endpoint: str) -> None:
        self.on_peer_gone(peer)
        if self._by_peer:
            self._drop(peer)
        elif EVERYBODY in self._subscribers:
            try:
                self._subscribers[EVERYBODY].disconnect(endpoint)
            except zmq.ZMQError:  # it was never connected to
                return

    def _release(self) -> None:
        for one in self._sockets:
            one.close()
        if self._gate is not None:
            self._gate.close()
        self._context.term()
        self._wake_in.close()
        self._wake_out.close()


def _wake_pair(what: str) -> tuple[socket.socket, socket.socket]:
    """Two ends by which a role is woken. Raises DafkaError."""
    try:
        return socket.socketpair()
    except OSError as error:
        raise DafkaError(unopened(what, error)) from error


def _waiting(source: zmq.Socket[bytes]) -> Iterable[Frames]:
    """What has come on a socket, up to a limit. A frame that was not copied knows by itself whether it is the last one:
    to ask the socket, as `recv_multipart` does, takes longer than to copy what is in it afterwards."""
    receive = source.recv
    for _ in range(MESSAGES_MAX):
        try:
            frame = receive(_NOW, False)
        except zmq.Again:
            return
        frames = [frame.bytes]
        while frame.more:
            frame = receive(_NOW, False)
            frames.append(frame.bytes)
        yield frames
