"""Places in a log as a person writes them: where to start, and DLSNs in every form there is."""

from __future__ import annotations

import re
from datetime import datetime

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.connectors.contract import StartAt
from scribengin.errors import ConfigInvalid, LogError
from scribengin.log import DLSN, FIRST, LAST, TAIL, SequenceId, Start, Time, TransactionId

_EDGES: dict[str, Start] = {"earliest": FIRST, "last": LAST, "latest": TAIL}
_NUMBERED: dict[str, type[TransactionId] | type[SequenceId]] = {"txid": TransactionId, "sequence": SequenceId}
_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBERS = range(-(2**63), 2**63)
_DIGITS_MAX = 20
"""Python itself counts no more than some thousands."""
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")


def start_of(text: str, option: str = "--from") -> Start:
    """Where to start. Raises ConfigInvalid, which says what can be written."""
    word = text.strip()
    if word in _EDGES:
        return _EDGES[word]
    kind, _colon, number = word.partition(":")
    if kind in _NUMBERED and re.fullmatch(r"-?\d+", number):
        found = int(number) if len(number) <= _DIGITS_MAX else None
        return _NUMBERED[kind](checked_number(found, f"{option} {word}"))
    if (ms := time_ms_of(word)) is not None:
        return Time(ms)
    try:
        return dlsn_of(word)
    except LogError:
        raise ConfigInvalid(
            f"{option} {text}: expected earliest, latest, last, a DLSN as in 1/0/0, txid:N, sequence:N, a time as in "
            "2026-01-31T12:00, or how long ago as in 30s, 15m, 2h, 1d"
        ) from None


def checked_number(number: int | None, said: str) -> int:
    """A transaction or sequence id, which has 64 bits. None: so many digits that nobody has to count them. Raises
    ConfigInvalid, with what was `said`."""
    if number is None or number not in _NUMBERS:
        raise ConfigInvalid(f"{said}: such a number is {_NUMBERS[0]} to {_NUMBERS[-1]}")
    return number


def time_ms_of(word: str) -> int | None:
    """A time in ms since the epoch, as in 2026-01-31T12:00, or how long ago, as in 15m. None: it is neither."""
    if ago := _AGO.fullmatch(word):
        now_ms = SYSTEM_CLOCK.now_ms()
        return now_ms - int(min(now_ms, float(ago[1]) * _UNITS_MS[ago[2]]))
    try:
        return int(datetime.fromisoformat(word).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None


def start_at_of(text: str, option: str = "--to") -> StartAt:
    """Where a dataflow is to read on. Raises ConfigInvalid, which says what can be written."""
    word = text.strip()
    if word == "earliest":
        return StartAt("earliest")
    if word == "latest":
        return StartAt("latest")
    found = re.fullmatch(r"(?:offset:)?(\d{1,19})", word)
    if found and int(found[1]) in _NUMBERS:
        return StartAt("offset", int(found[1]))
    try:
        start = start_of(word)
    except ConfigInvalid:
        start = None
    if isinstance(start, Time):
        return StartAt("time", max(0, start.ms))  # Kafka takes some times before all others for edges
    if isinstance(start, DLSN):
        return StartAt("dlsn", short(start))
    raise ConfigInvalid(
        f"{option} {text}: expected earliest, latest, a time as in 2026-01-31T12:00, how long ago as in 30s, 15m, 2h, "
        "1d, a DLSN as in 1/0/0 (logs), or offset:N (Kafka)"
    )


def place_of(text: str, option: str) -> DLSN:
    """A DLSN that was given to `option`. Raises ConfigInvalid."""
    try:
        return dlsn_of(text)
    except LogError as error:
        raise ConfigInvalid(f"{option} {text}: {error}") from None


def dlsn_of(text: str) -> DLSN:
    """A DLSN in any of its forms: 1/0/0, as it is printed, base64 or hex of its bytes (of either version).

    Raises LogError.
    """
    word = text.strip()
    if _HEX.fullmatch(word):
        try:
            return DLSN.from_bytes(bytes.fromhex(word))
        except LogError:
            return DLSN.parse(word)  # base64 may look like hex
    return DLSN.parse(word)


def dlsn_forms(dlsn: DLSN) -> dict[str, str]:
    """A DLSN in every form that is read or written somewhere."""
    return {
        "place": short(dlsn),
        "printed": str(dlsn),
        "base64": dlsn.to_base64(),
        "hex": dlsn.to_bytes().hex(),
        "base64_v0": dlsn.to_base64(0),
        "hex_v0": dlsn.to_bytes(0).hex(),
    }


def short(dlsn: tuple[int, int, int]) -> str:
    """A DLSN as people write it: 1/0/0."""
    return "/".join(map(str, dlsn))
