"""What every client of a registry is made of: session, watches, limits, deadlines. Who uses a registry takes from here
what stands in `__all__`."""

from scribengin_registry.client.interrupts import heard, interrupt
from scribengin_registry.client.limits import (
    BATCH_OPERATIONS_MAX,
    REQUEST_BYTES_MAX,
    batches,
    is_host,
    operation_bytes,
)

__all__ = ["BATCH_OPERATIONS_MAX", "REQUEST_BYTES_MAX", "batches", "heard", "interrupt", "is_host", "operation_bytes"]
