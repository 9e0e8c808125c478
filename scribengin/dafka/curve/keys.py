"""Keys of roles, where they stand, and which other ones a role knows.

A key pair is a file that its user alone can read: ZPL with `public-key` and `secret-key` below `curve`, as czmq and
pyzmq write it. A public key is 40 characters of Z85 (https://rfc.zeromq.org/spec/32/), 32 bytes.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from scribengin.base.model import Config
from scribengin.dafka.zpl import ZplItem, format_zpl, parse_zpl
from scribengin.errors import ConfigInvalid
from scribengin.filesystems.directories import sync_directory

WITHOUT_SOCKETS = "Dafka's roles need pyzmq: pip install 'scribengin[dafka]'"
"""What is said where their library is not installed: configurations are read there all the same."""
_FILE_BYTES_MAX = 64 * 1024
_KEY_LENGTH = 40
_MODE = 0o600
_NOT_A_KEY = "is no public key: 40 characters, as `scribengin dafka keys` prints them"
_HEADER = "# A key pair of Dafka's roles. Its secret key is for nobody else.\n"


def _valid(text: str) -> str:
    _bytes_of(text)
    return text


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


PublicKey = Annotated[str, AfterValidator(_valid)]
"""As text of Z85. What is none raises ValueError, which does not say it."""


class CurveConfig(Config):
    """The keys of a role, and of those that it talks to. Roles that share one key pair need to say nothing more."""

    key: Annotated[str, BeforeValidator(_as_text)] = Field(repr=False)
    """The file of the role's own key pair, which `scribengin dafka keys` makes. Nobody else may be able to read it. A
    relative path begins where the role is started."""
    allowed: tuple[PublicKey, ...] = Field(default=(), repr=False)
    """Public keys of those that it talks to. With none here and no directory: whoever has the role's own pair."""
    allowed_directory: Path | None = None
    """Files of further public keys, one in each."""
    tower_key: tuple[PublicKey, ...] = Field(default=(), repr=False)
    """The public key of the towers: one for all, or one for each address. Empty: they have the role's own pair."""

    @field_validator("allowed", "tower_key", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """Keys as sockets take them, 32 bytes each. `allowed`: those of others, by their fingerprints. `towers`: one for
    all towers, or one for each."""

    public: bytes = field(repr=False)
    secret: bytes = field(repr=False)
    allowed: Mapping[str, bytes] = field(repr=False)
    towers: tuple[bytes, ...] = field(repr=False)

    def of_towers(self, count: int) -> tuple[bytes, ...]:
        """The key of each of so many towers."""
        return self.towers * count if len(self.towers) == 1 else self.towers


def fingerprint_of(public: bytes) -> str:
    """The name of a public key of 32 bytes: SHA-256, in hexadecimal digits."""
    return sha256(public).hexdigest()


def load_keys(config: CurveConfig | None) -> CurveKeys | None:
    """The keys that `config` names; None: none are wanted. Raises ConfigInvalid: a file that others can read, that is
    not there or holds no key. What it raises quotes nothing of them."""
    if config is None:
        return None
    file = Path(config.key).expanduser()  # as it was said: of a key with two slashes a path has one
    if _is_key(config.key) and not file.exists():
        raise ConfigInvalid("curve.key is a key itself: name the file that holds the pair, and make a new one")
    public, secret = _key_pair(file)
    allowed = [_bytes_of(text) for text in config.allowed]
    if config.allowed_directory is not None:
        allowed += _keys_in(config.allowed_directory.expanduser())
    towers = tuple(_bytes_of(text) for text in config.tower_key)
    by_name = {fingerprint_of(key): key for key in allowed or [public]}
    return CurveKeys(public, secret, by_name, towers or (public,))


def make_key_file(file: Path) -> str:
    """Write a new key pair to `file`, which must not be there, for its user alone: the public key. It is durable when
    this returns. Raises ConfigInvalid: it is there, or cannot be written."""
    import zmq

    public, secret = zmq.curve_keypair()
    pair = (ZplItem("public-key", public.decode()), ZplItem("secret-key", secret.decode()))
    text = _HEADER + format_zpl([ZplItem("curve", None, pair)])
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    except FileExistsError:
        raise ConfigInvalid(f"{file} is there already: keys are not overwritten, name another file") from None
    except OSError as error:
        raise ConfigInvalid(f"{file} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        sync_directory(file.absolute().parent)
    except OSError as error:
        file.unlink(missing_ok=True)
        raise ConfigInvalid(f"{file} cannot be written: {error.strerror}") from None
    return public.decode()


def _key_pair(file: Path) -> tuple[bytes, bytes]:
    from zmq import curve_public
    from zmq.utils import z85

    text, mode = _read(file)
    if mode & 0o077:
        raise ConfigInvalid(f"{file} can be read by other users, and holds a secret key: chmod 600 {file}")
    said = _said_in(text, file)
    if "secret-key" not in said or "public-key" not in said:
        raise ConfigInvalid(f"{file} holds no key pair: `scribengin dafka keys FILE` makes one")
    try:
        public, secret = _bytes_of(said["public-key"]), _bytes_of(said["secret-key"])
    except ValueError:
        raise ConfigInvalid(f"{file} holds a key that is none: copy it anew, or make another pair") from None
    if curve_public(z85.encode(secret)) != z85.encode(public):
        raise ConfigInvalid(f"{file}: its public key is not that of its secret key: copy it anew, or make another pair")
    return public, secret


def _keys_in(directory: Path) -> Iterator[bytes]:
    """The public key of each file in it; hidden ones are none."""
    try:
        mode = directory.stat().st_mode
        files = sorted(file for file in directory.iterdir() if not file.name.startswith("."))
    except OSError as error:
        raise ConfigInvalid(f"curve.allowed_directory {directory} cannot be read: {error.strerror}") from None
    _refuse_changeable(directory, mode)
    if not files:
        raise ConfigInvalid(f"curve.allowed_directory {directory} is empty: put a file there for each public key")
    for file in files:
        yield _public_key_in(file)


def _public_key_in(file: Path) -> bytes:
    """Of a file with a public key alone: as its 40 characters, or as ZPL."""
    text, mode = _read(file)
    _refuse_changeable(file, mode)
    key = text.strip()
    if len(key) != _KEY_LENGTH:
        said = _said_in(text, file)
        if "secret-key" in said:
            raise ConfigInvalid(f"{file} holds a secret key: put the public key alone among those that are allowed")
        key = said.get("public-key", "")
    try:
        return _bytes_of(key)
    except ValueError as error:
        raise ConfigInvalid(f"{file} {error}") from None


def _said_in(text: str, file: Path) -> dict[str, str]:
    """What a file of ZPL says of CURVE."""
    items: Iterable[ZplItem] = parse_zpl(text, source=str(file))
    return {key.name: key.value or "" for item in items if item.name == "curve" for key in item.children}


def _read(file: Path) -> tuple[str, int]:
    """What a file says, and its mode. Raises ConfigInvalid."""
    try:
        with open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigInvalid(f"{file} is no file: name one that holds a key")
            data = opened.read(_FILE_BYTES_MAX)
    except OSError as error:
        raise ConfigInvalid(f"{file} cannot be read: {error.strerror}") from None
    try:
        return data.decode(), mode
    except UnicodeDecodeError:
        raise ConfigInvalid(f"{file} is no text: name a file that holds a key") from None


def _refuse_changeable(place: Path, mode: int) -> None:
    if mode & stat.S_IWOTH:
        raise ConfigInvalid(f"{place} can be changed by every user, and says who is let in: chmod o-w {place}")


def _is_key(text: str) -> bool:
    try:
        return bool(_bytes_of(text))
    except ValueError:
        return False


def _bytes_of(text: str) -> bytes:
    """The key that a text of Z85 stands for. Raises ValueError, which does not say it."""
    try:
        from zmq.utils import z85
    except ImportError:
        raise ValueError(f"cannot be read: {WITHOUT_SOCKETS}") from None
    try:
        key = z85.decode(text) if len(text) == _KEY_LENGTH and text.isascii() else b""
    except (KeyError, ValueError, struct.error):
        key = b""
    if not key or z85.encode(key).decode() != text:
        raise ValueError(_NOT_A_KEY)
    return key
