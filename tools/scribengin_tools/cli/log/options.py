"""Arguments and options that the commands of `scribengin log` share."""

from __future__ import annotations

from typing import Annotated

import typer

PANEL_LOGS, PANEL_RECORDS, PANEL_INSPECTION, PANEL_UPKEEP = "Logs", "Records", "Inspection", "Maintenance"
"""How the commands stand in groups in `scribengin log --help`."""
LogArgument = Annotated[str, typer.Argument(metavar="LOG", help="The log, as in flights/0.", show_default=False)]
LogsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[LOG]...", help="The logs, as in flights/0.", show_default=False)
]
AllOption = Annotated[bool, typer.Option("--all", help="All logs of the namespace.")]
PrefixOption = Annotated[
    str | None, typer.Option("--prefix", metavar="TEXT", help="All logs that begin with this.", show_default=False)
]
PrefixArgument = Annotated[str, typer.Argument(metavar="PREFIX", help="Only logs that begin with this.")]
QuickOption = Annotated[bool, typer.Option("--quick", help="Check the headers of entries only.")]
RecordsOption = Annotated[
    int | None, typer.Option("-n", "--records", min=1, metavar="N", help="End after N records.", show_default=False)
]
FromOption = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="PLACE",
        help="earliest, latest (the end) or last (the last record). Or a DLSN as in 1/0/0, txid:N or sequence:N. Or a "
        "time as in 2026-01-31T12:00, or how long ago as in 15m.",
    ),
]
ChannelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--channel",
        metavar="PREFIX",
        help="Only records whose channel begins with this. Repeatable.",
        show_default=False,
    ),
]
FromPlaceOption = Annotated[
    str | None,
    typer.Option("--from", metavar="DLSN", help="Only from here on, as in 1/0/0. Default: all.", show_default=False),
]
ToPlaceOption = Annotated[
    str | None,
    typer.Option("--to", metavar="DLSN", help="Only what comes before this place. Default: all.", show_default=False),
]
WaitOption = Annotated[float, typer.Option("--wait-s", min=0, help="How long to wait for another writer to leave.")]
StealOption = Annotated[bool, typer.Option("--steal", help="Take the log from a writer that does not leave: fence it.")]


def wanted_prefix(logs: list[str] | None, every: bool, prefix: str | None) -> str | None:
    """What the names of logs shall begin with beside those that are named; None: only those. Raises ConfigInvalid."""
    from scribengin.errors import ConfigInvalid

    if not (logs or every or prefix is not None):
        raise ConfigInvalid("name the logs to look at, or say --all or --prefix TEXT")
    return "" if every else prefix
