"""The gate of a role that has keys: what its sockets need, and the answers to ZAP's questions.

libzmq asks once for each that connects (https://rfc.zeromq.org/spec/27/), over a socket in its own process, before
anything of what they send is read, and before anything is sent to them. With nobody to answer it lets nobody in.
"""

from __future__ import annotations

from typing import Any

import zmq

from scribengin.dafka.curve.keys import CurveKeys, fingerprint_of

_ENDPOINT = "inproc://zeromq.zap.01"
_VERSION = b"1.0"
_DOMAIN = b"dafka"
_MECHANISM = b"CURVE"
_FIELDS = 7
_KNOWN = b"200"
_UNKNOWN = b"300"
"""It is disconnected when the handshake has taken too long, and may try again: its key may be allowed when the role is
started anew. With 400 it would never come back, for a libzmq that is refused for good does not connect again."""
_HANDSHAKE_MS = 5000


class PeerGate:
    """The gate of all sockets of one context, which is made before them. Whoever polls them polls `socket`, too, and
    has `answer` called. Used by one thread at a time."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: CurveKeys) -> None:
        self.refused = 0
        """How often somebody was refused whose key is not allowed."""
        self._keys = keys
        self.socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(_ENDPOINT)

    def guard(self, one: zmq.Socket[bytes]) -> None:
        """Let only those connect to a socket whose keys are allowed. Before it is bound."""
        one.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN)
        one.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        one.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
        one.setsockopt(zmq.CURVE_SECRETKEY, self._keys.secret)
        one.setsockopt(zmq.CURVE_SERVER, 1)

    def connect(self, one: zmq.Socket[bytes], endpoint: str, key: bytes) -> None:
        """Connect a socket to whoever is at `endpoint`, if it has the key `key`. Raises ZMQError."""
        one.setsockopt(zmq.CURVE_PUBLICKEY, self._keys.public)
        one.setsockopt(zmq.CURVE_SECRETKEY, self._keys.secret)
        one.setsockopt(zmq.CURVE_SERVERKEY, key)
        one.connect(endpoint)

    def answer(self) -> None:
        """Answer who is to be let in, as far as libzmq has asked."""
        while True:
            try:
                asked: Any = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            name = self._name_of(asked)
            if name is None:
                self.refused += 1
            status = (_KNOWN, b"OK", name.encode()) if name is not None else (_UNKNOWN, b"Unknown key", b"")
            self.socket.send_multipart([_VERSION, asked[1], *status, b""])

    def close(self) -> None:
        """Let nobody in any more."""
        self.socket.close()

    def _name_of(self, asked: list[bytes]) -> str | None:
        """The fingerprint of whose key it is that asks; None: it is not allowed."""
        if len(asked) != _FIELDS:
            return None
        version, _number, domain, _host, _identity, mechanism, key = asked
        name = fingerprint_of(key)
        is_curve = (version, domain, mechanism) == (_VERSION, _DOMAIN, _MECHANISM)
        return name if is_curve and self._keys.allowed.get(name) == key else None


def fingerprint_in(frame: zmq.Frame) -> str:
    """The fingerprint of the key of whoever has sent a frame, which came through a gate."""
    return str(frame.get("User-Id"))
