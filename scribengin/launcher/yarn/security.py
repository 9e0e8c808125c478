"""Who a dataflow is on a Kerberos cluster: the login, and the tokens that its containers show instead of it.

Whoever submits logs in (keytab, or the ticket of `kinit`) and obtains delegation tokens of the file systems and of the
ResourceManager; YARN hands them to the master's container and renews them as long as they can be renewed (a week, by
default). A master that was given a keytab logs in itself, and renews tokens of its own, and obtains new ones in time;
every container that it starts has them, and is replaced before they end. On a cluster without Kerberos all of this does
nothing.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.diagnostics import tagged
from scribengin.base.jvm import is_java, java, java_errors
from scribengin.base.threads import background
from scribengin.errors import ConfigInvalid, LauncherError
from scribengin.launcher.yarn.config import SecurityConfig

_LOG = logging.getLogger(__name__)

KEYTAB = "scribengin.keytab"
"""The keytab's name in the master's container."""
_RENEWED_AT = 0.75
_OBTAINED_AT = 0.25
_REPLACED_AT = 0.5
"""Of the life of tokens: when new ones are obtained, and the age at which a container is replaced that has them. In the
quarter that is left others start, one after the other."""
_RETRY_S = 60.0
_PAUSE_S_MIN = 0.5
_PAUSE_S_MAX = 3600.0
"""Those who end tokens have another clock than we, and ours may be set back."""
_MASTERS_OWN = "YARN_AM_RM_TOKEN"
_SECURITY = "org.apache.hadoop.security."
_USERS = f"{_SECURITY}UserGroupInformation"


def is_secure(configuration: Any) -> bool:
    """Whether the cluster of a Java `Configuration` wants Kerberos."""
    return str(configuration.get("hadoop.security.authentication", "simple")).lower() == "kerberos"


def login(configuration: Any, security: SecurityConfig) -> str | None:
    """Be the configured principal from here on, in this process. Returns who that is; None without Kerberos.

    Raises ConfigInvalid (there is neither keytab nor ticket), LauncherError (Kerberos refuses).
    """
    if not is_secure(configuration):
        return None
    users = java(_USERS)
    users.setConfiguration(configuration)
    if security.keytab is not None:
        keytab = keytab_path(security)
        with java_errors(f"Kerberos refuses {security.principal} with the keytab {keytab}"):
            users.loginUserFromKeytab(security.principal, str(keytab))
            return str(users.getLoginUser().getUserName())
    with java_errors("the Kerberos ticket cannot be read"):
        user = users.getLoginUser()
        if not user.hasKerberosCredentials() and user.getTokens().isEmpty():
            raise ConfigInvalid(
                "this cluster wants Kerberos, and there is no ticket: run kinit, or name yarn.security.principal and "
                "yarn.security.keytab"
            )
        return str(user.getUserName())


def keytab_path(security: SecurityConfig) -> Path:
    """The keytab: in a master's container the one that came along. Raises ConfigInvalid when there is none."""
    here = Path(KEYTAB)
    path = here if "CONTAINER_ID" in os.environ and here.is_file() else Path(security.keytab or "")
    if not path.is_file():
        raise ConfigInvalid(f"yarn.security.keytab {path} is no file that can be read: name the principal's keytab")
    return path


def obtain(configuration: Any, urls: Iterable[str], renewer: str) -> Any:
    """New tokens of the file systems of these URLs, and of the default one, which `renewer` (a principal) may renew: a
    Java `Credentials`. Raises LauncherError."""
    found = java(f"{_SECURITY}Credentials")()
    path, systems = java("org.apache.hadoop.fs.Path"), java("org.apache.hadoop.fs.FileSystem")
    with java_errors("no delegation tokens are to be had"):
        places = [systems.get(configuration), *(path(url).getFileSystem(configuration) for url in urls)]
        for system in {str(place.getUri()): place for place in places}.values():
            system.addDelegationTokens(renewer, found)
    return found


def credentials(configuration: Any, yarn_client: Any, urls: Iterable[str]) -> Any:
    """Tokens for an application that is submitted, as a Java `ByteBuffer`; None without Kerberos. Log in before.

    `urls`: what it reads and writes. The ResourceManager renews them. Raises LauncherError.
    """
    if not is_secure(configuration):
        return None
    with java_errors(
        "the configuration does not name the ResourceManager's principal (yarn.resourcemanager.principal)"
    ):
        renewer = str(java("org.apache.hadoop.yarn.client.util.YarnClientUtils").getRmPrincipal(configuration))
    found = obtain(configuration, urls, renewer)
    with java_errors("the ResourceManager gives no delegation token"):
        service = java("org.apache.hadoop.yarn.client.ClientRMProxy").getRMDelegationTokenService(configuration)
        given = yarn_client.getRMDelegationToken(java("org.apache.hadoop.io.Text")(renewer))
        token = java("org.apache.hadoop.yarn.util.ConverterUtils").convertFromYarn(given, service)
        found.addToken(token.getService(), token)
    return serialised(found)


def serialised(found: Any) -> Any:
    """A Java `Credentials` as YARN takes it, a `ByteBuffer`."""
    buffer = java("org.apache.hadoop.io.DataOutputBuffer")()
    found.writeTokenStorageToStream(buffer)
    return java("java.nio.ByteBuffer").wrap(buffer.getData(), 0, buffer.getLength())


class TokenRenewal:
    """What a master gives the containers it starts. Thread-safe.

    With a keytab: tokens of its own, renewed when three quarters of their time are over, and each hour, and new ones in
    the first quarter of their life. Containers that run keep theirs, which are renewed as long as that goes: at
    `age_max_ms` they are to be replaced. Without one: the tokens that the master was started with, which the
    ResourceManager renews.
    Without Kerberos: none.
    """

    def __init__(
        self, configuration: Any, security: SecurityConfig, urls: Iterable[str], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Log in, and obtain the first. Raises ConfigInvalid, LauncherError."""
        self._configuration = configuration
        self._security = security
        self._urls = tuple(urls)
        self._clock = clock
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._sets: list[Any] = []
        self._renewer = ""
        self._pause_s = _RETRY_S
        self._age_max_ms: int | None = None
        self.failure: Exception | None = None
        """Why the last renewal failed, None when it did not. It is tried again every minute."""
        self._thread: threading.Thread | None = None
        if is_secure(configuration):
            self._begin()

    def current(self) -> Any:
        """The tokens for a container that is started now, a `ByteBuffer`, or None."""
        with self._lock:
            return serialised(self._sets[-1]) if self._sets else None

    def age_max_ms(self) -> int | None:
        """At which age a container is to be replaced, as its tokens end in a while: half of their life, and a quarter
        of it had passed at most when it got them. None where they do not end, or no others are to be had."""
        with self._lock:
            return self._age_max_ms

    def close(self) -> None:
        """Renew no more. Idempotent."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _begin(self) -> None:
        if self._security.keytab is None:
            with java_errors("the tokens of this container cannot be read"):
                self._sets = [_split(java(_USERS).getCurrentUser().getCredentials())[1]]
            return
        with java_errors("the tokens of this container cannot be read"):
            inherited = java(_USERS).getCurrentUser().getCredentials()
        self._renewer = login(self._configuration, self._security) or ""
        # Only what the ResourceManager knows a master by: with other tokens about, nothing would ask Kerberos any more.
        java(_USERS).getLoginUser().addCredentials(_split(inherited)[0])
        self._sets = [obtain(self._configuration, self._urls, self._renewer)]
        self._renew()
        self._start()

    def _start(self) -> None:
        self._thread = background("token-renewal", self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self._pause_s):
            try:
                self._renew()
                self.failure = None
            except Exception as error:  # noqa: BLE001  the thread's outermost loop: it is told, and tried again
                self._pause_s = min(_RETRY_S, self._pause_s)
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        if str(error) != str(self.failure):  # told once, and not every minute
            _LOG.warning(
                f"the tokens of containers could not be renewed, and it is tried again: {error}",
                extra=tagged("tokens_not_renewed"),
            )
        self.failure = error

    def _renew(self) -> None:
        """Renew every set that still can be; obtain a new one when a quarter of the newest one's life is over."""
        with java_errors("Kerberos does not renew the login"):
            java(_USERS).getLoginUser().checkTGTAndReloginFromKeytab()
        ends_ms = {id(tokens): self._renewed_until_ms(tokens) for tokens in self._sets}
        alive = [tokens for tokens in self._sets if ends_ms[id(tokens)] is not None]
        if not alive or self._clock.now_ms() >= _grows_old_ms(alive[-1]):
            alive.append(obtain(self._configuration, self._urls, self._renewer))
            ends_ms[id(alive[-1])] = self._renewed_until_ms(alive[-1])
        lives_ms = [last - issued for issued, last in _lives(alive[-1])]
        with self._lock:
            self._sets = alive
            self._age_max_ms = int(min(lives_ms) * _REPLACED_AT) if lives_ms else None
        due_ms = min(ends_ms[id(alive[-1])] or 0, _grows_old_ms(alive[-1]))
        left_s = (due_ms - self._clock.now_ms()) / 1000
        self._pause_s = min(_PAUSE_S_MAX, max(_PAUSE_S_MIN, left_s * _RENEWED_AT))

    def _renewed_until_ms(self, tokens: Any) -> int | None:
        """Until when these tokens are good; None where one is at the end of its life."""
        ends = []
        for token in tokens.getAllTokens():
            if token.isManaged():
                try:
                    with java_errors("a token cannot be renewed"):
                        ends.append(int(token.renew(self._configuration)))
                except LauncherError as error:
                    if is_java(error.__cause__, "InvalidToken"):
                        return None
                    raise
        return min(ends, default=None)


def _grows_old_ms(tokens: Any) -> int:
    """When others are to take the place of these tokens for containers that start."""
    return min((int(issued + (last - issued) * _OBTAINED_AT) for issued, last in _lives(tokens)), default=0)


def _lives(tokens: Any) -> list[tuple[int, int]]:
    """When each token was issued, and from when on it cannot be renewed any more."""
    with java_errors("the tokens do not say how long they live"):
        named = [token.decodeIdentifier() for token in tokens.getAllTokens() if token.isManaged()]
        return [(int(name.getIssueDate()), int(name.getMaxDate())) for name in named if name is not None]


def _split(tokens: Any) -> tuple[Any, Any]:
    """The token by which a master speaks to the ResourceManager, which is nobody else's, and all others."""
    own, others = (java(f"{_SECURITY}Credentials")() for _ in range(2))
    for token in tokens.getAllTokens():
        (own if str(token.getKind()) == _MASTERS_OWN else others).addToken(token.getService(), token)
    return own, others
