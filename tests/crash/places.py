"""Places on a real ZooKeeper and real files, for owners that are processes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.opening import connect
from tests.crash import comparing
from tests.crash.flow import Place, prepare
from tests.crash.processes import finish, start_owner
from tests.crash.stops import FINISHED


@pytest.fixture
def new_place(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Callable[[int], Place]:
    """Make a place of its own for each case: a registry chroot, a directory, filled input logs."""

    def make(tasks: int) -> Place:
        name = uuid.uuid4().hex[:12]
        place = Place(f"{zookeeper.hosts}/crash-{name}", str(tmp_path / name), tasks)
        with connect(place.hosts, session_timeout_s=100) as registry:
            prepare(place, registry)
        return place

    return make


def record(place: Place, generation: int) -> list[str]:
    """The stops that an owner passes from here to the end, in order, with repetitions."""
    passed = Path(place.directory) / f"stops-{generation}"
    assert finish(start_owner(place, generation, record_to=passed)) == FINISHED
    return passed.read_text().split("\n")


def wrong(place: Place, case: object) -> list[str]:
    """What is not as in an undisturbed run."""
    with connect(place.hosts, session_timeout_s=100) as registry:
        return comparing.wrong(place, registry, case)
