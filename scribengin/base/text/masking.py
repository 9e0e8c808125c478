"""What looks like a secret is not shown: a password that somebody wrote down, instead of a reference to it.

Told by the names of keys, and by words within texts (`password=...`, `//user:password@host`). Pure. It is a net below
`${env:...}` and `${file:...}`, and has holes: what does not look like a secret is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from scribengin.errors import ConfigInvalid
from scribengin_registry.references import without_references

MASK = "******"
_SECRET = re.compile(
    r"pass(word|wd|phrase|code)|secret|credential|token|jaas|(^|[._-])(auth|pwd)$"
    r"|(api|access|private|account|encryption|shared)[._-]?key",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(r"(^|_)(PASS|PW|PAT|KEY|SALT|CREDS?|SIGNATURE)$")
"""Of environment variables: in lower case, a `key` is a column."""
_ABOUT_ONE = re.compile(
    r"(ur[li]|endpoint|location|path|file|type|provider|class|column|field|[._-](name|id|max|min|count|bytes|ms|s))$",
    re.IGNORECASE,
)
"""Keys that say where a secret is, or of which kind."""
_OF_NO_SECRETS = frozenset({"sql", "transformation"})
_SAID = re.compile(
    r"(?P<name>(?:pass(?:word|wd|phrase)|secret|token|credential|(?:api|access|private|account)_?key)\w{0,40}=)"
    r"""(?P<value>"(?!\$\{)[^"]*"|'(?!\$\{)[^']*'|(?!\$\{)[^\s;&,"']+)""",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"(?P<before>\w://[^/@\s:]*:)(?!\$\{)[^@/\s]+(?=@)")


def masked(value: Any, name: str = "", *, hidden: bool = False) -> Any:
    """A JSON value that stands under `name`, with MASK for what looks like a secret. References stay."""
    if name in _OF_NO_SECRETS:
        return value
    hidden = hidden or _is_secret(name)
    if isinstance(value, dict):
        return {key: masked(below, str(key), hidden=hidden) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [masked(below, hidden=hidden) for below in value]
    if isinstance(value, str):
        return (MASK if without_references(value).strip("\\ ") else value) if hidden else masked_text(value)
    return MASK if hidden and isinstance(value, int | float) and not isinstance(value, bool) else value


def masked_places(value: Any) -> list[str]:
    """Where in a JSON object `masked` hides something, as keys with dots between."""
    return list(_differences(value, masked(value), ()))


def _differences(value: Any, shown: Any, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _differences(below, shown[key], (*path, str(key)))
    elif isinstance(value, list | tuple):
        for number, (below, seen) in enumerate(zip(value, shown, strict=True)):
            yield from _differences(below, seen, (*path, str(number)))
    elif value != shown:
        yield ".".join(path)


def _is_secret(name: str) -> bool:
    """Whether what stands under such a name looks like a secret."""
    return bool(_SECRET.search(name) or _SECRET_VARIABLE.search(name)) and not _ABOUT_ONE.search(name)


def masked_text(text: str) -> str:
    """A text for people, with MASK for what looks like a secret in it."""
    return _IN_ADDRESS.sub(rf"\g<before>{MASK}", _SAID.sub(rf"\g<name>{MASK}", text))


def masked_bytes(data: bytes) -> bytes:
    """The content of a node; as it is, unless it is JSON with something to hide."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data
    shown = masked(value)
    return data if shown == value else json.dumps(shown, indent=1, ensure_ascii=False).encode()


def unmasked(edited: Any, before: Any, shown: Any, path: tuple[str, ...] = ()) -> Any:
    """What somebody made of `shown`, which was `before` masked: what they left masked is what it was. Raises
    ConfigInvalid for a mask that stands for nothing."""
    if isinstance(edited, dict):
        were, saw = (each if isinstance(each, dict) else {} for each in (before, shown))
        return {key: unmasked(below, were.get(key), saw.get(key), (*path, str(key))) for key, below in edited.items()}
    if isinstance(edited, list):
        known = (list(each) if isinstance(each, list | tuple) else [] for each in (before, shown))
        rows = list(zip_longest(edited, *known))[: len(edited)]
        return [unmasked(below, was, seen, (*path, str(n))) for n, (below, was, seen) in enumerate(rows)]
    if not isinstance(edited, str) or MASK not in edited:
        return edited
    if edited == shown:
        return before
    raise ConfigInvalid(
        f"{'.'.join(path)}: {MASK} stands for a value that is not shown: leave the whole text as it was, or write all "
        "of it anew, best as ${env:NAME} or ${file:PATH}"
    )
