"""Exactly once on HDFS: the harness of test_round_crashes, for a flow whose files go to partitions on a real HDFS.

Each round writes to a log and to two partitions, compressed; at the end they are merged. The final files are read by
hdfs-native and gzip alone. The normal run tries one or two stops, drawn with a seed that stands here, and two at which
a stalled writer has a file open; `--full` tries all of them.
"""

from __future__ import annotations

import gzip
import json
import random
import uuid
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from hdfs_native import Client

from scribengin_dev.servers.hadoop.hdfs import HdfsServers
from scribengin_registry.embedded import EmbeddedZooKeeper
from scribengin_registry.opening import connect
from tests.crash.comparing import numbered
from tests.crash.flow import Place, expected, outputs, prepare
from tests.crash.places import record
from tests.crash.processes import finish, own_to_the_end, resume, start_owner, wait_until_stopped
from tests.crash.stops import COMMITTED, FINISHED, KILLED, UNDECIDED, Stop, stops_to_try

pytestmark = pytest.mark.timeout(1800)
SEED = 5
TASKS = 1
SOME_OR_ALL = pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.full)])
WITH_A_FILE_OPEN = ("files.sync:after", "files.merge_write:before")


@pytest.fixture
def new_place(zookeeper: EmbeddedZooKeeper, hdfs: HdfsServers, tmp_path: Path) -> Callable[[], Place]:
    """Make a place of its own for each case: a registry chroot, directories here and on HDFS, a filled input log."""

    def make() -> Place:
        name = uuid.uuid4().hex[:12]
        url = f"{hdfs.url}/crash/{name}"
        place = Place(f"{zookeeper.hosts}/crash-{name}", str(tmp_path / name), TASKS, files_url=url)
        with connect(place.hosts, session_timeout_s=100) as registry:
            prepare(place, registry)
        return place

    return make


def wrong(place: Place, case: object) -> list[str]:
    """What is not as in an undisturbed run, for our readers and for others: empty when everything is there once, and in
    order where an order is promised (within a partition)."""
    with connect(place.hosts, session_timeout_s=100) as registry:
        found = outputs(registry, place)
    wanted = expected(place)
    problems = [] if found["even/0"] == wanted["even/0"] else [f"{case}: the log holds {len(found['even/0'])} records"]
    buckets: dict[str, list[str]] = defaultdict(list)
    for row in wanted["odd/0"]:
        buckets[f"bucket={row['n'] % 4}"].append(numbered(row))
    seen = {name: [numbered(row) for row in rows] for name, rows in final_rows(place).items()}
    if seen != buckets:
        problems.append(f"{case}: the final files hold {seen}")
    ours = sorted(numbered(row) for row in found["odd/0"])
    if ours != sorted(numbered(row) for row in wanted["odd/0"]):
        problems.append(f"{case}: our own readers see {ours}")
    return problems


def final_rows(place: Place) -> dict[str, list[dict[str, object]]]:
    """The records of each partition's final files, by HDFS's own client."""
    url, _, path = place.files_url.removeprefix("hdfs://").partition("/")
    client = Client(f"hdfs://{url}")
    rows: dict[str, list[dict[str, object]]] = defaultdict(list)
    for status in sorted(client.list_status(f"/{path}", True), key=lambda status: status.path):
        partition, name = status.path.removeprefix(f"/{path}/").rpartition("/")[::2]
        if name.startswith("part-") and not status.isdir and not partition.startswith("_"):
            lines = gzip.decompress(client.read(status.path).read()).decode().splitlines()
            rows[partition] += [json.loads(line) for line in lines]
    return rows


def drawn(stops: list[Stop], count: int, everywhere: bool) -> list[Stop]:
    """All, or `count` of those that concern files, the same ones in every run."""
    files = [stop for stop in stops if stop.name.startswith("files.")]
    return stops if everywhere else random.Random(SEED).sample(files, count)


@SOME_OR_ALL
def test_a_killed_owner_is_taken_over_from_wherever_it_stopped(
    new_place: Callable[[], Place], everywhere: bool
) -> None:
    problems = []
    for stop in drawn(stops_to_try(record(new_place(), 1)), 2, everywhere):
        place = new_place()
        assert finish(start_owner(place, 1, stop)) == KILLED, stop
        assert own_to_the_end(place, 2) == FINISHED, stop
        problems += wrong(place, stop)
    assert not problems, "\n".join(problems)


@SOME_OR_ALL
def test_a_recovery_that_is_killed_is_recovered_from(new_place: Callable[[], Place], everywhere: bool) -> None:
    def crashed(base: Stop) -> Place:
        place = new_place()
        assert finish(start_owner(place, 1, base)) == KILLED
        return place

    problems = []
    for base in (COMMITTED, UNDECIDED) if everywhere else (COMMITTED,):
        passed = record(crashed(base), 2)
        recovery = passed[: passed.index("round.commit:before")]
        for stop in drawn(stops_to_try(recovery), 1, everywhere):
            place = crashed(base)
            assert finish(start_owner(place, 2, stop)) == KILLED, (base, stop)
            assert own_to_the_end(place, 3) == FINISHED, (base, stop)
            problems += wrong(place, (base, stop))
    assert not problems, "\n".join(problems)


@SOME_OR_ALL
def test_a_stalled_owner_that_resumes_after_another_took_over_writes_nothing(
    new_place: Callable[[], Place], everywhere: bool
) -> None:
    problems = []
    for stop in stops_to_try(record(new_place(), 1)):
        if everywhere or stop.name in WITH_A_FILE_OPEN:
            place = new_place()
            stalled = start_owner(place, 1, Stop(stop.name, "pause", stop.occurrence))
            assert wait_until_stopped(stalled), stop
            assert own_to_the_end(place, 2) == FINISHED, stop
            resume(stalled)
            finish(stalled)
            assert own_to_the_end(place, 3) == FINISHED, stop
            problems += wrong(place, stop)
    assert not problems, "\n".join(problems)
