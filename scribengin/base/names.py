"""Names as people read them: in the order in which they count, and a few where there are many."""

from __future__ import annotations

import functools
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

ROOT = "/scribengin"
"""The registry's node of all that Scribengin keeps there, but for logs."""
DATAFLOWS = f"{ROOT}/dataflows"
LOCKS = f"{ROOT}/locks"
"""The node below which dataflows have their streams, each with its commit log."""
DEFAULT_NAMESPACE = "/logs"
"""The node of the logs that nobody says the namespace of."""
PROXIED_SCHEME = "distributedlog-proxy://"
"""The URI of a namespace that is used through its proxies begins so: HOSTS/PATH follow, of the registry."""
_SHOWN_MAX = 8


def without_proxies(uri: str) -> str:
    """The URI of the namespace itself, which for others is what was given."""
    return uri.replace(PROXIED_SCHEME, "distributedlog://", 1) if uri.startswith(PROXIED_SCHEME) else uri


@functools.lru_cache(maxsize=1 << 16)
def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A key to sort by, in which `flights/2` stands before `flights/10`."""
    parts = re.split(r"(\d+)", name)
    return tuple((int(part), part) if part.isdecimal() else (-1, part) for part in parts)


def log_command(namespace: str, *words: str) -> str:
    """The command of `scribengin log` that a message names, as a shell takes it: with the namespace, where somebody who
    leaves it out would do it to another one."""
    where = () if namespace == DEFAULT_NAMESPACE else ("--namespace", namespace)
    return f"`scribengin log {shlex.join((*words, *where))}`"


def a_few(names: Sequence[str]) -> str:
    """What a message shows of names that may be many: the first ones, or "none"."""
    return (", ".join(names[:_SHOWN_MAX]) or "none") + (", ..." if len(names) > _SHOWN_MAX else "")


def given_twice(names: Iterable[str]) -> str | None:
    """The first of those that stand there more than once."""
    return next((name for name, count in Counter(names).items() if count > 1), None)
