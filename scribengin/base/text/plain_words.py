"""Errors as people read them."""

from __future__ import annotations

from scribengin.base.model import plain_path
from scribengin_registry.errors import RegistryError


def in_plain_words(error: BaseException) -> str:
    """The message of an error; a node of the registry that it names stands there as people name it."""
    path = error.path if isinstance(error, RegistryError) else ""
    return str(error).replace(path, plain_path(path)) if path else str(error)
