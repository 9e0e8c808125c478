"""What an operator does with logs: bind, watch, configure, readers, truncate, purge, compress, offload, seal, copy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from scribengin.base.names import DEFAULT_NAMESPACE
from scribengin.base.text.counting import many
from scribengin_tools.cli.log.options import (
    PANEL_LOGS,
    PANEL_UPKEEP,
    AllOption,
    LogArgument,
    LogsArgument,
    PrefixArgument,
    PrefixOption,
    StealOption,
    WaitOption,
    wanted_prefix,
)
from scribengin_tools.cli.options import (
    JsonOption,
    NamespaceOption,
    RegistryOption,
    SetOption,
    connected,
    given_values,
    opened_namespace,
)
from scribengin_tools.rendering.text import console, facts, note, print_json, print_json_line, report, table

if TYPE_CHECKING:
    from scribengin.errors import ScribenginError


class CopyCodec(StrEnum):
    """How a compressed copy is encoded."""

    LZ4 = "lz4"
    ZSTD = "zstd"


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("bind", rich_help_panel=PANEL_LOGS)(bind)
    app.command("watch", rich_help_panel=PANEL_LOGS)(watch)
    app.command("configure", rich_help_panel=PANEL_LOGS)(configure)
    app.command("readers", rich_help_panel=PANEL_UPKEEP)(readers)
    app.command("truncate", rich_help_panel=PANEL_UPKEEP)(truncate)
    app.command("purge", rich_help_panel=PANEL_UPKEEP)(purge)
    app.command("compress", rich_help_panel=PANEL_UPKEEP)(compress)
    app.command("offload", rich_help_panel=PANEL_UPKEEP)(offload)
    app.command("seal", rich_help_panel=PANEL_UPKEEP)(seal)
    app.command("recover", rich_help_panel=PANEL_UPKEEP)(recover)
    app.command("repair", rich_help_panel=PANEL_UPKEEP)(repair)
    app.command("copy", rich_help_panel=PANEL_UPKEEP)(copy)


def bind(
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="Where its logs are kept: a directory, one of HDFS as in hdfs://namenode:8020/logs, or a node of "
            "BookKeeper's ZooKeeper as in bk://zk1:2181,zk2:2181/logs.",
            show_default=False,
        ),
    ],
    shared: Annotated[
        bool,
        typer.Option("--shared", help="The directory is a mount that other machines have, too, at the same path."),
    ] = False,
    moved: Annotated[
        bool,
        typer.Option("--moved", help="The directory is on this machine alone now: it was on another, or shared."),
    ] = False,
    migrate: Annotated[
        bool,
        typer.Option("--migrate", help="Move the namespace's logs there from where they are. Nobody may write them."),
    ] = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Make a namespace for logs, kept in a directory of this machine or of HDFS, or on BookKeeper.

    Once and for all: again with the same directory changes nothing, with another is refused unless --migrate moves the
    logs there. If that was cut short, the same again goes on, and --migrate with the old directory takes it back.

    A directory belongs to this machine. Others refuse to open the namespace, unless it is --shared: the page on the
    log store says what such a mount must promise."""
    from scribengin.errors import ConfigInvalid
    from scribengin.log import LogNamespace, migrate_namespace

    if migrate and moved:
        raise ConfigInvalid("--migrate moves the logs, --moved says that their disk was moved: say one of them")
    if shared and moved:
        raise ConfigInvalid("--shared and --moved contradict each other: say one of them")
    scheme, url, _ = directory.partition("://")
    store = scheme if url and scheme in ("hdfs", "bk") else None
    with nullcontext() if "://" in namespace else connected(registry) as session:
        if migrate:
            found = migrate_namespace(namespace, directory, registry=session, store=store, shared=shared)
            print(f"moved {many(found.logs, 'log')}; open the namespace again where it was open")
            bound = found.descriptor
        else:
            bound = LogNamespace.bind(namespace, directory, registry=session, store=store, shared=shared, moved=moved)
    print(f"{namespace} keeps its logs in {bound.location}")


def truncate(
    log: LogArgument,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="PLACE",
            help="The first record to keep: a DLSN as in 1/0/0, or as --from of `log read` takes it.",
            show_default=False,
        ),
    ],
    force: Annotated[bool, typer.Option("--force", help="Also what a registered reader has not read.")] = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Give up the records of a log before a place, exactly.

    Nobody can read them any more. Disk space is freed segment by segment, by `log purge` or the next writer."""
    from scribengin_tools.logs.administration import truncated

    with opened_namespace(registry, namespace) as opened:
        print(truncated(opened, log, before, force=force))


def purge(
    logs: LogsArgument = None,
    every: AllOption = False,
    prefix: PrefixOption = None,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Remove segments that were truncated, or are too old.

    Too old: older than the log's retention_hours. And raw files that are older than raw_retention_hours, where there
    is a compressed copy; and files that hot_hours or hot_bytes_max does not want in the store, where there is a cold
    copy.

    Writers do the same after every segment. What a registered reader still wants is kept."""
    from scribengin_tools.logs.administration import of_each, purged

    wanted = wanted_prefix(logs, every, prefix)
    with opened_namespace(registry, namespace) as opened:
        _print_each(of_each(opened, logs or (), wanted, lambda log: purged(opened, log)))


def compress(
    logs: LogsArgument = None,
    every: AllOption = False,
    prefix: PrefixOption = None,
    codec: Annotated[
        CopyCodec | None,
        typer.Option("--codec", help="For logs whose configuration has no copy_codec.", show_default=False),
    ] = None,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Write a compressed copy beside each completed segment.

    Where there is none yet; writers do the same if the log's copy_codec says so. The raw files go when the log's
    raw_retention_hours says so."""
    from scribengin_tools.logs.administration import CODECS, compressed, of_each

    wanted = wanted_prefix(logs, every, prefix)
    chosen = None if codec is None else CODECS[codec.value]
    with opened_namespace(registry, namespace) as opened:
        _print_each(of_each(opened, logs or (), wanted, lambda log: compressed(opened, log, chosen)))


def offload(
    logs: LogsArgument = None,
    every: AllOption = False,
    prefix: PrefixOption = None,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Copy completed segments to cold storage, for logs whose configuration has a cold_url.

    Where there is no copy yet; writers do the same after every segment. The files in the store go when the log's
    hot_hours or hot_bytes_max says so, with `log purge` or the next segment."""
    from scribengin_tools.logs.administration import of_each, offloaded

    wanted = wanted_prefix(logs, every, prefix)
    with opened_namespace(registry, namespace) as opened:
        _print_each(of_each(opened, logs or (), wanted, lambda log: offloaded(opened, log)))


def repair(
    logs: LogsArgument = None,
    every: AllOption = False,
    prefix: PrefixOption = None,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Copy what bookies that are gone had of completed segments to others.

    So that each has all its copies again. HDFS does that by itself, and on a directory there is one copy."""
    from scribengin_tools.logs.administration import of_each, repaired

    wanted = wanted_prefix(logs, every, prefix)
    with opened_namespace(registry, namespace) as opened:
        _print_each(of_each(opened, logs or (), wanted, lambda log: repaired(opened, log)))


def _print_each(found: Iterable[str | ScribenginError]) -> None:
    """Print what came of each log. Ends the command if anything was in the way of one: with 1, unless all of it was
    asked for wrongly."""
    codes = []
    for one in found:
        if isinstance(one, str):
            print(one)
        else:
            report(one)
            codes.append(one.exit_code)
    if codes:
        raise typer.Exit(min(codes))


def configure(
    log: LogArgument,
    settings: SetOption = None,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Change the configuration of a log, or show it.

    Key by key, with --set; without it, all of it is shown.

    Retention obeys from the next purge on, everything else from the next writer on."""
    from scribengin_tools.logs.administration import configured

    with opened_namespace(registry, namespace) as opened:
        config = configured(opened, log, given_values(settings)).model_dump(mode="json")
    if as_json:
        print_json(config)
    else:
        console().print(facts((key, _as_set(value)) for key, value in config.items()))


def _as_set(value: object) -> str:
    """A value as `--set` takes it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def readers(
    log: LogArgument,
    forget: Annotated[
        str | None,
        typer.Option("--forget", metavar="READER", help="Keep nothing for this reader any more.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Show the registered readers of a log.

    Where each stands, and how many records lie before it.

    What they have not read is neither truncated nor purged."""
    from scribengin.errors import ConfigInvalid
    from scribengin_tools.logs.positions import short

    with opened_namespace(registry, namespace) as opened:
        if forget is not None and not opened.unregister_reader(log, forget):
            known = ", ".join(opened.registered_readers(log)) or "none"
            raise ConfigInvalid(f"log '{log}' has no registered reader '{forget}' (there are: {known})")
        positions, lags = opened.registered_readers(log), opened.info(log).readers
    rows = [(reader, short(place), lags.get(reader)) for reader, place in positions.items()]
    if as_json:
        print_json([{"reader": reader, "position": place, "lag": lag} for reader, place, lag in rows])
    elif rows:
        console().print(table(("READER", "POSITION", ">RECORDS BEFORE IT"), rows))
    else:
        note(f"{log} has no registered readers")


def watch(
    prefix: PrefixArgument = "",
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Print logs as they come and go, until Ctrl-C.

    First all that there are, with a +; then those that come (+) and those that go (-)."""
    from scribengin_tools.logs.administration import watched

    with opened_namespace(registry, namespace) as opened:
        for sign, log in watched(opened, prefix):
            if as_json:
                print_json_line({"log": log, "exists": sign == "+"})
            else:
                print(f"{sign} {log}")
            sys.stdout.flush()


def seal(
    log: LogArgument,
    wait_s: WaitOption = 10.0,
    steal: StealOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """End a log: nothing can be written to it any more, by anybody.

    Readers get to its end, and are told that it is one."""
    with opened_namespace(registry, namespace, to_write=None if steal else log) as opened:
        if opened.info(log).head.end_of_stream:
            print(f"{log} was sealed before")
            return
        with opened.open_writer(log, timeout_s=wait_s, steal=steal) as writer:
            writer.mark_end_of_stream()
    print(f"sealed {log}")


def recover(
    log: LogArgument,
    wait_s: WaitOption = 10.0,
    steal: StealOption = False,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Complete the segment that a writer left unfinished, and take back what the registry does not name.

    And say what was found: records that are kept, a torn end, a staged round, files of a registry that went back.

    The next writer would do the same. A damaged segment is refused, and nothing of it is cut."""
    from scribengin.log.clients import recover_log
    from scribengin_tools.logs.administration import recovered_json, recovered_lines

    with opened_namespace(registry, namespace) as opened:
        found = recover_log(opened, log, timeout_s=wait_s, steal=steal)
    if as_json:
        print_json(recovered_json(log, found))
    else:
        for line in recovered_lines(log, found):
            print(line)


def copy(
    log: LogArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PATH",
            help="The namespace that gets the copy, as --namespace. It may be on another store.",
            show_default=False,
        ),
    ],
    to_name: Annotated[
        str | None,
        typer.Option("--as", metavar="LOG", help="What it is called there. Default: the same.", show_default=False),
    ] = None,
    settings: SetOption = None,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Copy a log into another namespace, also from one store to another.

    Every record stands there at the same place, so positions of the log hold in the copy.

    Nobody may write the log meanwhile. Registered readers are not taken along. With --set the copy is configured
    otherwise."""
    from scribengin_tools.logs.administration import copied

    with opened_namespace(registry, namespace) as opened, opened_namespace(registry, to) as target:
        print(copied(opened, log, target, to_name or log, given_values(settings)))
