"""`scribengin log`: create logs, look at them, write lines to them and read them back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from scribengin_tools.commands.options import (
    DEFAULT_NAMESPACE,
    JsonOption,
    NamespaceOption,
    RegistryOption,
    SetOption,
    opened_namespace,
    overrides,
)
from scribengin_tools.render import byte_count, console, facts, moment, note, print_json, table

if TYPE_CHECKING:
    from scribengin.log import LogInfo

app = typer.Typer(help="Work with the logs of the log store.", no_args_is_help=True)
LogArgument = Annotated[str, typer.Argument(metavar="LOG", help="The log, as in flights/0.", show_default=False)]
CountOption = Annotated[
    int | None, typer.Option("-n", "--records", min=1, metavar="N", help="End after N records.", show_default=False)
]
FromOption = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="PLACE",
        help="earliest, latest (the end), or a DLSN: segment/entry/slot as in 1/0/0, or as --json prints it.",
    ),
]


@app.command("create")
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
    import yaml

    from scribengin.log import LogConfig
    from scribengin_tools.logs import create_all

    given = {key: yaml.safe_load(value) for key, value in overrides(settings).items()}
    config = LogConfig.parse(given, source="--set")
    with opened_namespace(registry, namespace) as opened:
        create_all(opened, logs, config)
    print(f"created {', '.join(logs)}")


@app.command("list")
def list_logs(
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Only logs that begin with this.")] = "",
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """List the logs, with how many records each holds."""
    from scribengin.errors import LogNotFound

    infos = []
    with opened_namespace(registry, namespace) as opened:
        for name in opened.names(prefix):
            try:
                infos.append(opened.info(name))
            except LogNotFound:
                continue  # deleted since the names were read
    if as_json:
        print_json([_info_json(info) for info in infos])
    elif infos:
        rows = [(i.log.name, i.records, byte_count(i.bytes), len(i.segments), i.writer or "") for i in infos]
        console().print(table(("LOG", ">RECORDS", ">SIZE", ">SEGMENTS", "WRITER"), rows))
    else:
        note(f"no logs{f' that begin with {prefix}' if prefix else ''} in {namespace}")


@app.command("info")
def info(
    log: LogArgument,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Show one log: its records, its segments, its writer."""
    with opened_namespace(registry, namespace) as opened:
        found = opened.info(log)
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
                ("first record", str_of(found.first)),
                ("end", str_of(found.end) + (" (sealed)" if found.head.end_of_stream else "")),
                ("writer", found.writer or "nobody just now"),
                ("created", moment(found.log.created_ms)),
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


@app.command("write")
def write(
    log: LogArgument,
    lines: Annotated[
        list[str] | None, typer.Argument(metavar="[LINE]...", help="The records. Default: the lines of stdin.")
    ] = None,
    seal: Annotated[
        bool, typer.Option("--seal", help="Then end the log: nothing can be written to it any more.")
    ] = False,
    wait_s: Annotated[
        float, typer.Option("--wait-s", min=0, help="How long to wait for another writer to leave.")
    ] = 10.0,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Append records, a line each.

    Returns when they are durable. Readers see them as they come."""
    from scribengin.errors import ScribenginError
    from scribengin_tools.logs import batches_of_lines, batches_of_stream

    if not lines and sys.stdin.isatty():
        note("write lines, and end with Ctrl-D")
    batches = batches_of_lines(lines) if lines else batches_of_stream(sys.stdin.buffer)
    written = 0
    with opened_namespace(registry, namespace) as opened, opened.open_writer(log, timeout_s=wait_s) as writer:
        try:
            for batch in batches:
                writer.write_bulk(batch).result()
                written += batch.num_rows
        except ScribenginError:
            note(f"{written:,} records were written to {log} before this")
            raise
        if seal:
            writer.mark_end_of_stream()
    note(f"wrote {written:,} {'record' if written == 1 else 'records'} to {log}{', and sealed it' if seal else ''}")


@app.command("read")
def read(
    log: LogArgument,
    start: FromOption = "earliest",
    count: CountOption = None,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Print the records that a log holds now, a line each.

    --json prints everything about each, a line of JSON each."""
    from scribengin_tools.logs import print_records, records_now

    with opened_namespace(registry, namespace) as opened:
        print_records(records_now(opened, log, start, count), as_json=as_json)


@app.command("tail")
def tail(
    log: LogArgument,
    start: FromOption = "latest",
    count: CountOption = None,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Print records as they come.

    Until Ctrl-C, -n records, or the end of a sealed log."""
    from scribengin_tools.logs import print_records, records_followed

    with opened_namespace(registry, namespace) as opened:
        print_records(records_followed(opened, log, start, count), as_json=as_json)


@app.command("delete")
def delete(
    logs: Annotated[list[str], typer.Argument(metavar="LOG...", help="The logs.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Also while somebody writes it.")] = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Delete logs with everything in them.

    All of them or, when one cannot be deleted, none."""
    from scribengin_tools.logs import delete_all

    with opened_namespace(registry, namespace) as opened:
        delete_all(opened, logs, force=force)
    print(f"deleted {', '.join(logs)}")


def str_of(dlsn: tuple[int, int, int]) -> str:
    """A DLSN as `--from` takes it."""
    return "/".join(map(str, dlsn))


def _info_json(info: LogInfo) -> dict[str, object]:
    return {
        "log": info.log.name,
        "records": info.records,
        "bytes": info.bytes,
        "first": str_of(info.first),
        "end": str_of(info.end),
        "sealed": info.head.end_of_stream,
        "writer": info.writer,
        "created_ms": info.log.created_ms,
        "config": info.log.config.model_dump(mode="json"),
        "segments": [segment.model_dump(mode="json") for segment in info.segments],
    }
