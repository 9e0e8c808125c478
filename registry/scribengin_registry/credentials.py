"""A user of its own for a registry that somebody runs on this machine: a random password, in a file for nobody else."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from scribengin_registry.errors import ServerFailed

AUTH_VARIABLE = "SCRIBENGIN_REGISTRY_AUTH"
"""The registry's user: `user:password`, `sasl-digest:user:password`, or `sasl-gssapi`, for Kerberos. A password may be
`${file:...}`. Set it for everything: containers inherit their launcher's environment."""
_USER = "scribengin"
_PASSWORD_BYTES = 32
_MODE = 0o600


def own_credentials(file: Path) -> str:
    """What to set SCRIBENGIN_REGISTRY_AUTH to: a reference to `file`, which is made with a new password if it is not
    there. Only one process at a time may make it. Raises ServerFailed (the path cannot stand in a reference, the file
    cannot be written)."""
    file = file.absolute()
    if "}" in str(file) or "\n" in str(file):
        raise ServerFailed(f"{file} cannot be referred to, for there is a '}}' or a line's end in it: use another path")
    try:
        if file.exists():
            file.chmod(_MODE)  # a copy of a home may have lost its modes
        else:
            _write(file, f"{_USER}:{secrets.token_urlsafe(_PASSWORD_BYTES)}\n")
    except OSError as error:
        raise ServerFailed(f"cannot keep the registry's credentials in {file}: {error.strerror}") from error
    return f"${{file:{file}}}"


def _write(file: Path, text: str) -> None:
    """All of it, or nothing: half a password would be another one."""
    private = file.with_name(f"{file.name}.new")
    private.unlink(missing_ok=True)
    with os.fdopen(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "w", encoding="ascii") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    private.replace(file)
