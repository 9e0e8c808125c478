"""What the demo and the benchmarks run on is closed to other users of the machine, as the sandbox is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scribengin_dev.harness.installation import embedded_place
from scribengin_dev.soak.chain import soak_place
from scribengin_registry.errors import NotAuthorised
from scribengin_registry.opening import AUTH_VARIABLE, connect


def test_only_the_demo_and_what_it_launches_change_its_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AUTH_VARIABLE, "somebody:else")
    with embedded_place(tmp_path) as place:
        assert os.environ[AUTH_VARIABLE] == f"${{file:{tmp_path}/credentials}}", "containers inherit it"
        with connect(place.registry.hosts) as container:
            assert not container.is_open("/logs")
            container.create("/logs/mine")
        with connect(place.registry.hosts, auth="somebody:else") as stranger, pytest.raises(NotAuthorised):
            stranger.create("/logs/theirs")
    assert os.environ[AUTH_VARIABLE] == "somebody:else"


def test_the_registry_of_a_soak_belongs_to_its_own_user(tmp_path: Path) -> None:
    with soak_place(tmp_path) as place:
        with connect(place.registry.hosts, auth="somebody:else") as stranger, pytest.raises(NotAuthorised):
            stranger.create("/logs/theirs", b"")
        place.registry.create("/logs/mine", b"")
