"""The broker that Kafka's client has within: the real client, sockets and formats, without a server.

It keeps what it is sent and takes it as it is. It knows nothing of transactions' marks, of bounds of time, or of sizes.
What Python's client would not send goes by librdkafka's own interface, as a program in C sends it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Producer, cimpl

_TOPIC, _PARTITION, _VALUE, _FLAGS, _HEADERS, _END = 1, 3, 4, 7, 10, 0  # rd_kafka_vtype_t
_COPY = 2
_ERROR_BYTES = 512
Header = tuple[bytes, bytes]


@contextmanager
def mock_broker() -> Iterator[str]:
    """Its address. A topic is made where it is first written to."""
    own = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none:1", "log_level": 0})
    [broker] = own.list_topics(timeout=60).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del own  # the broker ends with it


def send_as_c_does(bootstrap: str, topic: str, records: Sequence[tuple[bytes | None, Sequence[Header]]]) -> None:
    """Write values with headers of any names to partition 0."""
    library = ctypes.CDLL(cimpl.__file__)
    for made in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(library, made).restype = ctypes.c_void_p
    pointer, size, error = ctypes.c_void_p, ctypes.c_size_t, ctypes.create_string_buffer(_ERROR_BYTES)
    conf = pointer(library.rd_kafka_conf_new())
    assert library.rd_kafka_conf_set(conf, b"bootstrap.servers", bootstrap.encode(), error, size(_ERROR_BYTES)) == 0
    client = pointer(library.rd_kafka_new(0, conf, error, size(_ERROR_BYTES)))
    assert client.value is not None, error.value
    for value, headers in records:
        row = pointer(library.rd_kafka_headers_new(size(len(headers))))
        for name, text in headers:
            length = ctypes.c_ssize_t
            assert library.rd_kafka_header_add(row, name, length(len(name)), text, length(len(text))) == 0
        told = library.rd_kafka_producev(
            *(client, _TOPIC, topic.encode(), _PARTITION, ctypes.c_int32(0), _FLAGS, _COPY),
            *(_VALUE, ctypes.c_char_p(value), size(len(value or b"")), _HEADERS, row, _END),
        )
        assert told == 0, f"the client refuses a record: error {told}"
    assert library.rd_kafka_flush(client, 60_000) == 0
    library.rd_kafka_destroy(client)
