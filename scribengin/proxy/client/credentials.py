"""What a client shows proxies, and what it wants to see of them, on the machine that asks."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from scribengin.base.process.openness import is_loopback
from scribengin.errors import ConfigInvalid
from scribengin.proxy.access import checked_token
from scribengin.proxy.config import CA_VARIABLE, PROXY_INSECURE_VARIABLE, TOKEN_VARIABLE, ProxyClientConfig
from scribengin.proxy.wire.requests import TLS_SCHEME
from scribengin_registry.references import resolved


@dataclass(frozen=True, slots=True)
class ProxyCredentials:
    """The token of a client, and the authorities that it trusts (PEM; None: the ones that gRPC trusts)."""

    token: str | None = field(default=None, repr=False)
    authorities: bytes | None = field(default=None, repr=False)
    insecure: bool = False

    @classmethod
    def of(cls, config: ProxyClientConfig) -> Self:
        """As the configuration says, or the environment where it says nothing. Raises ConfigInvalid, ReferenceMissing.

        What is read is not kept up to date: open the namespace again once the token is another one.
        """
        ca_file = config.ca_file or os.environ.get(CA_VARIABLE)
        return cls(
            _token_of(config),
            None if not ca_file else _authorities(Path(ca_file).expanduser()),
            config.insecure or os.environ.get(PROXY_INSECURE_VARIABLE) == "1",
        )

    def check(self, address: str) -> None:
        """Raises ConfigInvalid for a proxy that must not be told the token."""
        parts = urlsplit(address)
        if self.token is None or self.insecure or parts.scheme == TLS_SCHEME or is_loopback(parts.hostname or ""):
            return
        raise ConfigInvalid(
            f"the proxy {address} encrypts nothing, so the token is not sent to it: give the proxy `tls`, or say "
            f"`insecure: true` ({PROXY_INSECURE_VARIABLE}=1) in a network whose machines are trusted"
        )


def says_token(config: ProxyClientConfig) -> bool:
    """Whether proxies are told who the client is."""
    return config.token is not None or bool(os.environ.get(TOKEN_VARIABLE))


def _token_of(config: ProxyClientConfig) -> str | None:
    if config.token is not None:
        return checked_token(resolved(config.token), f"the token {config.token}")
    said = os.environ.get(TOKEN_VARIABLE)
    return checked_token(resolved(said), f"the token of {TOKEN_VARIABLE}") if said else None


def _authorities(file: Path) -> bytes:
    try:
        pem = file.read_bytes()
    except OSError as error:
        raise ConfigInvalid(f"{file} cannot be read ({error.strerror}): name the authorities' file, as PEM") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode("ascii"))
    except (ValueError, ssl.SSLError):
        raise ConfigInvalid(f"{file} holds no certificate as PEM: name the file of proxies' authorities") from None
    return pem
