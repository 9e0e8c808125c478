"""How many operations one transaction takes: a server refuses requests that are too large, and is kept busy by long
ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scribengin_registry.client.limits import REQUEST_BYTES_MAX, operation_bytes
from scribengin_registry.contract import Operation

BATCH_OPERATIONS_MAX = 1000
BATCH_BYTES_MAX = REQUEST_BYTES_MAX // 2
"""Half of what a request may have: who adds some operations to a batch need not count."""


def batches(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    """All operations, in order, in batches for one transaction each. One that is too large by itself is one batch."""
    batch: list[Operation] = []
    size = 0
    for operation in operations:
        needed = operation_bytes(operation)
        if batch and (len(batch) == BATCH_OPERATIONS_MAX or size + needed > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += needed
    if batch:
        yield batch
