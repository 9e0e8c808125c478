"""What a user can say about a proxy, and about the clients of proxies."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from scribengin.base.model import Config
from scribengin.base.process.openness import is_loopback
from scribengin_registry.references import has_references, without_references

Right = Literal["read", "write", "administer"]
RIGHTS: tuple[Right, ...] = get_args(Right)
TOKEN_VARIABLE = "SCRIBENGIN_PROXY_TOKEN"
"""The token by which clients of proxies say who they are, or better `${file:PATH}` of it."""
CA_VARIABLE = "SCRIBENGIN_PROXY_CA"
"""The file of the authorities, as PEM, that proxies' certificates are of. Unset: the ones that gRPC trusts."""
PROXY_INSECURE_VARIABLE = "SCRIBENGIN_PROXY_INSECURE"
"""`1`: clients send their token also to proxies on other machines that encrypt nothing."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _only_reference(value: str) -> str:
    if not has_references(value) or without_references(value).strip():
        raise ValueError("a token does not stand in a configuration: say where it is, as ${file:PATH} or ${env:NAME}")
    return value


def _digest(value: str) -> str:
    if not _DIGEST.fullmatch(value):
        raise ValueError('is no SHA-256 in hexadecimal digits: `printf %s "$TOKEN" | sha256sum` writes one')
    return value


TokenReference = Annotated[str, AfterValidator(_only_reference)]
"""Where a token is: it is read there, where it is used, and stands nowhere else."""


class CallerConfig(Config):
    """Somebody who may ask a proxy for something: known by a token, or by what is left of one."""

    token: TokenReference | None = None
    """The token, as `${file:PATH}` or `${env:NAME}`."""
    token_sha256: Annotated[str, AfterValidator(_digest)] | None = None
    """Instead of it: its SHA-256, in hexadecimal digits."""
    logs: dict[str, tuple[Right, ...]] = Field(min_length=1)
    """Which logs, by name or pattern, and what it may do to those. It has the rights of all patterns that fit."""

    @model_validator(mode="after")
    def _is_known_by_one_thing(self) -> Self:
        if (self.token is None) == (self.token_sha256 is None):
            raise ValueError("a caller is known by `token` or by `token_sha256`: say one of them")
        return self


class AccessConfig(Config):
    """Who may ask a proxy for what. Nobody else may ask it for anything."""

    callers: dict[Annotated[str, Field(min_length=1, max_length=100)], CallerConfig] = Field(min_length=1)
    """By their names, which errors tell."""


class TlsConfig(Config):
    """What a proxy shows its clients, so that they know it and encrypt what they send."""

    certificate_file: str = Field(min_length=1)
    """Its certificate, and those that lead to its authority, as PEM. It names the host by which clients reach it."""
    key_file: str = Field(min_length=1)
    """The key of the certificate, as PEM. Only the proxy's user may read it."""


class RateConfig(Config):
    """Records and bytes a second. None: as many as come."""

    records_s_soft: int | None = Field(default=None, ge=1)
    """Above it the proxy warns, and counts."""
    records_s_hard: int | None = Field(default=None, ge=1)
    """Above it requests are refused with WrittenTooFast."""
    bytes_s_soft: int | None = Field(default=None, ge=1)
    bytes_s_hard: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _warns_before_it_refuses(self) -> Self:
        for what in ("records_s", "bytes_s"):
            soft, hard = getattr(self, f"{what}_soft"), getattr(self, f"{what}_hard")
            if soft is not None and hard is not None and soft > hard:
                raise ValueError(f"{what}_soft {soft} is above {what}_hard {hard}, so it would warn of nothing")
        return self


class ProxyConfig(Config):
    """How a proxy runs."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """The address to listen at. Other addresses than the loopback one need `tls` and `access`, or `insecure`."""
    tls: TlsConfig | None = None
    """None: nothing on the wire is encrypted."""
    access: AccessConfig | None = None
    """None: nobody is asked who they are."""
    insecure: bool = False
    """Listen to other machines without `tls` or `access`: only in a network whose machines are trusted."""
    port: int = Field(default=0, ge=0, le=65535)
    """0: one that is free."""
    advertised_host: str | None = None
    """The host by which clients reach it. None: the one it listens at."""
    logs_max: int = Field(default=10_000, ge=1)
    """It writes so many logs at most."""
    balance_s: float = Field(default=60.0, ge=0)
    """So often it looks whether it writes more logs, or does more for them, than the other proxies, and gives some up
    to those. 0: never."""
    acquire_timeout_s: float = Field(default=5.0, ge=0)
    """So long it waits for the lock of a log that somebody else writes, who is no proxy."""
    answer_timeout_s: float = Field(default=20.0, gt=0)
    """So long records may wait for the disk, and readers of a segment for each other, before a client is told to ask
    again."""
    cache_bytes_max: int = Field(default=256 * 1024 * 1024, ge=0)
    """It keeps so many bytes of segments in memory at most, for all readers together."""
    tail_waits_max: int = Field(default=1000, ge=1)
    """So many readers may wait here for more at the same time. Others ask from time to time."""

    log_rates: RateConfig = RateConfig()
    """Of each log."""
    service_rates: RateConfig = RateConfig()
    """Of all logs together."""

    @model_validator(mode="after")
    def _others_are_let_in_on_purpose(self) -> Self:
        missing = [key for key in ("tls", "access") if getattr(self, key) is None]
        if missing and not self.insecure and not is_loopback(self.host):
            why = {"tls": "what they send is not encrypted", "access": "clients are not asked who they are"}
            raise ValueError(
                f"host {self.host} is reached by other machines, and {' and '.join(why[key] for key in missing)}; set "
                f"{' and '.join(f'`{key}`' for key in missing)}, say `insecure: true`, or listen at 127.0.0.1"
            )
        return self


class ProxyClientConfig(Config):
    """How a client uses proxies."""

    patience_s: float = Field(default=60.0, gt=0)
    """A request that no proxy has done after that long fails: also a record that is written, by its future."""
    call_timeout_s: float = Field(default=30.0, gt=0)
    """A proxy that has not answered a call after that long is taken for dead. The last call that writes a record is cut
    short for its patience, to five seconds at the least."""
    request_bytes_max: int = Field(default=1024 * 1024, ge=1024)
    """Records that gather while a request is under way go together, up to about this size."""
    reads: Literal["auto", "proxy", "store"] = "auto"
    """Where readers get segments: from proxies, or from the store itself. `auto`: a directory of this machine is read
    there, and all else through proxies."""
    read_ahead_bytes_max: int = Field(default=4 * 1024 * 1024, ge=0)
    """So many bytes more than it needs a reader asks a proxy for at most, when it reads one after the other."""
    token: TokenReference | None = None
    """Who the client is, for proxies that ask: `${file:PATH}` or `${env:NAME}` of its token. None: what
    SCRIBENGIN_PROXY_TOKEN says, if it is set."""
    ca_file: str | None = None
    """The authorities, as PEM, that proxies' certificates are of. None: what SCRIBENGIN_PROXY_CA names, or the ones
    that gRPC trusts."""
    insecure: bool = False
    """Send the token also to a proxy on another machine that encrypts nothing. SCRIBENGIN_PROXY_INSECURE=1 says so,
    too."""
