"""Records that come one to a frame and follow each other, put together as soon as they are read.

A producer may send each record in a frame of its own, as C programs take them. What a role makes of a message takes
longer than reading it. So records of one partition whose sequences follow each other become one batch, as if they had
come so: whoever takes messages takes both alike.
"""

from __future__ import annotations

from struct import Struct

from scribengin.dafka.wire.batches import GROUP_BYTES
from scribengin.dafka.wire.frames import DirectBatch, DirectRecord, FrameDecoder, Frames, LiveBatch, LiveRecord, Message

_RUN_MAX = 1024
"""Of records. And none of more bytes than a batch has, unless it is one record: who takes messages looks at its limits
between them."""
_SEQUENCE = Struct(">Q")


class RunDecoder:
    """Reads messages one after the other, and puts together what belongs together until it is `taken`."""

    def __init__(self, decoder: FrameDecoder) -> None:
        self._decoder = decoder
        self._messages: list[Message] = []
        self._prefix: bytes | None = None
        self._first: LiveRecord | DirectRecord | None = None
        self._contents: list[bytes] = []
        self._next = 0
        self._room_bytes = 0

    def add(self, frames: Frames) -> int:
        """How many records of a batch it is; 0 for any other message. Raises FrameInvalid."""
        if len(frames) == 2 and frames[0][:-8] == self._prefix:
            [sequence] = _SEQUENCE.unpack(frames[0][-8:])
            content = frames[1]
            if sequence == self._next and len(self._contents) < _RUN_MAX and len(content) <= self._room_bytes:
                self._contents.append(content)
                self._room_bytes -= len(content)
                self._next += 1
                return 0
        message = self._decoder.decode(frames)
        self._end_run()
        if isinstance(message, LiveRecord | DirectRecord):
            self._prefix = bytes(frames[0][:-8])
            self._first = message
            self._contents = [message.content]
            self._next = message.sequence + 1
            self._room_bytes = GROUP_BYTES - len(message.content)
            return 0
        self._messages.append(message)
        return len(message.contents) if isinstance(message, LiveBatch | DirectBatch) else 0

    def taken(self) -> list[Message]:
        """What has come since the last time, in its order."""
        self._end_run()
        messages, self._messages = self._messages, []
        return messages

    def _end_run(self) -> None:
        first = self._first
        self._first = self._prefix = None
        if first is None:
            return
        if len(self._contents) == 1:
            self._messages.append(first)
        else:
            kind = LiveBatch if isinstance(first, LiveRecord) else DirectBatch
            self._messages.append(kind(*first[:4], self._contents))
        self._contents = []
