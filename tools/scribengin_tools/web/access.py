"""Who may see the page, and who may change something through it. Decides; answers nothing itself.

One token lets people in. Who has shown it gets a session: a cookie that scripts cannot read and other sites' requests
do not carry, and a second secret that every change has to name in a header, which other sites cannot set. A request
must name this server as its host, so that no other site's name can be bound to its address.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import socket
import threading
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from scribengin.base.clock import Clock
from scribengin.base.process.openness import is_loopback
from scribengin.errors import ConfigInvalid

TOKEN_CHARACTERS_MIN = 16
SESSION_S = 7 * 24 * 3600.0
SESSIONS_MAX = 1_000
_USER = re.compile(r"^[\w.@+ -]{0,40}$")


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who has shown the token. `user` is the name they gave, if any."""

    user: str
    csrf: str
    until_s: float

    @property
    def author(self) -> str:
        """As the history of a config names them."""
        return f"web:{self.user}" if self.user else "web"


class Access:
    """The token and the sessions of one server. Thread-safe."""

    def __init__(self, token: str, clock: Clock) -> None:
        """Raises ConfigInvalid for a token that can be guessed."""
        if len(token) < TOKEN_CHARACTERS_MIN:
            raise ConfigInvalid(
                f"the token has {len(token)} characters and needs {TOKEN_CHARACTERS_MIN}: "
                "`openssl rand -hex 32` makes one"
            )
        self._token = _digest(token)
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}
        self._lock = threading.Lock()

    def login(self, token: str, user: str) -> str | None:
        """The cookie of a new session; None if that is not the token. Raises ConfigInvalid for an unusable name."""
        user = user.strip()
        if not _USER.match(user):
            raise ConfigInvalid("a name has at most 40 letters, digits, spaces and any of . @ + - _")
        if not hmac.compare_digest(_digest(token.strip()), self._token):
            return None
        cookie = secrets.token_urlsafe(32)
        now_s = self._clock.monotonic_s()
        with self._lock:
            self._sessions = {key: s for key, s in self._sessions.items() if s.until_s > now_s}
            while len(self._sessions) >= SESSIONS_MAX:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[_digest(cookie)] = Session(user, secrets.token_urlsafe(32), now_s + SESSION_S)
        return cookie

    def session(self, cookie: str | None) -> Session | None:
        """Whose cookie that is."""
        with self._lock:
            found = self._sessions.get(_digest(cookie or ""))
        return found if found is not None and found.until_s > self._clock.monotonic_s() else None

    def logout(self, cookie: str | None) -> None:
        """Forget a session."""
        with self._lock:
            self._sessions.pop(_digest(cookie or ""), None)


def may_change(session: Session, csrf: str | None) -> bool:
    """Whether a change was asked for by our own page."""
    return hmac.compare_digest(session.csrf.encode(), (csrf or "").encode("utf-8", "replace"))


def host_is_ours(host: str | None, names: Collection[str]) -> bool:
    """Whether a `Host` header names this server. The port may be any: that of a tunnel is its own."""
    return host is not None and (_host_name(host) or "") in names


def origin_is_ours(origin: str | None, host: str | None) -> bool:
    """Whether an `Origin` header, if there is one, names the host that the request is for."""
    if origin is None:
        return True
    try:
        return host is not None and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def names_of(host: str, more: Collection[str] = ()) -> frozenset[str]:
    """The names by which a server that is bound to `host` may be called."""
    local = {"localhost", "127.0.0.1", "::1"}
    here = {socket.gethostname().lower(), socket.getfqdn().lower()} if not is_loopback(host) else set()
    return frozenset({host.lower(), *local, *here, *(name.lower() for name in more)} - {"0.0.0.0", "::"})


def _host_name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _digest(text: str) -> bytes:
    """Comparing digests takes the same time whatever is compared, its length included."""
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
