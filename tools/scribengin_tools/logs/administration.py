"""What the commands that change a log do, and say of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from queue import Empty, SimpleQueue
from typing import Any

from scribengin.base.names import log_command
from scribengin.base.text.counting import many
from scribengin.errors import (
    ConfigInvalid,
    DescriptorUnreadable,
    EndOfStream,
    InconsistentLog,
    LogError,
    LogNotFound,
    ScribenginError,
    StoreNotMounted,
)
from scribengin.log import DLSN, Codec, LogConfig, LogNamespace, TakenBack
from scribengin.log.clients import Recovered
from scribengin_tools.logs.lines import open_from
from scribengin_tools.logs.positions import short, start_of
from scribengin_tools.rendering.text import byte_count
from scribengin_tools.terminal import check_read

CODECS: dict[str, Codec] = {"lz4": "lz4", "zstd": "zstd"}
_WAIT_S = 1.0


def truncated(namespace: LogNamespace, log: str, before: str, *, force: bool) -> str:
    """Truncate a log before `before` (as `--from` takes it), and say what came of it.

    Raises LogNotFound, ConfigInvalid (no place of this log), ReaderBehind.
    """
    records = namespace.count(log)
    place = first_place(namespace, log, before)
    try:
        changed = namespace.truncate(log, place, force=force)
    except InconsistentLog as error:
        raise ConfigInvalid(f"--before {before}: {error}") from None
    first = short(namespace.first_dlsn(log))
    if not changed:
        return f"nothing to truncate: the first record of {log} is {first}"
    gone = records - namespace.count(log)
    return f"truncated {log}: {many(gone, 'record')} given up, the first is {first} now"


class NotConfigured(ConfigInvalid):
    """The log's configuration does not want that. Nobody who asked for all logs meant it."""


def of_each(
    namespace: LogNamespace, logs: Sequence[str], prefix: str | None, work: Callable[[str], str]
) -> Iterator[str | ScribenginError]:
    """Do something with the named logs, then with those that begin with `prefix`, and say what came of each: what is
    in the way of one holds up no other.

    Raises what is in the way of all: StoreNotMounted, ConfigInvalid (not through a proxy), what the registry raises.
    """
    for log in dict.fromkeys(logs):
        yield _of_one(log, work)
    for log in namespace.names(prefix) if prefix is not None else ():
        if log not in logs:
            found = _of_one(log, work)
            deleted = isinstance(found, LogNotFound) and not namespace.exists(log)  # since the names were read
            if not deleted and not isinstance(found, NotConfigured):
                yield found


def _of_one(log: str, work: Callable[[str], str]) -> str | ScribenginError:
    try:
        return f"{log}: {work(log)}"
    except StoreNotMounted:
        raise
    except (LogError, NotConfigured, DescriptorUnreadable) as error:
        return error


def purged(namespace: LogNamespace, log: str) -> str:
    """Purge a log. Raises LogNotFound, InconsistentLog, LogWriteFailed, DamagedEntry."""
    found = namespace.purge(log)
    return f"{many(found.segments, 'segment')} removed, {byte_count(found.bytes)} freed"


def compressed(namespace: LogNamespace, log: str, codec: Codec | None) -> str:
    """Make the copies that are missing. Raises LogNotFound, NotConfigured, LogWriteFailed, DamagedEntry."""
    if codec is None and namespace.inspect(log).metadata_check.log.config.copy_codec is None:
        how = log_command(namespace.path, "configure", log, "--set", "copy_codec=zstd")
        raise NotConfigured(f"log '{log}' has no copy_codec: say --codec zstd, or {how} first")
    return f"{many(namespace.compress(log, codec), 'segment')} compressed"


def offloaded(namespace: LogNamespace, log: str) -> str:
    """Make the cold copies that are missing. Raises LogNotFound, NotConfigured, LogWriteFailed,
    StoreUnreachable, DamagedEntry."""
    if namespace.inspect(log).metadata_check.log.config.cold_url is None:
        how = log_command(namespace.path, "configure", log, "--set", "cold_url=URL")
        raise NotConfigured(f"log '{log}' has no cold_url: {how} first")
    return f"{many(namespace.offload(log), 'segment')} copied to cold storage"


def repaired(namespace: LogNamespace, log: str) -> str:
    """Let its segments have all their copies. Raises LogNotFound, StoreUnreachable, LogWriteFailed."""
    return f"{many(namespace.repair(log), 'segment')} repaired"


def configured(namespace: LogNamespace, log: str, given: dict[str, Any]) -> LogConfig:
    """Change some keys of a log's configuration, and return all of it. Raises LogNotFound, ConfigInvalid,
    ConfigConflict."""
    before = namespace.inspect(log).metadata_check.log
    if not given:
        return before.config
    return namespace.configure(log, _changed(before.config, given), version=before.config_version).config


def copied(namespace: LogNamespace, log: str, target: LogNamespace, name: str, given: dict[str, Any]) -> str:
    """Copy a log, with some keys of its configuration changed. Raises as `LogNamespace.copy`, ConfigInvalid."""
    config = _changed(namespace.inspect(log).metadata_check.log.config, given) if given else None
    found = namespace.copy(log, target, name, config)
    what = f"{many(found.segments, 'segment')}, {byte_count(found.bytes)}, {many(target.count(name), 'record')}"
    return f"copied {log} to {name} in {target.path}: {what}"


def _changed(config: LogConfig, given: dict[str, Any]) -> LogConfig:
    return LogConfig.parse({**config.model_dump(), **given}, source="--set")


def watched(namespace: LogNamespace, prefix: str) -> Iterator[tuple[str, str]]:
    """(`+` or `-`, log) for every log there is, then as they come and go. Raises what ends the watch, and
    BrokenPipeError where nobody reads stdout any more."""
    changes: SimpleQueue[tuple[str, str]] = SimpleQueue()

    def changed(added: list[str], removed: list[str]) -> None:
        for sign, names in (("-", removed), ("+", added)):
            for name in names:
                changes.put((sign, name))

    with namespace.listen(changed, prefix) as listener:
        while listener.error is None:
            try:
                yield changes.get(timeout=_WAIT_S)
            except Empty:  # is the listener still there, and whoever reads what it says?
                check_read(sys.stdout)
        raise listener.error


def first_place(namespace: LogNamespace, log: str, start: str) -> DLSN:
    """The place of the first record from `start` on, as `--from` takes it; the end of the log if there is none yet.

    Raises LogNotFound, ConfigInvalid.
    """
    begin = start_of(start, "--before")
    if isinstance(begin, DLSN):
        return begin
    with closing(open_from(namespace, log, start)) as reader:
        try:
            records = reader.read(1)
        except EndOfStream:
            records = []
        return records[0].dlsn if records else reader.position


def recovered_lines(log: str, found: Recovered | None) -> Iterator[str]:
    """What recovery found, for people."""
    if found is None:
        yield f"nothing to recover: no segment of {log} is unfinished"
        return
    segment, remainder = found.segment, found.remainder
    if segment is not None and remainder is not None:
        yield f"recovered {log}: segment {segment.segment} is complete, with {many(segment.records, 'record')}"
        if remainder.unshown_records:
            yield f"  {many(remainder.unshown_records, 'record')} kept that no reader had seen"
        if found.staged_committed is not None:
            what = "had committed: they are kept" if found.staged_committed else "had not committed: rolled back"
            yield f"  {many(remainder.staged_records, 'staged record')} {what}"
        if remainder.torn_bytes:
            yield f"  {byte_count(remainder.torn_bytes)} at its end were no whole entry: left out"
    yield from _restored_lines(log, found.restored)


def _restored_lines(log: str, found: TakenBack) -> Iterator[str]:
    if found.given_up:
        yield f"{log} begins later: the files of its first {many(found.given_up, 'segment')} are gone"
    if found.from_cold:
        yield f"{many(found.from_cold, 'segment')} of {log} found in cold storage alone, and read from there now"
    if found.from_copies:
        yield f"{many(found.from_copies, 'segment')} of {log} found as compressed copies alone, and read from these now"
    for segment in found.segments:
        place = "in its place" if segment.taken_from is None else f"copied from {segment.taken_from} to the end"
        yield f"taken back into {log}: segment {segment.segment} with {many(segment.records, 'record')}, {place}"
    for why in found.refused:
        yield f"not taken back: {why}"


def recovered_json(log: str, found: Recovered | None) -> dict[str, Any]:
    """The same for programs."""
    if found is None:
        return {"log": log, "recovered": False}
    said: dict[str, Any] = {
        "log": log,
        "recovered": True,
        "taken_back": [segment.model_dump(mode="json") for segment in found.taken_back],
        "not_taken_back": list(found.restored.refused),
        "segments_given_up": found.restored.given_up,
        "segments_from_cold": found.restored.from_cold,
        "segments_from_copies": found.restored.from_copies,
    }
    if found.segment is None or found.remainder is None:
        return said
    return said | {
        "segment": found.segment.model_dump(mode="json"),
        "unshown_records": found.remainder.unshown_records,
        "staged_records": found.remainder.staged_records,
        "staged_committed": found.staged_committed,
        "torn_bytes": found.remainder.torn_bytes,
    }
