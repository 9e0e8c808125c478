"""How the commands stand in groups in `scribengin --help`, an example of each, and which one a line names."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence

import typer
from typer.main import get_command_name
from typer.models import CommandInfo

PANELS: dict[str, tuple[str, ...]] = {
    "Begin": ("sandbox", "explain", "submit", "schema"),
    "Look": ("list", "status", "history", "logs", "state", "monitor", "web", "verify"),
    "Run": ("start", "stop", "pause", "resume", "restart", "kill", "revive"),
    "Change": ("config", "scale", "rebalance", "rewind", "release-holds", "delete"),
    "Other things": ("proxy", "dafka", "log", "registry", "yarn"),
}
EXAMPLES: dict[str, str] = {
    "sandbox": "sandbox --dir ./sandbox --port 2181",
    "explain": "explain dataflows/heat_alarm --set workers=2",
    "submit": "submit dataflows/heat_alarm --wait",
    "schema": "schema > dataflow.schema.json",
    "list": "list --json",
    "status": "status heat_alarm --watch",
    "history": "history heat_alarm",
    "logs": "logs heat_alarm --worker worker-1 --follow",
    "state": "state carrier_delays --operator aggregate --key carrier=AA",
    "monitor": "monitor heat_alarm --once --json",
    "web": "web --port 8480 --write",
    "proxy": "proxy --port 8490",
    "verify": "verify orders --generate 1000",
    "start": "start heat_alarm --wait",
    "stop": "stop heat_alarm",
    "pause": "pause heat_alarm",
    "resume": "resume heat_alarm --wait",
    "restart": "restart heat_alarm dataflows/heat_alarm",
    "kill": "kill heat_alarm",
    "revive": "revive",
    "scale": "scale heat_alarm --workers 2 --tasks 4",
    "rebalance": "rebalance heat_alarm",
    "rewind": "rewind heat_alarm --to 2h --yes",
    "release-holds": "release-holds heat_alarm",
    "delete": "delete heat_alarm",
    "config get": "config get heat_alarm round.records_max",
    "config set": "config set heat_alarm workers=2 round.records_max=5000",
    "config edit": "config edit heat_alarm",
    "config history": "config history heat_alarm",
    "config rollback": "config rollback heat_alarm 3",
    "log create": "log create readings/0 readings/1 --set retention_hours=72",
    "log list": "log list readings/",
    "log info": "log info readings/0",
    "log write": "log write readings/0 'one record' 'another one'",
    "log read": "log read readings/0 --from 1/0/0 -n 10",
    "log tail": "log tail readings/0 readings/1 --from 15m",
    "log delete": "log delete readings/0 readings/1",
    "log dump": "log dump readings/0 --from 1h --format jsonl -o out.jsonl",
    "log inspect": "log inspect readings/0 --segment 1 --entries",
    "log verify": "log verify --all --quick",
    "log count": "log count readings/0 --from 1/0/0",
    "log dlsn": "log dlsn 1/0/0",
    "log bind": "log bind ./logs",
    "log watch": "log watch readings/",
    "log configure": "log configure readings/0 --set retention_hours=24",
    "log readers": "log readers readings/0",
    "log truncate": "log truncate readings/0 --before 1/0/10",
    "log purge": "log purge readings/0",
    "log compress": "log compress readings/0",
    "log offload": "log offload readings/0",
    "log seal": "log seal readings/0",
    "log recover": "log recover readings/0",
    "log repair": "log repair --all",
    "log copy": "log copy readings/0 --to /on-hdfs",
    "log bench": "log bench --json",
    "dafka tower": "dafka tower",
    "dafka store": "dafka store --prefix first",
    "dafka write": "dafka write flights --min-acks 2",
    "dafka read": "dafka read flights --from earliest -n 10",
    "dafka keys": "dafka keys own.key",
    "dafka perf": "dafka perf --size 1000",
    "registry tree": "registry tree /scribengin --depth 3",
    "registry get": "registry get /scribengin/dataflows/heat_alarm/status",
    "registry protect": "registry protect /scribengin",
    "registry backup": "registry backup registry.backup",
    "registry restore": "registry restore registry.backup",
    "registry check": "registry check --repair",
    "yarn package": "yarn package",
    "yarn preflight": "yarn preflight dataflows/heat_alarm",
    "yarn spec": "yarn spec dataflows/heat_alarm",
    "yarn clean": "yarn clean",
}
"""The words behind `scribengin`, by command."""


def arrange(app: typer.Typer) -> None:
    """Give the commands of `app` their places and their examples. A command that has none fails here."""
    panel_of = {name: panel for panel, names in PANELS.items() for name in names}
    app.registered_commands.sort(key=lambda command: list(panel_of).index(str(command.name)))
    for command in app.registered_commands:
        command.rich_help_panel = panel_of[str(command.name)]
        command.epilog = epilog(str(command.name))
        command.help = _flowing(command)
    for group in app.registered_groups:
        group.rich_help_panel = panel_of[str(group.name)]
        for command in group.typer_instance.registered_commands if group.typer_instance else ():
            command.epilog = epilog(f"{group.name} {_name_of(command)}")
            command.help = _flowing(command)


def named_in(app: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """`app` without the commands that `words` do not begin with: itself, if they begin with none, as with an option. To
    build all of them, as typer does, takes longer than most of them run."""
    first = words[0] if words else ""
    commands = [command for command in app.registered_commands if _name_of(command) == first]
    groups = [copy.copy(group) for group in app.registered_groups if group.name == first]
    if not commands and not groups:
        return app
    for group in groups:
        assert group.typer_instance is not None
        group.typer_instance = named_in(group.typer_instance, words[1:])
    narrow = copy.copy(app)
    narrow.registered_commands = commands
    narrow.registered_groups = groups
    return narrow


def epilog(command: str) -> str:
    """What stands at the end of a command's help."""
    return f"Example: scribengin {EXAMPLES[command]}"


def _flowing(command: CommandInfo) -> str:
    """What the command's docstring says, a line a paragraph: the terminal has its own width."""
    text = command.help or inspect.getdoc(command.callback) or ""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _name_of(command: CommandInfo) -> str:
    return command.name or get_command_name(str(getattr(command.callback, "__name__", "")))
