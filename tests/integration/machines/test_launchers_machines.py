"""The launchers of YARN and skein over machines: what is held on one host holds where master, containers and registry
are each on another one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from scribengin_dev.servers.hadoop.yarn import YarnServers
from scribengin_dev.servers.machine_room import MachineRoom
from tests.integration.yarn_cluster import verdict_of

pytestmark = [pytest.mark.full, pytest.mark.spark, pytest.mark.servers, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineRoom]:
    with MachineRoom(tmp_path_factory.mktemp("room"), 3) as made:
        yield made


@pytest.fixture(scope="module")
def machines_yarn(room: MachineRoom) -> YarnServers:
    """A YARN with a NodeManager and a DataNode on each machine."""
    return room.start_yarn(room.start_hdfs())


@pytest.fixture
def machines_registry(room: MachineRoom) -> str:
    """A place of the test's own in the registry of the machine that leads."""
    return f"{room.zookeeper.hosts}/test-{uuid.uuid4().hex[:12]}"


def test_the_launcher_keeps_the_launcher_contract_over_machines(
    machines_yarn: YarnServers, machines_registry: str, tmp_path: Path
) -> None:
    held = verdict_of("yarn", "yarn_conformance.py", machines_yarn, machines_registry, tmp_path, attempts=1)
    assert held == "held"


def test_whatever_step_of_a_launch_a_master_dies_at_the_next_one_knows_on_another_machine(
    machines_yarn: YarnServers, machines_registry: str, tmp_path: Path
) -> None:
    held = verdict_of("yarn", "yarn_crashes.py", machines_yarn, machines_registry, tmp_path, attempts=10)
    assert held == "held"


def test_the_launcher_of_skein_keeps_the_launcher_contract_over_machines(
    machines_yarn: YarnServers, machines_registry: str, tmp_path: Path
) -> None:
    held = verdict_of("skein", "skein_conformance.py", machines_yarn, machines_registry, tmp_path, attempts=1)
    assert held == "held"
