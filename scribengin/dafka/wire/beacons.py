"""Frames of the tower, through which roles find each other.

A role tells every tower once an interval where it is (`Beacon`). The tower passes that on to all (`PeerBeacon`), and
greets whoever connects with the single frame `W`, so that a role that comes late says at once where it is. Where roles
have keys, the tower adds a frame that the C programs do not know: the fingerprint of the key that a role has shown it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from scribengin.dafka.wire.frames import Frames
from scribengin.errors import FrameInvalid

WELCOME = b"W"
"""The one frame that a tower greets with."""
_BEACON = b"B"
_FIELD_BYTES_MAX = 1024
_PORT_MAX = 65_535
_FINGERPRINT = re.compile("[0-9a-f]{64}")


class Beacon(NamedTuple):
    """Where a role is, as it says itself. `host` "": where the tower sees it come from."""

    address: str
    host: str
    port: int


class PeerBeacon(NamedTuple):
    """Where a role is, as the tower tells all: `endpoint` is what to connect to, `tcp://host:port`. `fingerprint` is
    that of its key; "": it has none."""

    address: str
    endpoint: str
    fingerprint: str = ""


def encode_beacon(beacon: Beacon) -> list[bytes]:
    """What a role sends to a tower."""
    return [_BEACON, beacon.address.encode(), beacon.host.encode(), str(beacon.port).encode()]


def decode_beacon(frames: Frames) -> Beacon:
    """What a tower has got. Raises FrameInvalid."""
    address, host, port = _fields(frames, 3, 3)
    if not port.isascii() or not port.isdecimal() or len(port) > 5 or not 0 < int(port) <= _PORT_MAX:
        raise FrameInvalid(f"a beacon of '{address}' has the port '{port[:8]}'")
    return Beacon(address, host, int(port))


def encode_peer(peer: PeerBeacon) -> list[bytes]:
    """What a tower sends to all."""
    fields = peer if peer.fingerprint else peer[:2]
    return [_BEACON, *(field.encode() for field in fields)]


def decode_peer(frames: Frames) -> PeerBeacon:
    """What a role has got. Raises FrameInvalid."""
    address, endpoint, *fingerprint = _fields(frames, 2, 3)
    if not endpoint.startswith("tcp://") or endpoint.count(":") < 2:
        raise FrameInvalid(f"a beacon of '{address}' has the endpoint '{endpoint[:80]}'")
    if fingerprint and not _FINGERPRINT.fullmatch(fingerprint[0]):
        raise FrameInvalid(f"a beacon of '{address}' has a key's fingerprint that is none")
    return PeerBeacon(address, endpoint, *fingerprint)


def _fields(frames: Frames, least: int, most: int) -> list[str]:
    if not least < len(frames) <= most + 1 or frames[0] != _BEACON:
        raise FrameInvalid(f"{len(frames)} frames that are no beacon of {least + 1}")
    if any(len(frame) > _FIELD_BYTES_MAX for frame in frames):
        raise FrameInvalid(f"a field of a beacon is longer than {_FIELD_BYTES_MAX} bytes")
    try:
        fields = [frame.decode() for frame in frames[1:]]
    except UnicodeDecodeError:
        raise FrameInvalid("a field of a beacon is not UTF-8") from None
    if not fields[0] or not fields[0].isalnum():
        raise FrameInvalid(f"a beacon has the address '{fields[0][:40]}'")
    return fields
