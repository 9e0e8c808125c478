"""The launcher of YARN: the launcher contract, held inside of a real application master; and masters that die in the
middle of a launch, at every step of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin_dev.servers.hadoop.yarn import YarnServers
from tests.integration.launcher.yarn_crashes import A_FEW, STOPS
from tests.integration.yarn_cluster import verdict_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_the_launcher_keeps_the_launcher_contract(yarn: YarnServers, registry_hosts: str, tmp_path: Path) -> None:
    assert verdict_of("yarn", "yarn_conformance.py", yarn, registry_hosts, tmp_path, attempts=1) == "held"


@pytest.mark.parametrize("stops", [A_FEW, pytest.param(STOPS, marks=pytest.mark.full)], ids=["a few", "all"])
def test_whatever_step_of_a_launch_a_master_dies_at_the_next_one_knows(
    yarn: YarnServers, registry_hosts: str, tmp_path: Path, stops: tuple[str, ...]
) -> None:
    assert verdict_of("yarn", "yarn_crashes.py", yarn, registry_hosts, tmp_path, 10, *stops) == "held"
