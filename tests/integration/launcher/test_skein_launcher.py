"""The launcher of skein: the launcher contract, held by the master of a real skein application; and masters that die
in the middle of a launch, at every step of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scribengin_dev.servers.hadoop.yarn import YarnServers
from tests.integration.launcher.yarn_conformance import CONTRACT_ALONE
from tests.integration.yarn_cluster import verdict_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_the_launcher_keeps_the_launcher_contract(yarn: YarnServers, registry_hosts: str, tmp_path: Path) -> None:
    assert verdict_of("skein", "skein_conformance.py", yarn, registry_hosts, tmp_path, 1, CONTRACT_ALONE) == "held"


@pytest.mark.full
def test_and_a_worker_of_whose_end_it_is_told_late_or_beside_a_killed_one_is_known_to_have_ended(
    yarn: YarnServers, registry_hosts: str, tmp_path: Path
) -> None:
    assert verdict_of("skein", "skein_conformance.py", yarn, registry_hosts, tmp_path, 1) == "held"


@pytest.mark.full
def test_whatever_step_of_a_launch_a_master_dies_at_the_next_one_knows(
    yarn: YarnServers, registry_hosts: str, tmp_path: Path
) -> None:
    assert verdict_of("skein", "skein_crashes.py", yarn, registry_hosts, tmp_path, attempts=10) == "held"
