"""`scribengin log inspect`, `verify`, `count`, `dlsn`: what a log holds, and whether it is sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scribengin.base.names import DEFAULT_NAMESPACE
from scribengin.base.text.counting import many
from scribengin_tools.cli.log.options import (
    PANEL_INSPECTION,
    PANEL_RECORDS,
    AllOption,
    FromPlaceOption,
    LogArgument,
    LogsArgument,
    PrefixOption,
    QuickOption,
    ToPlaceOption,
    wanted_prefix,
)
from scribengin_tools.cli.options import (
    JsonOption,
    NamespaceOption,
    RegistryOption,
    opened_namespace,
)
from scribengin_tools.rendering.text import console, facts, print_json, print_json_line, print_line

if TYPE_CHECKING:
    from scribengin.log import LogNamespace
    from scribengin_tools.logs.checks import LogCheck


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("inspect", rich_help_panel=PANEL_INSPECTION)(inspect)
    app.command("verify", rich_help_panel=PANEL_INSPECTION)(verify)
    app.command("count", rich_help_panel=PANEL_RECORDS)(count)
    app.command("dlsn", rich_help_panel=PANEL_INSPECTION)(dlsn)


def inspect(
    logs: LogsArgument = None,
    every: AllOption = False,
    prefix: PrefixOption = None,
    segment: Annotated[
        int | None,
        typer.Option("--segment", min=1, metavar="N", help="All about one segment.", show_default=False),
    ] = None,
    entries: Annotated[bool, typer.Option("--entries", help="List the entries, too.")] = False,
    quick: QuickOption = False,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Show what logs hold, and whether it is sound.

    Segments, entries, both checksums of each, gaps in numbers and sequence ids, what the registry says of them.

    Changes nothing; works on logs that are being written, or damaged.

    --json prints a list of logs; with --entries, a line for each entry instead."""
    from scribengin_tools.logs.checks import checks

    wanted = wanted_prefix(logs, every, prefix)
    with opened_namespace(registry, namespace) as opened:
        found = list(checks(opened, logs or (), wanted, bodies=not quick))
        if as_json and entries:
            _print_entries_json(opened, found, segment)
        elif as_json:
            _print_json(found, segment)
        else:
            _print_inspected(opened, found, segment, entries=entries)


def verify(
    logs: LogsArgument = None,
    every: AllOption = False,
    prefix: PrefixOption = None,
    quick: QuickOption = False,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Read logs from end to end; exit with 1 if anything is wrong.

    Both checksums of every entry, their order, sequence and transaction ids, and what the registry says of them.

    Changes nothing; works on logs that are being written."""
    from rich.text import Text

    from scribengin.base.clock import SYSTEM_CLOCK
    from scribengin_tools.logs.checks import checks
    from scribengin_tools.logs.rendering import check_json, findings_lines, verdict

    wanted = wanted_prefix(logs, every, prefix)
    begun_s = SYSTEM_CLOCK.monotonic_s()
    found: list[LogCheck] = []
    with opened_namespace(registry, namespace) as opened:
        for check in checks(opened, logs or (), wanted, bodies=not quick):
            found.append(check)
            if not as_json:
                out = console()
                out.print(Text(f"{check.log}  {'WRONG' if check.findings else 'ok'}  {many(check.records, 'record')}"))
                for line in findings_lines(check.findings, indent="  "):
                    out.print(line, soft_wrap=True)
    if as_json:
        print_json([check_json(check) for check in found])
    else:
        console().print(verdict(found, SYSTEM_CLOCK.monotonic_s() - begun_s), soft_wrap=True)
    if any(check.findings for check in found):
        raise typer.Exit(1)


def count(
    log: LogArgument,
    start: FromPlaceOption = None,
    end: ToPlaceOption = None,
    registry: RegistryOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
) -> None:
    """Print how many records a log holds now.

    In all, or between two places."""
    from scribengin_tools.logs.lines import counted
    from scribengin_tools.logs.positions import place_of

    first = None if start is None else place_of(start, "--from")
    behind = None if end is None else place_of(end, "--to")
    with opened_namespace(registry, namespace) as opened:
        print(counted(opened, log, first, behind))


def dlsn(
    place: Annotated[
        str, typer.Argument(metavar="DLSN", help="In any form: 1/0/0, printed, base64, hex.", show_default=False)
    ],
    as_json: JsonOption = False,
) -> None:
    """Show a DLSN in every form there is.

    The bytes of version 1 are 25, those of version 0 are 200; --json shows both, as base64 and as hex."""
    from scribengin_tools.logs.positions import dlsn_forms, place_of

    forms = dlsn_forms(place_of(place, "DLSN"))
    if as_json:
        print_json(forms)
    else:
        console().print(facts((name, form) for name, form in forms.items() if "v0" not in name))


def _print_inspected(namespace: LogNamespace, found: list[LogCheck], segment: int | None, *, entries: bool) -> None:
    from scribengin_tools.logs.rendering import entry_lines, log_parts, segment_parts

    out = console()
    for number, check in enumerate(found):
        if number:
            out.print()
        parts = log_parts(check) if segment is None else segment_parts(namespace, check, segment)
        for part in parts:
            out.print(part)
        if entries and check.metadata_check is not None:
            out.print()
            for line in entry_lines(namespace.inspect(check.log).entries(segment)):
                print_line(line)


def _print_json(found: list[LogCheck], segment: int | None) -> None:
    from scribengin_tools.logs.rendering import check_json

    shown = [check_json(check) for check in found]
    for log in shown:
        log["segments"] = [one for one in log["segments"] if segment in (None, one["segment"])]
    print_json(shown)


def _print_entries_json(namespace: LogNamespace, found: list[LogCheck], segment: int | None) -> None:
    from scribengin_tools.logs.rendering import entry_json

    for check in found:
        if check.metadata_check is not None:
            for descriptor, entry in namespace.inspect(check.log).entries(segment):
                print_json_line({"log": check.log, **entry_json(descriptor, entry)})
