"""A dataflow as a real skein application: everything arrives exactly once, also when skein's own application master
dies and takes all that runs with it: what the next one starts goes by the registry.

One dataflow lives through all of it, step by step; the last steps kill it, start it again and stop it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.launcher.skein.client import attempt_of
from scribengin_dev.servers.hadoop.yarn import YarnServers
from scribengin_registry.embedded import EmbeddedZooKeeper
from tests.integration.cluster import Cluster
from tests.integration.launcher.shipped_flow import feed, submit_shipped
from tests.integration.yarn_cluster import YarnFlow, yarn_cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
LOGS = ("in/0", "in/1")
DIFFERENCES = """
import sys
from pathlib import Path
import skein
from skein.proto import ApplicationSpec
message = ApplicationSpec.FromString(Path(sys.argv[1]).read_bytes())
sent = skein.ApplicationSpec.from_protobuf(message)
sent.max_attempts = message.max_attempts  # which from_protobuf takes for 1, whatever it is
printed = skein.ApplicationSpec.from_yaml(sys.stdin.read())
for name in ("name", "queue", "node_label", "tags", "max_attempts"):
    if getattr(sent, name) != getattr(printed, name):
        print(name, getattr(sent, name), getattr(printed, name))
scripts = {path.stem: path for path in map(Path, sys.argv[2:])}
assert set(sent.services) == set(printed.services) == set(scripts) == {"master", "worker"}
for name, service in printed.services.items():
    there = sent.services[name]
    there.env.pop("LANG", None)  # which skein takes from whoever submits
    for word in ("instances", "max_restarts", "allow_failures", "resources", "env"):
        if getattr(there, word) != getattr(service, word):
            print(name, word, getattr(there, word), getattr(service, word))
    script = scripts[name].read_text()  # as a container has it
    if script != service.script:
        print(name, "script", script, service.script)
    files = {link: file.source for link, file in there.files.items() if not link.startswith(".skein")}
    if files != {link: file.source for link, file in service.files.items()}:
        print(name, files, service.files)
"""


@pytest.fixture(scope="module")
def cluster(
    yarn: YarnServers, zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    with yarn_cluster(yarn, zookeeper.hosts, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def flow(cluster: Cluster, yarn: YarnServers, tmp_path_factory: pytest.TempPathFactory) -> YarnFlow:
    feed(cluster, LOGS)
    return submit_shipped(
        cluster,
        yarn,
        tmp_path_factory.mktemp("shipped"),
        launcher="skein",
        workers=1,
        yarn={"python": {"path": sys.executable}},
    )


def skein_master(flow: YarnFlow) -> int:
    """The process of skein's application master, once there is one."""

    def masters() -> list[int]:
        ours = set(flow.yarn.container_processes())
        commands = {process.pid: process.info["cmdline"] or [""] for process in psutil.process_iter(["cmdline"])}
        return [pid for pid in ours & commands.keys() if "com.anaconda.skein.ApplicationMaster" in commands[pid]]

    return flow.wait_for_process(masters, "one process of skein's application master")


def localized(flow: YarnFlow, application: str, name: str) -> Path:
    """A file of that application as a container has it; looked for again, as directories vanish under the walk."""
    found: list[Path] = []

    def is_there() -> bool:
        with suppress(FileNotFoundError):
            found.extend(flow.yarn.folder.glob(f"nodemanager-*/local/**/appcache/{application}/**/{name}"))
        return bool(found)

    flow.wait(is_there, f"{name} of {application}")
    return found[0]


def attempt_of_skein(flow: YarnFlow) -> int:
    """Which attempt of the application runs, by the name of its master's container."""
    return attempt_of(Path(psutil.Process(skein_master(flow)).cwd()).name)


def since(killed_ms: int, what: str) -> None:
    """Print how long something took, for whoever runs this with -s; on a busy machine it says nothing."""
    print(f"{what}: {(SYSTEM_CLOCK.now_ms() - killed_ms) / 1000:.1f} s")


@pytest.mark.full
def test_a_dataflow_lives_as_a_skein_application_through_kills_and_a_restart(flow: YarnFlow, cluster: Cluster) -> None:
    a_dataflow_with_a_package_comes_up_as_a_skein_application(flow)
    what_the_command_line_prints_is_what_was_submitted(flow)
    a_killed_worker_is_replaced(flow, cluster)
    a_killed_master_is_replaced_and_its_workers_never_stop(flow, cluster)
    skeins_own_master_takes_all_with_it_and_the_next_attempt_goes_on_from_the_registry(flow, cluster)
    status_and_logs_show_the_application_and_its_processes(flow)
    kill_ends_everything_also_where_the_master_hangs(flow)
    started_again_it_goes_on_where_it_was_and_its_end_is_the_applications(flow, cluster)


def a_dataflow_with_a_package_comes_up_as_a_skein_application(flow: YarnFlow) -> None:
    flow.wait_until_delivered(*LOGS)
    flow.wait_for_workers(1)
    flow.wait_for_state("running")
    (application,) = flow.applications()
    wanted = {"queue": "root.second", "applicationType": "skein", "name": "flow", "state": "RUNNING"}
    assert {name: application[name] for name in wanted} == wanted


def what_the_command_line_prints_is_what_was_submitted(flow: YarnFlow) -> None:
    descriptor = flow.cluster.home / "flow.json"
    descriptor.write_text(flow.config.model_dump_json())
    printed = flow.command("yarn", "spec", str(descriptor))
    (application,) = flow.applications()
    files = [str(localized(flow, application["id"], name)) for name in (".skein.proto", "master.sh", "worker.sh")]
    assert flow.run_with(printed, "-c", DIFFERENCES, *files) == ""


def a_killed_worker_is_replaced(flow: YarnFlow, cluster: Cluster) -> None:
    (victim,) = flow.ready_workers()
    feed(cluster, LOGS)
    killed_ms = SYSTEM_CLOCK.now_ms()
    os.kill(flow.worker_pids()[victim], signal.SIGKILL)
    flow.wait_until_delivered(*LOGS)
    since(killed_ms, "worker killed -> all delivered")
    flow.wait_until_replaced(victim, workers=1)
    flow.wait_for_event(victim, "SIGKILL")


def a_killed_master_is_replaced_and_its_workers_never_stop(flow: YarnFlow, cluster: Cluster) -> None:
    workers, leader = flow.worker_pids(), flow.status.master
    killed_ms = SYSTEM_CLOCK.now_ms()
    os.kill(flow.master_pid(), signal.SIGKILL)
    feed(cluster, LOGS)
    flow.wait_until_delivered(*LOGS)
    flow.wait(lambda: flow.status.master not in (None, leader), "the next master to lead")
    since(killed_ms, "master killed -> the next one leads")
    assert flow.worker_pids() == workers
    assert [app["state"] for app in flow.applications()] == ["RUNNING"]


def skeins_own_master_takes_all_with_it_and_the_next_attempt_goes_on_from_the_registry(
    flow: YarnFlow, cluster: Cluster
) -> None:
    ours, (victim,) = flow.processes(), flow.ready_workers()
    before = [process for process in psutil.process_iter() if process.pid in ours]
    feed(cluster, LOGS)
    killed_ms = SYSTEM_CLOCK.now_ms()
    os.kill(skein_master(flow), signal.SIGKILL)
    flow.wait(lambda: not any(process.is_running() for process in before), "all of the first attempt to end")
    feed(cluster, LOGS)
    flow.wait_until_delivered(*LOGS)
    since(killed_ms, "skein's application master killed -> all delivered")
    flow.wait_until_replaced(victim, workers=1)
    assert [app["state"] for app in flow.applications()] == ["RUNNING"]
    assert attempt_of_skein(flow) == 2


def status_and_logs_show_the_application_and_its_processes(flow: YarnFlow) -> None:
    (application,) = flow.applications()
    status = flow.command("status", "flow")
    assert f"{application['id']}, RUNNING" in status, status
    said = flow.command("logs", "flow", "--lines", "3")
    for name in (*flow.ready_workers(), flow.status.master, f"skein attempt {attempt_of_skein(flow)}"):
        assert f"== {name} on localhost:" in said, (name, said)


def kill_ends_everything_also_where_the_master_hangs(flow: YarnFlow) -> None:
    psutil.Process(flow.master_pid()).suspend()
    said = flow.command("kill", "flow")
    assert "application_" in said, said
    assert flow.processes() == []
    assert [app["state"] for app in flow.applications()] == ["KILLED"]
    assert flow.status.state == "killed"


def started_again_it_goes_on_where_it_was_and_its_end_is_the_applications(flow: YarnFlow, cluster: Cluster) -> None:
    feed(cluster, LOGS)
    flow.command("start", "flow")
    flow.wait_until_delivered(*LOGS)
    flow.edit(desired_state="stopped")
    flow.wait_for_state("stopped")
    flow.wait(lambda: flow.applications()[-1]["state"] == "FINISHED", "the application to end")
    assert [app["finalStatus"] for app in flow.applications()] == ["KILLED", "SUCCEEDED"]
    flow.wait(lambda: not flow.processes(), "all processes to leave")
