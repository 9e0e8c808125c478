"""Whatever an operator finds out with DistributedLog's own tool, ours tells, too."""

from __future__ import annotations

import pytest
import typer

from scribengin_tools.cli import main as cli

# DistributedLog's `dlog tool`, `dlog admin`, `dlog local` and `dbench` -> ours, with the options that it takes.
LIKE: dict[str, tuple[str, ...]] = {
    "create": ("log", "create"),
    "list": ("log", "list"),
    "show": ("log", "inspect", "--segment"),
    "count": ("log", "count", "--from", "--to"),
    "dump": ("log", "dump", "--from", "--txid-from", "--records"),
    "inspect": ("log", "inspect", "--all"),
    "inspectstream": ("log", "inspect", "--entries"),
    "truncate": ("log", "purge", "--prefix"),
    "truncate_stream": ("log", "truncate", "--before"),
    "delete": ("log", "delete"),
    "delete_subscriber": ("log", "readers", "--forget"),
    "readlac": ("log", "info", "--json"),
    "readentries": ("log", "inspect", "--entries", "--segment"),
    "findledger": ("log", "inspect", "--segment"),
    "recoverledger": ("log", "recover", "--steal"),
    "watch": ("log", "watch"),
    "audit_ledgers": ("log", "inspect", "--all"),
    "audit_dl_space": ("log", "list", "--json"),
    "serialize_dlsn": ("log", "dlsn", "--json"),
    "deserialize_dlsn": ("log", "dlsn", "--json"),
    "admin bind": ("log", "bind"),
    "admin dlck": ("log", "verify", "--all"),
    "admin repairseqno": ("log", "recover"),
    "local": ("sandbox",),
    "dbench": ("log", "bench"),
}


@pytest.mark.parametrize("theirs", LIKE)
def test_every_command_of_distributedlogs_tool_has_its_like(theirs: str) -> None:
    """DistributedLog's TestDistributedLogTool."""
    words = [word for word in LIKE[theirs] if not word.startswith("--")]
    command = typer.main.get_command(cli.app)
    for word in words:
        command = command.commands[word]  # type: ignore[attr-defined]  # a group has commands
    options = {name for parameter in command.params for name in parameter.opts}
    assert options >= {word for word in LIKE[theirs] if word.startswith("--")}
