"""A proxy's rules as they are configured, with its callers' tokens read from where they are."""

from __future__ import annotations

import re

from scribengin.errors import ConfigInvalid
from scribengin.proxy.config import AccessConfig, CallerConfig
from scribengin.proxy.state.access import AccessRules, Caller, token_digest
from scribengin_registry.references import resolved

TOKEN_CHARACTERS_MIN = 16
_TOKEN = re.compile(r"[!-~]*")


def rules_of(access: AccessConfig | None) -> AccessRules:
    """The rules. Of a token, only its digest is kept. Raises ConfigInvalid (a token that can be guessed, or is that of
    two callers), ReferenceMissing."""
    if access is None:
        return AccessRules()
    callers: dict[bytes, Caller] = {}
    for name, config in access.callers.items():
        digest = _digest_of(name, config)
        if digest in callers:
            raise ConfigInvalid(f"callers '{callers[digest].name}' and '{name}' have the same token: give each its own")
        callers[digest] = Caller(name, {glob: frozenset(rights) for glob, rights in config.logs.items()})
    return AccessRules(callers)


def checked_token(token: str, whose: str) -> str:
    """`token`, as it can be sent. Raises ConfigInvalid, which says whose it is and nothing of the token."""
    if not token:
        raise ConfigInvalid(f"{whose} is empty: `openssl rand -hex 32` makes one")
    if not _TOKEN.fullmatch(token):
        raise ConfigInvalid(f"{whose} has a space or a character that is not ASCII: `openssl rand -hex 32` makes one")
    return token


def _digest_of(name: str, config: CallerConfig) -> bytes:
    if config.token is None:
        return bytes.fromhex(config.token_sha256 or "")
    token = checked_token(resolved(config.token), whose := f"the token of caller '{name}'")
    if len(token) < TOKEN_CHARACTERS_MIN:
        raise ConfigInvalid(
            f"{whose} has {len(token)} characters and needs {TOKEN_CHARACTERS_MIN}: `openssl rand -hex 32` makes one"
        )
    return token_digest(token)
