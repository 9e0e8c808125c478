"""What a round staged in a log: its descriptor, and the control record that makes it visible."""

from __future__ import annotations

import json

import pyarrow as pa

from scribengin.base.model import Descriptor, JsonObject
from scribengin.base.records import PAYLOAD


class StagedRange(Descriptor):
    """Staged entries [first_entry, last_entry] of one segment: durable, and invisible until they are committed.

    `directory` is the log's, so that a log that is created again under the same name is not mistaken for this one.
    """

    log: str
    directory: str
    segment: int
    first_entry: int
    last_entry: int
    records: int
    bytes: int

    @classmethod
    def from_json(cls, data: JsonObject, *, path: str) -> StagedRange:
        """Read the `data` of a CommitDescriptor that stands in the node `path`. Raises DescriptorUnreadable."""
        return cls.from_bytes(json.dumps(data).encode(), path=path)


def control_payload(first_entry: int, last_entry: int) -> bytes:
    """What the control record of a round says."""
    return json.dumps({"first_entry": first_entry, "last_entry": last_entry}).encode()


def read_control(body: pa.RecordBatch) -> tuple[int, int] | None:
    """(first_entry, last_entry) of a control record; None if that is not what it says."""
    try:
        said = json.loads(body.column(PAYLOAD)[0].as_py())
        return int(said["first_entry"]), int(said["last_entry"])
    except (ValueError, TypeError, KeyError):
        return None
