"""`scribengin log`: create logs, look at them, write lines to them and read them back."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from scribengin.base.names import DEFAULT_NAMESPACE, log_command
from scribengin.base.text.counting import many
from scribengin_tools.cli.log.options import (
    PANEL_LOGS,
    PANEL_RECORDS,
    ChannelsOption,
    FromOption,
    LogArgument,
    RecordsOption,
    StealOption,
    WaitOption,
)
from scribengin_tools.cli.options import (
    JsonOption,
    NamespaceOption,
    RegistryOption,
    SetOption,
    given_values,
    opened_namespace,
)
from scribengin_tools.rendering.text import byte_count, console, facts, moment, note, print_json, table

if TYPE_CHECKING:
    from scribengin.log import LogInfo

app = typer.Typer(help="Work with the logs of the log store.", no_args_is_help=True)


@app.command("create", rich_help_panel=PANEL_LOGS)
def create(
    logs: Annotated[
        list[str], typer.Argument(metavar="LOG...", help="Their names, as in flights/0.", show_default=False)
    ],
    settings: SetOption = None,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Create logs.

    All of them or, when one cannot be created, none. --set takes the keys of a log's configuration."""
    from scribengin.log import LogConfig
    from scribengin_tools.logs.lines import create_all

    config = LogConfig.parse(given_values(settings), source="--set")
    with opened_namespace(registry, namespace) as opened:
        create_all(opened, logs, config)
    print(f"created {', '.join(logs)}")


@app.command("list", rich_help_panel=PANEL_LOGS)
def list_logs(
    wanted: Annotated[
        str,
        typer.Argument(
            metavar="PREFIX", help="Only logs that begin with this, or a pattern as in 'flights/*/late', in quotes."
        ),
    ] = "",
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """List the logs, with how many records each holds."""
    from scribengin.errors import DescriptorUnreadable, LogError, LogNotFound, StoreNotMounted
    from scribengin.log import WILDCARD

    infos, wrong, is_pattern = [], [], WILDCARD.search(wanted) is not None
    with opened_namespace(registry, namespace) as opened:
        for name in opened.matching(wanted) if is_pattern else opened.names(wanted):
            try:
                found = opened.info(name)
                infos.append(replace(found, segments=opened.segments(name)) if as_json else found)
            except StoreNotMounted:
                raise  # it is so of all
            except (LogError, DescriptorUnreadable) as error:
                if isinstance(error, LogNotFound) and not opened.exists(name):
                    continue  # deleted since the names were read
                look = log_command(namespace, "inspect", name)
                wrong.append(f"{name} is left out: {error}" + ("" if look in str(error) else f" ({look})"))
    if as_json:
        print_json([_info_json(info) for info in infos])
    elif infos:
        rows = [(i.log.name, i.records, byte_count(i.bytes), len(i.segments), i.writer or "") for i in infos]
        console().print(table(("LOG", ">RECORDS", ">SIZE", ">SEGMENTS", "WRITER"), rows))
    elif not wrong:
        such = f" like {wanted}" if is_pattern else f" that begin with {wanted}" if wanted else ""
        note(f"no logs{such} in {namespace}")
    for line in wrong:
        note(line)
    if wrong:
        raise typer.Exit(1)


@app.command("info", rich_help_panel=PANEL_LOGS)
def info(
    log: LogArgument,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Show one log: its records, its segments, its writer."""
    from scribengin_tools.logs.positions import short

    with opened_namespace(registry, namespace) as opened:
        found = replace(opened.info(log), segments=opened.segments(log))
    if as_json:
        print_json(_info_json(found))
        return
    out = console()
    out.print(
        facts(
            (
                ("log", found.log.name),
                ("records", found.records),
                ("size", byte_count(found.bytes)),
                ("first record", short(found.first)),
                ("end", short(found.end) + (" (sealed)" if found.head.end_of_stream else "")),
                ("writer", found.writer or "nobody just now"),
                ("created", moment(found.log.created_ms)),
                ("readers", ", ".join(f"{reader} ({lag:,} behind)" for reader, lag in found.readers.items())),
                ("directory", found.log.directory),
            )
        )
    )
    rows = [
        (
            str(s.segment),
            "in progress" if s.in_progress else "complete",
            s.records,
            byte_count(s.bytes),
            moment(s.created_ms),
        )
        for s in found.segments
    ]
    if rows:
        out.print()
        out.print(table((">SEGMENT", "STATE", ">RECORDS", ">SIZE", "CREATED"), rows))


@app.command("write", rich_help_panel=PANEL_RECORDS)
def write(
    log: LogArgument,
    lines: Annotated[
        list[str] | None, typer.Argument(metavar="[LINE]...", help="The records. Default: the lines of stdin.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT", help="The key of all of them.", show_default=False)
    ] = None,
    channel: Annotated[
        str | None, typer.Option("--channel", metavar="TEXT", help="Their channel.", show_default=False)
    ] = None,
    seal: Annotated[
        bool, typer.Option("--seal", help="Then end the log: nothing can be written to it any more.")
    ] = False,
    wait_s: WaitOption = 10.0,
    steal: StealOption = False,
    through_proxy: Annotated[
        bool, typer.Option("--proxy", help="Have a proxy write them, beside other writers (`scribengin proxy`).")
    ] = False,
    patience_s: Annotated[
        float, typer.Option("--patience-s", min=0.001, help="How long records wait for a proxy that takes them.")
    ] = 60.0,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Append records, a line each.

    Returns when they are durable. Readers see them as they come. A log that a dataflow writes is refused."""
    from scribengin.errors import ScribenginError
    from scribengin_tools.logs.lines import batches_of_lines, batches_of_stream, labelled

    if not lines and sys.stdin.isatty():
        note("write lines, and end with Ctrl-D")
    batches = labelled(batches_of_lines(lines) if lines else batches_of_stream(sys.stdin.buffer), key, channel)
    written = 0
    with (
        opened_namespace(
            registry, namespace, to_write=None if steal else log, proxied=through_proxy, patience_s=patience_s
        ) as opened,
        opened.open_writer(log, timeout_s=wait_s, steal=steal) as writer,
    ):
        try:
            for batch in batches:
                writer.write_bulk(batch).result()
                written += batch.num_rows
        except (ScribenginError, KeyboardInterrupt):
            note(f"written to {log} before this: {many(written, 'record')}")
            raise
        if seal:
            writer.mark_end_of_stream()
    note(f"wrote {many(written, 'record')} to {log}{', and sealed it' if seal else ''}")


@app.command("read", rich_help_panel=PANEL_RECORDS)
def read(
    log: LogArgument,
    start: FromOption = "earliest",
    channels: ChannelsOption = None,
    count: RecordsOption = None,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Print the records that a log holds now, a line each.

    --json prints everything about each, a line of JSON each."""
    from scribengin_tools.logs.lines import print_records, records_now

    with opened_namespace(registry, namespace) as opened:
        print_records(records_now(opened, log, start, count, channels or ()), as_json=as_json)


@app.command("tail", rich_help_panel=PANEL_RECORDS)
def tail(
    logs: Annotated[list[str], typer.Argument(metavar="LOG...", help="The logs, as in flights/0.", show_default=False)],
    start: FromOption = "latest",
    channels: ChannelsOption = None,
    count: RecordsOption = None,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Print records as they come.

    Until Ctrl-C, -n records, or the end of all logs, if they are sealed. Of several logs a line names the one whose
    records follow; with --json each record does."""
    from scribengin_tools.logs.lines import print_records, records_followed

    with opened_namespace(registry, namespace) as opened:
        print_records(records_followed(opened, logs, start, count, channels or ()), as_json=as_json)


@app.command("delete", rich_help_panel=PANEL_LOGS)
def delete(
    logs: Annotated[list[str], typer.Argument(metavar="LOG...", help="The logs.", show_default=False)],
    force: Annotated[
        bool, typer.Option("--force", help="Also while somebody writes or reads it, or if it is broken.")
    ] = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Delete logs with everything in them.

    All of them or, when one cannot be deleted, none. One that a dataflow reads is refused until that is deleted."""
    from scribengin_tools.logs.lines import delete_all

    with opened_namespace(registry, namespace) as opened:
        delete_all(opened, logs, force=force)
    print(f"deleted {', '.join(logs)}")


def _info_json(info: LogInfo) -> dict[str, object]:
    from scribengin_tools.logs.positions import short

    return {
        "log": info.log.name,
        "records": info.records,
        "bytes": info.bytes,
        "first": short(info.first),
        "end": short(info.end),
        "sealed": info.head.end_of_stream,
        "writer": info.writer,
        "created_ms": info.log.created_ms,
        "config": info.log.config.model_dump(mode="json"),
        "readers": info.readers,
        "segments": [segment.model_dump(mode="json") for segment in info.segments],
    }
