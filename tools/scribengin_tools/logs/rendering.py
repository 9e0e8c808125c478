"""How what was found in a log is shown: tables that fit 80 columns, and everything as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from scribengin.base.text.counting import many
from scribengin.errors import ConfigInvalid
from scribengin.log import DLSN, LogNamespace, SegmentDescriptor
from scribengin.log.inspect import EntryPlace, EntryType, Finding, Remainder, SegmentReport
from scribengin_tools.logs.checks import LogCheck
from scribengin_tools.logs.positions import short
from scribengin_tools.rendering.text import byte_count, error_text, facts, moment, table

_FINDINGS_SHOWN = 50
_CODECS = ("none", "lz4", "zstd")


def log_parts(check: LogCheck) -> Iterator[RenderableType]:
    """A log: what it is, its segments, and what is wrong."""
    metadata_check = check.metadata_check
    if metadata_check is not None:
        yield facts(
            (
                ("log", check.log),
                ("state", _state(check)),
                ("records", f"{check.records:,}{_of_records(check)}"),
                ("size", byte_count(check.bytes)),
                ("first kept", short(metadata_check.head.first)),
                ("directory", metadata_check.log.directory),
                ("left over", _strays(check)),
            )
        )
    else:
        yield facts((("log", check.log),))
    if check.segments:
        yield Text()
        yield _segments_table(check.segments)
    yield Text()
    yield from findings_lines(check.findings)
    if not check.findings:
        yield Text("nothing is wrong with it", style="green")


def segment_parts(namespace: LogNamespace, check: LogCheck, number: int) -> Iterator[RenderableType]:
    """One segment of a log. Raises ConfigInvalid if it has none of that number."""
    report = next((report for report in check.segments if report.segment.segment == number), None)
    if report is None:
        there = [report.segment.segment for report in check.segments]
        which = f"segments {there[0]} to {there[-1]}" if there else "no segment"
        raise ConfigInvalid(f"--segment {number}: log '{check.log}' has {which}")
    yield _segment_facts(report, namespace.inspect(check.log).remainder(number))
    yield Text()
    yield from findings_lines(report.findings)
    if not report.findings:
        yield Text("nothing is wrong with it", style="green")


def findings_lines(findings: Sequence[Finding], indent: str = "") -> Iterator[Text]:
    """What is wrong, a line each; of very many the first."""
    for finding in findings[:_FINDINGS_SHOWN]:
        yield error_text(f"{indent}{finding}")
    if len(findings) > _FINDINGS_SHOWN:
        yield error_text(f"{indent}and {len(findings) - _FINDINGS_SHOWN:,} more (--json shows all)")


def _segment_facts(report: SegmentReport, remainder: Remainder | None) -> RenderableType:
    segment, end = report.segment, report.end
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(report.entries.items()))
    index = report.index
    broken = f", {index.wrong:,} of them wrong (it will be rebuilt)" if index.wrong else ""
    txids = None if report.first_txid is None else f"{report.first_txid} to {report.last_txid}"
    return facts(
        (
            ("segment", segment.segment),
            ("state", "in progress" if segment.in_progress else "complete"),
            ("file", report.path),
            ("copies on", ", ".join(report.machines) or None),
            ("file size", "missing" if report.file_bytes is None else byte_count(report.file_bytes)),
            ("visible", f"{byte_count(end.end)}, {many(end.entries, 'entry', 'entries')}"),
            ("entries", kinds or "none"),
            ("records", report.records),
            ("sequence ids", _sequences(report)),
            ("transaction ids", txids),
            ("epoch", segment.epoch),
            ("created", moment(segment.created_ms)),
            ("completed", moment(segment.completed_ms)),
            ("index", f"{many(index.rows, 'row')}{broken}" if index.rows else "none"),
            ("copy", _copy(segment)),
            ("cold copy", _cold(report)),
            ("commit log", segment.commit_log),
            ("behind the end", _behind(report, remainder)),
        )
    )


def entry_lines(entries: Iterator[tuple[SegmentDescriptor, EntryPlace | Finding]]) -> Iterator[str]:
    """Entries, a line each, below a heading; what is wrong stands where it is."""
    line = "{:>9} {:<10} {:>12} {:>9} {:>8} {:>11} {:>13}"
    yield line.format("ENTRY", "TYPE", "BYTE", "SIZE", "RECORDS", "SEQUENCE", "TXID")
    for segment, found in entries:
        if isinstance(found, Finding):
            yield f"  ! {found}"
            continue
        header = found.header
        yield line.format(
            f"{segment.segment}/{header.entry}",
            _type(header.type),
            found.offset,
            byte_count(header.size),
            header.records,
            header.sequence,
            header.first_txid,
        )


def entry_json(segment: SegmentDescriptor, found: EntryPlace | Finding) -> dict[str, Any]:
    """One line of `inspect --entries --json`."""
    if isinstance(found, Finding):
        return finding_json(found)
    header = found.header
    return {
        "segment": segment.segment,
        "entry": header.entry,
        "offset": found.offset,
        "bytes": header.size,
        "type": _type(header.type),
        "codec": _CODECS[header.codec],
        "records": header.records,
        "sequence": header.sequence,
        "first_txid": header.first_txid,
        "last_txid": header.last_txid,
        "group_index": header.group_index,
        "epoch": header.epoch,
    }


def check_json(check: LogCheck) -> dict[str, Any]:
    """A log as `inspect --json` and `verify --json` print it."""
    metadata_check = check.metadata_check
    found: dict[str, Any] = {"log": check.log, "ok": not check.findings}
    if metadata_check is not None:
        found |= {
            "writer": metadata_check.writer,
            "sealed": metadata_check.head.end_of_stream,
            "first": short(metadata_check.head.first),
            "records": check.records,
            "bytes": check.bytes,
            "head": metadata_check.head.model_dump(mode="json"),
            "config": metadata_check.log.config.model_dump(mode="json"),
        }
    found["segments"] = [segment_json(report) for report in check.segments]
    found["left_over"] = list(check.strays)
    found["findings"] = [finding_json(finding) for finding in check.findings]
    return found


def segment_json(report: SegmentReport) -> dict[str, Any]:
    """A segment, with what its file holds under `found`."""
    return {
        **report.segment.model_dump(mode="json"),
        "in_progress": report.segment.in_progress,
        "found": {
            "path": report.path,
            "where": _where(report.segment),
            "cold_path": report.cold_path,
            "machines": report.machines,
            "file_bytes": report.file_bytes,
            "visible_bytes": report.end.end,
            "bytes_beyond": report.bytes_beyond,
            "entries": report.entries,
            "records": report.records,
            "end_sequence": report.end.sequence,
            "first_txid": report.first_txid,
            "last_txid": report.last_txid,
            "index_rows": report.index.rows,
            "index_rows_wrong": report.index.wrong,
        },
        "ok": not report.findings,
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    """What is wrong, and where."""
    return {
        "what": finding.what, "segment": finding.segment, "entry": finding.entry, "offset": finding.offset,
    }  # fmt: skip


def verdict(found: Sequence[LogCheck], took_s: float) -> Text:
    """What checking came to."""
    size = sum(check.checked_bytes for check in found)
    records = sum(check.records for check in found)
    wrong = sum(bool(check.findings) for check in found)
    problems = sum(len(check.findings) for check in found)
    rate = f", {size / took_s / 1e6:,.0f} MB/s" if took_s > 0 else ""
    said = f"{many(problems, 'problem')} in {many(wrong, 'log')}" if problems else "nothing is wrong"
    checked = f"{many(len(found), 'log')}, {many(records, 'record')}, {byte_count(size)} in {took_s:.1f} s{rate}"
    return Text(f"{checked}: {said}", style="red" if problems else "green")


def _segments_table(segments: Sequence[SegmentReport]) -> RenderableType:
    columns = (">SEGMENT", "STATE", ">ENTRIES", ">RECORDS", ">SIZE", ">SEQUENCE", ">EPOCH", "WHERE", "CHECKED")
    return table(columns, (_segment_row(report) for report in segments))


def _segment_row(report: SegmentReport) -> tuple[RenderableType, ...]:
    return (
        str(report.segment.segment),
        "writing" if report.segment.in_progress else "complete",
        f"{sum(report.entries.values()):,}",
        f"{report.records:,}",
        byte_count(report.end.end),
        str(report.segment.start_sequence),
        str(report.segment.epoch),
        _where(report.segment),
        error_text("WRONG") if report.findings else Text("ok", style="green"),
    )


def _where(segment: SegmentDescriptor) -> str:
    """Whether a segment is in the store (hot), in cold storage, or in both."""
    if segment.cold is None:
        return "hot"
    return "both" if segment.hot_dropped_ms is None else "cold"


def _type(number: int) -> str:
    return EntryType(number).name.lower()


def _state(check: LogCheck) -> str:
    metadata_check = check.metadata_check
    if metadata_check is None:
        return "its metadata cannot be read"
    if metadata_check.head.end_of_stream:
        return "sealed"
    if metadata_check.writer is not None:
        return f"being written by {metadata_check.writer}"
    return "left unfinished: the next writer recovers it" if metadata_check.in_progress else "nobody writes it just now"


def _of_records(check: LogCheck) -> str:
    first = check.metadata_check.head.first if check.metadata_check is not None else DLSN.INITIAL
    begins = check.segments[0].segment.segment if check.segments else first.segment
    truncated = f" in these segments, those before {short(first)} are truncated" if first > (begins, 0, 0) else ""
    return f"{' that could be read' if check.findings else ''}{truncated}"


def _strays(check: LogCheck) -> str | None:
    if not check.strays:
        return None
    return f"{many(len(check.strays), 'file')} of no segment (`log purge` or the next writer removes such)"


def _copy(segment: SegmentDescriptor) -> str | None:
    made = segment.compressed
    if made is None:
        return None
    kept = "beside it" if segment.raw_dropped_ms is None else f"alone since {moment(segment.raw_dropped_ms)}"
    return f"{made.codec}, {byte_count(made.bytes)}, {kept}"


def _cold(report: SegmentReport) -> str | None:
    cold, dropped_ms = report.segment.cold, report.segment.hot_dropped_ms
    if cold is None:
        return None
    kept = "beside what is in the store" if dropped_ms is None else f"alone since {moment(dropped_ms)}"
    return f"{report.cold_path}, {byte_count(cold.bytes)}, {kept}"


def _sequences(report: SegmentReport) -> str:
    start, end = report.segment.start_sequence, report.end.sequence
    return f"{start:,} to {end - 1:,}" if end > start else f"none (the next is {start:,})"


def _behind(report: SegmentReport, remainder: Remainder | None) -> str | None:
    if not report.bytes_beyond or remainder is None:
        return None
    parts = [f"{byte_count(report.bytes_beyond)}:"]
    if remainder.unshown_records:
        parts.append(f"{many(remainder.unshown_records, 'record')} that no reader has seen yet;")
    if remainder.staged_entry is not None:
        parts.append(f"{many(remainder.staged_records, 'staged record')};")
    if remainder.torn_bytes:
        parts.append(f"{byte_count(remainder.torn_bytes)} that are no whole entry;")
    return " ".join(parts).rstrip(";")
