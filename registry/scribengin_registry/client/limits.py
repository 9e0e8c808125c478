"""What may be sent to a registry at all: well-formed paths and sizes that a server takes, and how many operations one
transaction has, for a server is kept busy by long ones. And what a server may be called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from scribengin_registry.contract import Create, Operation, Set
from scribengin_registry.errors import RegistryError

REQUEST_BYTES_MAX = 900 * 1024
"""A server drops the connection at a request of 1 MiB (its jute.maxbuffer), and nobody would know why."""
BATCH_OPERATIONS_MAX = 1000
BATCH_BYTES_MAX = REQUEST_BYTES_MAX // 2
"""Half of what a request may have: who adds some operations to a batch need not count."""


@lru_cache(maxsize=4096)  # every request asks, about the same paths again and again
def checked_path(path: str) -> str:
    """`path`, if it is absolute and in its normal form. Raises RegistryError."""
    names = path.split("/")[1:]
    well_formed = path.startswith("/") and "\0" not in path
    if path != "/" and not (well_formed and all(name not in ("", ".", "..") for name in names)):
        raise RegistryError(f"'{path}' is not a registry path: write it as /a/b", path=path)
    return path


def is_host(name: str) -> bool:
    """Whether anything can be called that. To a socket what cannot is no OSError, as a host that is not there is, but a
    UnicodeError or a TypeError."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return not any(char.isspace() or not char.isprintable() for char in name)


def checked_size(act: str, path: str, size_bytes: int) -> None:
    """Raises RegistryError when a request about `path` is larger than a server takes."""
    if size_bytes > REQUEST_BYTES_MAX:
        raise RegistryError(
            f"cannot {act} {path}: {size_bytes:,} bytes are more than the {REQUEST_BYTES_MAX:,} that a node or a "
            "transaction of the registry may have; store it elsewhere, and its place here",
            path=path,
        )


def checked_operations(operations: Sequence[Operation]) -> None:
    """Raises RegistryError when a transaction has a path that is none, or is larger than a server takes."""
    for operation in operations:
        checked_path(operation.path)
    size_bytes = sum(map(operation_bytes, operations))
    if size_bytes > REQUEST_BYTES_MAX:
        checked_size("commit a transaction with", max(operations, key=operation_bytes).path, size_bytes)


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


def operation_bytes(operation: Operation) -> int:
    """About what the operation takes in a request."""
    data = operation.data if isinstance(operation, Create | Set) else b""
    return 128 + len(operation.path.encode()) + len(data)


def parent_of(path: str) -> str:
    """The path of the parent; the root is its own."""
    return path.rpartition("/")[0] or "/"
