"""What a record is to whoever passes it on, whatever system it comes from or goes to."""

from __future__ import annotations

import pyarrow as pa

PAYLOAD = "payload"
"""The column of a batch that holds what a record says."""
RECORD_SCHEMA = pa.schema(
    [
        pa.field("txid", pa.int64()),
        pa.field("channel", pa.string()),
        pa.field("key", pa.binary()),
        pa.field(PAYLOAD, pa.binary()),
    ]
)
"""A record: what it says, and beside it what the system can carry: its transaction id, its channel, its key."""
