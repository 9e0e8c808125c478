"""What can happen to a dataflow, as functions: each does its harm to a pipeline that runs, and mends what it broke.

`aftermath` is what can only be judged once everything has arrived.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from scribengin.testing.standstill import standing_still
from scribengin.testing.waiting import wait_until
from tests.faults.world import LIMIT_S, Pipeline
from tests.integration.yarn_cluster import YarnFlow

_TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
Fault = Callable[[Pipeline], Iterator[None]]
"""Strikes, yields while everything has to arrive, then looks at the aftermath."""


def worker(pipeline: Pipeline) -> Iterator[None]:
    """A worker's container, with SIGKILL."""
    flow, name, pid = _a_worker(pipeline)
    os.kill(pid, signal.SIGKILL)
    yield
    flow.wait_until_replaced(name, workers=1)


def master(pipeline: Pipeline) -> Iterator[None]:
    """The application master's container: its workers live on."""
    flow = pipeline.target
    workers, leader = flow.worker_pids(), flow.status.master
    os.kill(flow.master_pid(), signal.SIGKILL)
    yield
    flow.wait(lambda: flow.status.master not in (None, leader), "another master to lead")
    assert flow.worker_pids() == workers, "a worker was lost with its master"


def both(pipeline: Pipeline) -> Iterator[None]:
    """Master and worker at once."""
    flow, name, pid = _a_worker(pipeline)
    os.kill(flow.master_pid(), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    yield
    flow.wait_until_replaced(name, workers=1)


def node(pipeline: Pipeline) -> Iterator[None]:
    """A NodeManager: what runs on its node goes on, unknown to YARN, until it learns that it has been replaced."""
    yarn = pipeline.world.yarn
    flow, name, pid = _a_worker(pipeline)
    number = next(n for n in range(yarn.nodes) if pid in yarn.container_processes(n))
    orphans = set(yarn.container_processes(number))
    lost = yarn.node_id(number)
    yarn.kill_node(number)
    before = pipeline.rounds()
    pipeline.feed(2)
    wait_until(lambda: pipeline.rounds() > before, LIMIT_S, "the orphan to go on, or nothing has to be fenced")
    wait_until(lambda: yarn.node_states().get(lost) == "LOST", LIMIT_S, f"{lost} to be given up")
    flow.wait(lambda: any(worker != name for worker in flow.ready_workers()), "a worker elsewhere")
    yield
    for orphan in orphans & set(yarn.container_processes(number)):
        with suppress(ProcessLookupError):  # it has left by itself, or with its parent
            os.kill(orphan, signal.SIGKILL)
    yarn.start_node(number)


def broker(pipeline: Pipeline) -> Iterator[None]:
    """The Kafka broker, which comes back.

    Not between its word that a transaction is committed and the transaction's markers, which is some milliseconds: a
    lone broker of Kafka 4.3.1 that is back within its session takes the topics for deleted then, leaves the markers out
    (nine times in ten), and so loses what it has acknowledged. docs/internals/transaction-coordinator.md has more.
    """
    kafka = pipeline.world.kafka
    with standing_still(*[pid for flow in pipeline.flows for pid in flow.worker_pids().values()]):
        wait_until(lambda: "PrepareCommit" not in kafka.run(_TRANSACTIONS, ["list"]), LIMIT_S, "the markers")
        kafka.kill()
    kafka.start()
    yield


def data_node(pipeline: Pipeline) -> Iterator[None]:
    """One of two DataNodes; it comes back when all has arrived without it."""
    hdfs = pipeline.world.hdfs
    hdfs.kill_data_node(0)
    yield
    hdfs.start_data_node(0)


def zookeeper_leader(pipeline: Pipeline) -> Iterator[None]:
    """The leader of three ZooKeepers."""
    zookeeper = pipeline.world.zookeeper
    leader = zookeeper.leader()
    zookeeper.kill(leader)
    yield
    zookeeper.start_server(leader)


def stall(pipeline: Pipeline) -> Iterator[None]:
    """A worker that stands still for longer than its session, and then goes on, in the middle of its round, while
    others take its tasks over: it must not write."""
    flow, name, pid = _a_worker(pipeline)
    with standing_still(pid):
        flow.wait(lambda: not flow.view.lives(name), "the session of the stalled worker to end")
    yield
    wait_until(lambda: not psutil.pid_exists(pid), LIMIT_S, "the stalled worker to be gone")
    pipeline.compare()


FAULTS: tuple[Fault, ...] = (worker, master, both, stall, broker, zookeeper_leader, data_node, node)


@contextmanager
def struck(fault: Fault, pipeline: Pipeline) -> Iterator[None]:
    """While the block lasts the fault has struck; after it, what was broken is whole again."""
    steps = fault(pipeline)
    next(steps)
    yield
    next(steps, None)


def _a_worker(pipeline: Pipeline) -> tuple[YarnFlow, str, int]:
    flow = pipeline.target
    flow.wait_for_workers(1)
    name, pid = next(iter(flow.worker_pids().items()))
    return flow, name, pid
