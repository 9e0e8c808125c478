"""A user that comes later: what is open to all is told at every command, and `registry protect` makes it theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin_registry.contract import Registry
from scribengin_registry.errors import NotAuthorised
from scribengin_registry.opening import AUTH_VARIABLE, connect
from tests.integration.cli_runner import CommandLine

OPEN = "anybody may change /scribengin"


def test_a_user_that_comes_later(
    registry: Registry, line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.create("/scribengin/dataflows/a/config", b"{}", parents=True)
    assert OPEN not in line.ok("registry", "tree").err, "nobody relies on rights"
    assert "nobody's" in line("registry", "protect").err
    monkeypatch.setenv(AUTH_VARIABLE, f"${{file:{tmp_path}/login}}")
    assert "cannot be read" in line("registry", "tree").err
    (tmp_path / "login").write_text("ada:secret\n")
    assert OPEN in line.ok("registry", "tree").err
    assert "that anybody could change" in line.ok("registry", "protect").out
    assert line.ok("registry", "protect").out == "nothing was open to all\n"
    assert OPEN not in line.ok("registry", "tree").err
    with pytest.raises(NotAuthorised):
        registry.set("/scribengin/dataflows/a/config", b"-Xrun")
    line.ok("registry", "get", "/scribengin/dataflows/a/config")
    with connect(line.hosts, auth="ada:secret") as ada:  # nobody else can tidy up
        for name in ada.children("/"):
            ada.delete(f"/{name}", recursive=True)
