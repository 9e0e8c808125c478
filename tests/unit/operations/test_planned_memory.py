"""How much memory a worker gets where nobody has said it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from scribengin.base.jvm import JvmUse
from scribengin.connectors import Environment
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.log import LogNamespace
from scribengin.log.store.opening import DEFAULT_STORE, add_store_kind, store_kind
from scribengin.operations.editing import with_values
from scribengin.operations.submit.explain import explain
from scribengin.operations.submit.memory import memory_note, planned, with_room
from scribengin.spark.session.memory import heap_mb, memory_mb_min
from scribengin.spark.transform.spec import CheckedPlan
from scribengin.testing.log_samples import bound_namespace
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE, MemoryKind
from scribengin.worker.host import beside_mb

BOOKKEEPER: dict[str, JvmUse] = {"sources.in": "all"}
BOTH: dict[str, JvmUse] = {**BOOKKEEPER, "sinks.out": "all"}
HDFS: dict[str, JvmUse] = {"sources.in": "open"}


def config_with(state_mb: int | None = None, **container: int) -> DataflowConfig:
    said: dict[str, Any] = {
        "name": "flow",
        "sources": {"in": {"kind": "log", "logs": "in/*"}},
        "sinks": {"out": {"kind": "log", "log": "out"}},
        "sql": "SELECT payload FROM in",
    }
    said |= {"container": container} if container else {}
    said |= {} if state_mb is None else {"state": {"memory_mb": state_mb}}
    return DataflowConfig.parse(said, source="a test")


@pytest.mark.parametrize(
    ("container", "with_jvms", "memory_mb"),
    [
        ({}, {}, 2048),
        ({}, BOOKKEEPER, 2560),
        ({"cores": 2}, BOTH, 3072),
        ({"cores": 2}, {}, 2048),
        ({"cores": 2}, HDFS, 2048),
        ({"memory_mb": 2048}, BOOKKEEPER, 2048),
        ({"memory_mb": 1024, "cores": 4}, BOOKKEEPER, 1024),
    ],
)
def test_processes_with_jvms_get_room_unless_the_user_says_how_much(
    container: dict[str, int], with_jvms: Mapping[str, JvmUse], memory_mb: int
) -> None:
    config = config_with(**container)
    made = planned(config, with_jvms)
    assert made.container.memory_mb == memory_mb
    assert made.container.cores == config.container.cores
    assert (made is config) == (memory_note(config, with_jvms) == "")


def test_it_is_said_why() -> None:
    assert memory_note(config_with(), BOTH) == (
        "512 of them for the JVMs that sources.in, sinks.out take; set container.memory_mb for another number"
    )


@pytest.mark.parametrize(
    ("state_mb", "container", "with_jvms", "memory_mb", "note"),
    [
        (64, {}, {}, 2048, ""),
        (256, {}, {}, 2048, ""),
        (1000, {}, {}, 2792, "744 of them for state; set container.memory_mb for another number"),
        (
            1000,
            {"cores": 2},
            BOOKKEEPER,
            3816,
            "1,024 of them for the JVMs that sources.in take, 744 of them for state; set container.memory_mb for "
            "another number",
        ),
        (256, {"cores": 8}, {}, 2268, "220 of them for state; set container.memory_mb for another number"),
        (256, {}, HDFS, 2048, ""),
        (256, {"cores": 4}, HDFS, 2868, "820 of them for state; set container.memory_mb for another number"),
        (256, {"memory_mb": 1568}, {}, 1568, ""),
        (
            256,
            {"memory_mb": 1567},
            {},
            1567,
            "and with 256 for state it will be ended for holding more once there is as much: set container.memory_mb "
            "to 1,568, or less for state.memory_mb",
        ),
        (256, {"memory_mb": 1968}, BOOKKEEPER, 1968, ""),
        (
            256,
            {"memory_mb": 1967},
            BOTH,
            1967,
            "and with 256 for state, and the JVMs that sources.in, sinks.out take, it will be ended for holding more "
            "once there is as much: set container.memory_mb to 1,968, or less for state.memory_mb",
        ),
    ],
)
def test_state_gets_room_and_who_gives_it_too_little_is_told(
    state_mb: int, container: dict[str, int], with_jvms: Mapping[str, JvmUse], memory_mb: int, note: str
) -> None:
    config = config_with(state_mb, **container)
    assert planned(config, with_jvms).container.memory_mb == memory_mb
    assert memory_note(config, with_jvms) == note


@pytest.mark.parametrize("with_jvms", [{}, BOOKKEEPER, HDFS, {**BOOKKEEPER, "sinks.out": "open"}])
@pytest.mark.parametrize("cores", [1, 4, 16])
@pytest.mark.parametrize("state_mb", [64, 256, 4096])
def test_what_is_planned_has_room_for_all_that_is_beside_the_heap(
    state_mb: int, cores: int, with_jvms: Mapping[str, JvmUse]
) -> None:
    config = planned(config_with(state_mb, cores=cores), with_jvms)
    memory_mb, beside = config.container.memory_mb, beside_mb(config, with_jvms)
    assert memory_mb >= memory_mb_min(state_mb, cores, with_jvms=bool(with_jvms))
    assert heap_mb(memory_mb, beside) + beside <= memory_mb


def test_an_edit_of_the_memory_of_state_changes_what_was_planned_for_it() -> None:
    with MemoryEnsemble().connect() as registry:
        submitted = DataflowConfig.parse(planned(config_with(256), {}).model_dump(mode="json"), source="x")
        assert with_values(registry, submitted, {"state.memory_mb": "1000"}).container.memory_mb == 2792
        own = config_with(256, memory_mb=4096)
        assert with_values(registry, own, {"state.memory_mb": "1000"}).container.memory_mb == 4096


def test_what_was_planned_is_not_raised_once_more() -> None:
    once = planned(config_with(), BOOKKEEPER)
    assert planned(once, BOOKKEEPER).container.memory_mb == 2560
    again = DataflowConfig.parse(once.model_dump(mode="json"), source="x")
    assert planned(again, {"sinks.out": "all"}).container.memory_mb == 2560


def test_stores_say_what_their_clients_have_jvms_for() -> None:
    assert [store_kind(name).jvm_a_process for name in (DEFAULT_STORE, "hdfs", "bk")] == [None, "open", "all"]


class CostlyKind(MemoryKind):
    """A disk whose clients have JVMs."""

    jvm_a_process = "all"


def test_explain_asks_the_store_of_each_log() -> None:
    add_store_kind("costly", CostlyKind())
    disks = [MemoryDisk("planned-costly"), MemoryDisk("planned-cheap")]
    with MemoryEnsemble().connect() as registry:
        bound_namespace(registry, disks[0].name, "in/0", store="costly")
        LogNamespace.bind("/cheap", disks[1].name, registry=registry, store=MEMORY_STORE)
        environment = Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES)
        for namespace, expected in (("/logs", (2560, True)), ("/cheap", (2048, False))):
            sink = {"kind": "log", "log": "out", "namespace": namespace}
            source = {"kind": "hdfs", "path": "memory://in"}
            config = DataflowConfig.parse(
                {"name": "flow", "sources": {"in": source}, "sinks": {"out": sink}, "sql": "SELECT payload FROM in"},
                source="a test",
            )
            found, _errors = explain(registry, config, environment, lambda _: CheckedPlan({}, {}, ()))
            assert (found.memory_mb, "sinks.out" in found.memory_note) == expected


@pytest.mark.parametrize(
    ("values", "memory_mb"),
    [
        ({"workers": "2"}, 2560),
        ({"container.memory_mb": ""}, 2560),
        ({"container.cores": "4"}, 4096),
        ({"container.cores": "4", "container.memory_mb": "2560"}, 2560),
        ({"container.memory_mb": "2048"}, 2048),
    ],
)
def test_an_edit_does_not_take_the_room_away(values: dict[str, str], memory_mb: int) -> None:
    add_store_kind("costly", CostlyKind())
    disk = MemoryDisk("edited-costly")
    with MemoryEnsemble().connect() as registry:
        bound_namespace(registry, disk.name, "in/0", store="costly")
        submitted = DataflowConfig.parse(planned(config_with(), BOOKKEEPER).model_dump(mode="json"), source="x")
        assert with_values(registry, submitted, values).container.memory_mb == memory_mb
        assert with_room(registry, config_with()).container.memory_mb == 2560, "as `restart NAME FLOW`"
        own = with_values(registry, config_with(memory_mb=1024), {"container.cores": "4"})
        assert own.container.memory_mb == 1024
