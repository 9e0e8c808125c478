"""What a command says to whoever does not wait for a chain any more."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from scribengin.operations import names
from scribengin.operations.chain import lifecycle
from scribengin_tools.cli import main as cli
from scribengin_tools.cli.dataflow import end, operate


@pytest.mark.parametrize(("command", "goes_on"), [("stop", "stopping"), ("pause", "pausing")])
def test_whoever_waits_no_longer_hears_what_goes_on_and_how_to_finish(
    command: str, goes_on: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    for module in (end, operate):
        monkeypatch.setattr(module, "connected", lambda _hosts: nullcontext())
    monkeypatch.setattr(names, "chain_of", lambda _session, name: SimpleNamespace(name=name, members=()))
    monkeypatch.setattr(lifecycle, f"{command}_chain", interrupted)
    assert cli.run([command, "pair"]) == 130
    err = capsys.readouterr().err
    assert f"what of chain 'pair' was asked to {command} goes on {goes_on}, and the rest runs on" in err
    assert "`scribengin status pair`" in err
    assert f"`scribengin {command} pair`" in err
