"""What the check in a container finds, and what it says where something is missing. The container itself is tested with
the whole way to a running dataflow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.launcher.yarn.application_master.preflight import PreflightCheck, PreflightRequest
from scribengin.log import LogNamespace
from scribengin.operations.submit.preflight_checks import checks
from scribengin_registry.contract import Registry

pytestmark = pytest.mark.usefixtures("registry_hosts")  # what is checked is whether it is reached
FLOW = {
    "name": "loud",
    "sources": {"words": {"kind": "log", "logs": "words/*"}},
    "sinks": {"loud": {"kind": "log", "log": "loud"}},
    "sql": "SELECT payload FROM words",
}


def found(hosts: str, directory: Path, **changes: Any) -> dict[str, PreflightCheck]:
    """What the check finds here, by name."""
    asked = {"python": "3.11", "config": FLOW, "packages": ["pyarrow"], "sent_ms": SYSTEM_CLOCK.now_ms(), **changes}
    done = list(checks(PreflightRequest(registry=hosts, **asked), directory))
    return {check.name: check for check in done}


def running_python() -> str:
    """As a request has it."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def test_where_everything_is_there_everything_is_ok(registry: Registry, tmp_path: Path) -> None:
    LogNamespace.bind("/logs", tmp_path / "logs", registry=registry)
    with LogNamespace.open("/logs", registry=registry) as namespace:
        namespace.create("words/0")
    before = registry.children("/")
    seen = found(registry.hosts, tmp_path, python=running_python())
    assert [name for name, check in seen.items() if not check.ok] == []
    assert list(seen) == ["python", "packages", "java", "disk", "clock", "registry", "source words", "sink loud"]
    assert seen["source words"].found == "1 stream"
    assert registry.children("/") == before


def test_what_is_missing_is_named_with_the_next_step(registry: Registry, tmp_path: Path) -> None:
    late_ms = SYSTEM_CLOCK.now_ms() + 60_000
    seen = found(registry.hosts, tmp_path, python="2.7", packages=["pyarrow", "no_such_package"], sent_ms=late_ms)
    missing = {name: check for name, check in seen.items() if not check.ok}
    assert list(missing) == ["python", "packages", "clock", "source words", "sink loud"]
    assert "masters and workers need Python 2.7" in missing["python"].next_step
    assert "no_such_package" in missing["packages"].found
    assert "behind the submitter's" in missing["clock"].found
    assert "bind" in missing["source words"].found
    assert all(check.next_step for check in missing.values())


def test_a_registry_that_nobody_answers_at_is_named_and_the_rest_not_tried(tmp_path: Path) -> None:
    seen = found("127.0.0.1:1", tmp_path)
    assert not seen["registry"].ok
    assert "open its port" in seen["registry"].next_step
    assert "source words" not in seen


def test_a_kind_that_nobody_has_installed_is_the_dataflows_trouble(registry: Registry, tmp_path: Path) -> None:
    flow = {**FLOW, "sources": {"words": {"kind": "carrier-pigeon"}}}
    seen = found(registry.hosts, tmp_path, config=flow)
    assert not seen["dataflow"].ok
    assert "carrier-pigeon" in seen["dataflow"].found
