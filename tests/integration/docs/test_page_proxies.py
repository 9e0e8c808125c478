"""The page on proxies, run as it is printed."""

from __future__ import annotations

from pathlib import Path

from scribengin.base.text.yaml_text import parse_yaml
from scribengin.proxy import ProxyConfig
from scribengin_registry.contract import Registry
from tests.integration.docs.pages import end_background, stand_in_for_sandbox, terminal_in


def test_proxies_run_as_they_are_printed(tmp_path: Path, registry: Registry) -> None:
    with terminal_in(tmp_path) as terminal:
        stand_in_for_sandbox(terminal, registry)
        try:
            terminal.run_page("docs/guide/proxies.md")
        finally:
            end_background(terminal)
    said = {
        name: ProxyConfig.parse(parse_yaml((tmp_path / "clone" / name).read_text(), source=name), source=name)
        for name in ("proxy.yaml", "limited.yaml")
    }
    assert said["proxy.yaml"].host == "0.0.0.0"
    assert not said["proxy.yaml"].insecure
    assert said["limited.yaml"].log_rates.records_s_hard == 100_000
