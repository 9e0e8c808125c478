"""The logs of a source whose records are divided among them by their keys. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from scribengin.base.text.counting import many
from scribengin.connectors.contract import Division
from scribengin.errors import ConfigInvalid, SourceMissing


def division_of(streams: int | None, columns: tuple[str, ...]) -> Division | None:
    """As sources and sinks say it. Raises ValueError for half of it."""
    if (streams is None) != (not columns):
        raise ValueError("streams and partition_by go together: how many logs, and by which columns")
    if len(set(columns)) < len(columns):
        raise ValueError(f"partition_by names a column twice: {', '.join(columns)}")
    return None if streams is None else Division(streams, columns)


def numbered(source: str, logs: Iterable[str], streams: int) -> list[str]:
    """Those logs, number k at place k: all `streams` of them, and no other.

    Raises ConfigInvalid for a log that is none of them, SourceMissing while one is not there.
    """
    found: dict[int, str] = {}
    for log in logs:
        number = _number(log)
        if number is None or number >= streams:
            raise ConfigInvalid(
                f"source '{source}': log '{log}' is none of {streams} that are called /0 to /{streams - 1} behind one "
                "name: correct `logs`, or `streams`, which is what the sink says that writes them"
            )
        if number in found:
            raise ConfigInvalid(
                f"source '{source}': logs '{found[number]}' and '{log}' are both number {number}: name in `logs` "
                "what one sink writes"
            )
        found[number] = log
    if len(found) < streams:
        missing = next(number for number in range(streams) if number not in found)
        raise SourceMissing(
            f"source '{source}': of its {many(streams, 'log')} number {missing} is not there: start what writes them "
            "first, or correct `streams`"
        )
    return [found[number] for number in range(streams)]


def _number(log: str) -> int | None:
    """What stands behind the last slash, if a sink would have written it so."""
    _, slash, last = log.rpartition("/")
    canonical = last.isascii() and last.isdecimal() and last == str(int(last))
    return int(last) if slash and canonical else None
