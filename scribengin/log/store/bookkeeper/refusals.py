"""What BookKeeper, and the ZooKeeper beside it, refuse becomes the log store's own errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scribengin.errors import LogWriteFailed, StoreUnreachable
from scribengin_registry.errors import OutcomeUnknown, RegistryError, RegistryUnreachable, SessionLost


@contextmanager
def refusals(doing: str) -> Iterator[None]:
    """Of the block: LogWriteFailed, and StoreUnreachable where it may answer later. A missing ledger stays."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (ConnectionError, TimeoutError, RegistryUnreachable, SessionLost, OutcomeUnknown) as error:
        why = getattr(error, "strerror", None) or error
        raise StoreUnreachable(f"cannot {doing}: {why}; do enough bookies run, and their ZooKeeper?") from error
    except (OSError, IndexError, RegistryError) as error:
        why = getattr(error, "strerror", None) or error
        raise LogWriteFailed(f"cannot {doing}: {why}; mend BookKeeper, then open a new writer") from error
