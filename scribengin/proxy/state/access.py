"""Who may do what, by a proxy's rules. Pure: tokens and configurations come from elsewhere (proxy/access.py).

A caller is known by its token alone. A rule names logs by a pattern, and what may be done to them: the rights of all
patterns that fit a log are the caller's. None of the three rights brings another one along.

| right | lets a caller |
|---|---|
| read | open, read and follow segments; be told that the log is there |
| write | open a writer; single records, batches, atomic ones |
| administer | create, delete, truncate, seal, release; look at files and remove them |
| all three | write files of segments, as a writer elsewhere does |
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from scribengin.errors import AccessDenied, CallerUnknown
from scribengin.log.metadata.names import check_log_name
from scribengin.proxy.config import RIGHTS, TOKEN_VARIABLE, Right


@dataclass(frozen=True, slots=True, eq=False)
class Caller:
    """Somebody who asks a proxy for something. `logs`: of each pattern, the rights. Nobody else is the same caller."""

    name: str
    logs: Mapping[str, frozenset[Right]]

    def rights(self, log: str) -> frozenset[Right]:
        """What it may do to a log of that name."""
        return frozenset[Right]().union(*(rights for glob, rights in self.logs.items() if fnmatchcase(log, glob)))

    def may_read(self, log: str) -> bool:
        """Whether it may be told of a log."""
        return "read" in self.rights(log)

    def check(self, log: str, right: Right) -> None:
        """Raises AccessDenied where it has not that right to the log, InvalidLogName where no log has that name."""
        bare, has = _named(self, log)
        if right in has:
            return
        may = " and ".join(one for one in RIGHTS if one in has)
        raise AccessDenied(
            f"log '{bare}': caller '{self.name}' may not {right} it{f', only {may} it' if may else ''}; whoever runs "
            f"the proxies grants that by `callers.{self.name}.logs` of their `access`"
        )


@functools.lru_cache(maxsize=1 << 14)
def _named(caller: Caller, log: str) -> tuple[str, frozenset[Right]]:
    """The log's one name, as names that mean the same log have the same rights, and the rights. Kept: every request of
    a writer asks for them."""
    bare = check_log_name(log)
    return bare, caller.rights(bare)


ANYBODY = Caller("anybody", {"*": frozenset(RIGHTS)})
"""The caller of a proxy that asks nobody who they are."""


class AccessRules:
    """The callers that a proxy knows, by the digests of their tokens. Without callers it is open to anybody."""

    def __init__(self, callers: Mapping[bytes, Caller] | None = None) -> None:
        self._callers = callers

    def caller(self, token: str | None) -> Caller:
        """Who has that token. Raises CallerUnknown. It takes as long, whichever token it is."""
        if self._callers is None:
            return ANYBODY
        if token is None:
            raise CallerUnknown(
                f"the proxy asks callers for a token, and none was sent: set {TOKEN_VARIABLE}, or `token` of the "
                "client's configuration"
            )
        digest = token_digest(token)
        found = [caller for known, caller in self._callers.items() if hmac.compare_digest(known, digest)]
        if not found:
            raise CallerUnknown(
                "the proxy knows no caller by the token that was sent: compare what the client's names with the "
                "proxy's `access`"
            )
        return found[0]


def token_digest(token: str) -> bytes:
    """What a proxy keeps of a token: its SHA-256."""
    return hashlib.sha256(token.encode()).digest()
