"""`${env:NAME}` and `${file:PATH}`: a secret by where it is, instead of what it is.

What is configured is kept, shown and passed on: in the registry, in histories, in the context of a container. So a
secret stands there as a reference, and becomes what it names only where it is used, on the machine that uses it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from scribengin_registry.errors import ReferenceMissing

REFERRING_VARIABLE = "SCRIBENGIN_REFERRING"
"""Set by Scribengin: the names of the environment variables that are references, with commas, for a container to
resolve."""
_REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")


def resolved(text: str) -> str:
    """`text` with what its references name; of a file without the line's end. Raises ReferenceMissing."""
    return _REFERENCE.sub(lambda found: _value(found.group(1), found.group(2)), text)


def resolved_all(value: Any) -> Any:
    """A JSON value with every text in it resolved; its keys stay. Raises ReferenceMissing."""
    if isinstance(value, dict):
        return {key: resolved_all(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [resolved_all(below) for below in value]
    return resolved(value) if isinstance(value, str) else value


def resolve_variables() -> None:
    """Make the variables of this process that are references what they name. Raises ReferenceMissing."""
    for name in filter(None, os.environ.pop(REFERRING_VARIABLE, "").split(",")):
        os.environ[name] = resolved(os.environ.get(name, ""))


def has_references(text: str) -> bool:
    """Whether there is any in it."""
    return _REFERENCE.search(text) is not None


def without_references(text: str) -> str:
    """What is left of `text` beside its references: nothing, where it is no secret itself."""
    return _REFERENCE.sub("", text)


def _value(kind: str, name: str) -> str:
    if kind == "env":
        value = os.environ.get(name)
        if value is None:
            raise ReferenceMissing(
                f"${{env:{name}}}: this process has no variable {name}: set it where masters and workers are started"
            )
        return value
    try:
        return Path(name).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise ReferenceMissing(
            f"${{file:{name}}} cannot be read ({why}): it must be on every machine that uses it"
        ) from None
