"""Namespaces of logs as dataflows open them: wherever their store is."""

from __future__ import annotations

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.errors import StoreElsewhere
from scribengin.log import LogNamespace
from scribengin_registry.contract import Registry


def open_namespace(
    uri: str, *, registry: Registry | None = None, clock: Clock = SYSTEM_CLOCK, awaited: bool = False
) -> LogNamespace:
    """As LogNamespace.open. A directory of another machine is used through the proxies that run there. `awaited`: also
    if none runs just now; then what needs one raises StoreUnreachable.

    Raises as LogNamespace.open: StoreElsewhere where no proxy of the namespace runs, and none is awaited.
    """
    try:
        return LogNamespace.open(uri, registry=registry, clock=clock)
    except StoreElsewhere:
        from scribengin.proxy import NamespaceElsewhere  # only who needs proxies loads Arrow Flight

        opened = NamespaceElsewhere.find(uri, registry, clock, awaited=awaited)
        if opened is None:
            raise
        return opened
