"""CURVE (https://rfc.zeromq.org/spec/26/): who may talk to a role, and who it talks to, told by their keys.

A role whose configuration names keys lets nobody in who has none of the allowed ones, and connects to nobody else.
What goes over the wire is encrypted. No key stands in a message, a repr or a beacon: its fingerprint does.
"""

from scribengin.dafka.curve.keys import (
    WITHOUT_SOCKETS,
    CurveConfig,
    CurveKeys,
    fingerprint_of,
    load_keys,
    make_key_file,
)

__all__ = [
    "WITHOUT_SOCKETS",
    "CurveConfig",
    "CurveKeys",
    "fingerprint_of",
    "load_keys",
    "make_key_file",
]
