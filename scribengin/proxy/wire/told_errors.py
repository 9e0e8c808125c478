"""Errors on the wire: by name, with their fields, so that a client raises what the proxy was refused with."""

from __future__ import annotations

import scribengin_registry.errors as registry_errors
from scribengin import errors
from scribengin.base.model import JsonObject
from scribengin.errors import LogError, OutOfRoom, RecordTooLarge, RegistryError, ScribenginError, is_full

FIELDS: dict[type[ScribenginError], tuple[str, ...]] = {
    errors.ColdSegmentMissing: ("segment",),
    errors.DamagedEntry: ("position", "offset"),
    RegistryError: ("path",),
}
"""What an error carries beside its message. It holds for the kinds below one, too."""
_FULL = "full"
"""The field that says that a full disk or quota is behind an error (`is_full`). Who is older leaves it out."""
_TOLD = (LogError, RegistryError, errors.ConfigError, errors.SystemUnreachable, errors.DescriptorUnreadable)
NAMES: dict[str, type[ScribenginError]] = {
    kind.__name__: kind
    for module in (errors, registry_errors)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, _TOLD)
}
"""Every error that a proxy may answer with."""


def told(error: ScribenginError) -> JsonObject:
    """The error, for the wire."""
    name = next((kind.__name__ for kind in type(error).__mro__ if NAMES.get(kind.__name__) is kind), LogError.__name__)
    said = {"error": name, "message": str(error), **{field: getattr(error, field) for field in _fields(type(error))}}
    return {**said, _FULL: True} if is_full(error) else said


def heard(said: JsonObject) -> ScribenginError:
    """The error that the other side was told. One whose name nobody knows here is a LogError."""
    kind = NAMES.get(said.get("error", ""), LogError)
    fields = {field: said[field] for field in _fields(kind) if field in said}
    error = kind(str(said.get("message", "")), **fields)
    if said.get(_FULL) is True and not isinstance(error, OutOfRoom):
        error.__cause__ = OutOfRoom("a disk or a quota is full on the other side")
    return error


def of_a_proxied_log(error: RecordTooLarge, log: str) -> RecordTooLarge:
    """The same error, with what it takes beside a new configuration: a proxy keeps what it has opened the log with."""
    return RecordTooLarge(f"{error}, then ProxiedNamespace.release({log!r}): the proxy keeps the log as it opened it")


def _fields(kind: type[ScribenginError]) -> tuple[str, ...]:
    return next((fields for base, fields in FIELDS.items() if issubclass(kind, base)), ())
