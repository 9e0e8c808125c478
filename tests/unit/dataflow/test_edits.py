"""What an edit of the config does, or why it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from scribengin.base.model import EditKind, takes_effect
from scribengin.connectors import KINDS
from scribengin.connectors.contract import SourceStreamDescriptor
from scribengin.dataflow.config import DataflowConfig
from scribengin.dataflow.edits import (
    EditPlan,
    in_order_of,
    kind_of,
    plan_edit,
    streams_left,
    with_live_part,
    with_wishes,
)
from scribengin.dataflow.registry.descriptors import TaskDescriptor
from tests.scenario.world import make_config

EDITED: list[tuple[dict[str, Any], EditKind]] = [
    ({"workers": 3}, "live"),
    ({"desired_state": "paused"}, "live"),
    ({"rebalance": 1}, "live"),
    ({"round": {"records_max": 7}}, "live"),
    ({"errors": {"records_max": 7}}, "live"),
    ({"sources": {"in": {"kind": "log", "logs": "in/*", "paused": True}}}, "live"),
    ({"tasks": 2}, "regroup"),
    ({"executors_per_worker": 2}, "rolling"),
    ({"container": {"memory_mb": 4096}}, "rolling"),
    ({"spark": {"conf": {"a": "b"}}}, "rolling"),
    ({"settings": {"limit": 3}}, "rolling"),
    ({"sql": "SELECT 1 AS payload FROM in"}, "restart"),
    ({"sources": {"in": {"kind": "log", "logs": "other/*"}}}, "restart"),
    ({"name": "other"}, "never"),
    ({"launcher": "yarn"}, "never"),
    ({"sinks": {"out": {"kind": "log", "log": "elsewhere"}}}, "never"),
    ({"sources": {"in": {"kind": "hdfs", "path": "/in"}}}, "never"),
]


def planned(*, running: bool, **changes: Any) -> EditPlan:
    return plan_edit(make_config(), make_config(**changes), running=running)


@pytest.mark.parametrize(("changes", "kind"), EDITED, ids=lambda value: str(value)[:40])
def test_every_field_is_changed_in_its_way_or_refused(changes: dict[str, Any], kind: EditKind) -> None:
    plan = planned(running=True, **changes)
    assert plan.changes
    assert (plan.refusal is not None) == (kind in ("restart", "never"))
    assert plan.rolling == (kind == "rolling")
    assert bool(plan.actions) == (plan.refusal is None), "what is accepted does something"


@pytest.mark.parametrize(("changes", "kind"), EDITED, ids=lambda value: str(value)[:40])
def test_without_workers_only_what_is_never_edited_is_refused(changes: dict[str, Any], kind: EditKind) -> None:
    plan = planned(running=False, **changes)
    assert (plan.refusal is not None) == (kind == "never")
    assert not plan.rolling, "there is nobody to replace"


def test_every_field_of_a_config_says_how_its_edit_is_carried_out() -> None:
    silent = [field for field in DataflowConfig.model_fields if takes_effect(DataflowConfig, field) is None]
    assert silent == [], "Annotated[..., one of LIVE, ROLLING, REGROUP, RESTART, NEVER]"
    for kind in KINDS.values():
        assert [field for field in kind.source.model_fields if takes_effect(kind.source, field) is None] == []


def test_what_says_nothing_of_its_edits_is_refused() -> None:
    class Silent(DataflowConfig):
        added: int = 0

    assert takes_effect(Silent, "added") is None
    assert kind_of(("added",)) == "never"


def test_a_worker_takes_over_what_is_live_and_nothing_else() -> None:
    own = make_config()
    for changes, kind in EDITED:
        newer = make_config(**changes)
        assert with_live_part(own, newer) == (newer if kind == "live" else own), changes
    source = {"kind": "log", "logs": "other/*", "paused": True}
    mixed = with_live_part(own, make_config(sources={"in": source, "more": {"kind": "log", "logs": "x"}}))
    assert mixed == make_config(sources={"in": {"kind": "log", "logs": "in/*", "paused": True}})


def test_going_back_leaves_what_operators_want_of_the_dataflow_just_now() -> None:
    old, now = make_config(workers=3), make_config(desired_state="paused", rebalance=2, workers=5)
    assert with_wishes(old, of=now) == make_config(workers=3, desired_state="paused", rebalance=2)


def test_what_changes_is_told_field_by_field() -> None:
    plan = planned(running=True, workers=3, round={"records_max": 7}, tasks=2)
    assert set(plan.changes) == {"tasks: default -> 2", "workers: 1 -> 3", "round.records_max: 100000 -> 7"}
    assert "2 workers more" in plan.actions


def test_a_refusal_names_the_fields_and_the_way_that_there_is() -> None:
    refusal = planned(running=True, sql="SELECT 1 AS payload FROM in", workers=9).refusal or ""
    assert refusal.startswith("sql cannot be edited while there are workers")
    assert "scribengin restart flow" in refusal
    refusal = planned(running=False, sinks={"out": {"kind": "log", "log": "elsewhere"}}).refusal or ""
    assert refusal.startswith("sinks.out.log cannot be edited: delete the dataflow")


BAD = {"kind": "log", "log": "bad"}
OUT = {"kind": "log", "log": "out"}
ROUTED = {"sinks": {"out": OUT, "bad": BAD}, "errors": {"action": "route", "sink": "bad"}}


def test_an_error_route_with_a_sink_of_its_own_is_added_while_there_are_no_workers() -> None:
    assert planned(running=False, **ROUTED).refusal is None
    refusal = planned(running=True, **ROUTED).refusal or ""
    assert "scribengin restart flow" in refusal


def test_state_is_divided_anew_while_the_dataflow_is_paused_or_has_no_workers() -> None:
    def with_state(partitions: int | None, **changes: Any) -> DataflowConfig:
        return make_config(state={"partitions": partitions}, **changes)

    refusal = plan_edit(with_state(None), with_state(5), running=True).refusal or ""
    assert refusal.startswith("state.partitions cannot be edited while tasks run: `scribengin pause flow`")
    pausing = plan_edit(with_state(2), with_state(5, desired_state="paused"), running=True)
    assert pausing.refusal == refusal
    paused = plan_edit(with_state(2, desired_state="paused"), with_state(5, desired_state="paused"), running=True)
    assert (paused.refusal, paused.rolling) == (None, True)
    assert paused.actions == ("workers are replaced, one after the other",)
    resuming = plan_edit(with_state(2, desired_state="paused"), with_state(5), running=True)
    assert (resuming.refusal, resuming.rolling) == (None, True)
    stopped = plan_edit(with_state(2), with_state(None), running=False)
    assert (stopped.refusal, stopped.actions) == (None, ("taken over by the next workers",))


def test_with_state_names_keep_their_order_whatever_order_an_edit_has() -> None:
    """Spark numbers state, and positions, by the order in which a query has them."""

    def counting(sinks: str, statements: str | None = None, **changes: Any) -> DataflowConfig:
        sql = {name: f"SELECT payload FROM in WHERE '{name}' < key" for name in statements or ()}
        code = {"sql": sql} if statements else {"sql": None, "transformation": "counts:transform"}
        value = {"sinks": {name: {"kind": "log", "log": name} for name in sinks}, "state": {}, **code, **changes}
        return make_config(**value)

    def order(config: DataflowConfig) -> tuple[str, str, str]:
        return "".join(config.sources), "".join(config.sinks), "".join(config.statements())

    both = counting("ab", "ab")
    assert order(in_order_of(counting("ba", "ba"), both)) == ("in", "ab", "ab")
    assert order(in_order_of(counting("ab", "ab"), counting("ab", "ba"))) == ("in", "ba", "ba"), "statements count"
    assert order(in_order_of(counting("ab"), counting("ab", "ba"))) == ("in", "ba", ""), "a function gives them so"
    assert order(in_order_of(counting("ab", "ab"), counting("ba"))) == ("in", "ba", "ba"), "it had given them so"
    routed = {"errors": {"action": "route", "sink": "c"}}
    assert order(in_order_of(counting("cba", "ba", **routed), both)) == ("in", "abc", "ab")
    two = {name: {"kind": "log", "logs": f"{name}/*"} for name in ("x", "in")}
    one, other = counting("ab", "ab", sources=two), counting("ba", "ab", sources=dict(reversed(two.items())))
    assert order(in_order_of(other, one)) == ("xin", "ab", "ab")
    assert in_order_of(other, one) == other, "nothing else changes"
    assert in_order_of(counting("a"), counting("b")) == counting("a"), "which is refused elsewhere"
    stateless = make_config(sinks=both.sinks, sql={"b": "SELECT payload FROM in", "a": "SELECT payload FROM in"})
    assert list(in_order_of(stateless, both).statements()) == ["b", "a"]


def test_no_other_sink_is_added_and_the_route_goes_nowhere_else_later() -> None:
    both = {"out": OUT, "more": {"kind": "log", "log": "more"}}
    more = planned(running=False, sinks=both, sql={"out": "SELECT 1", "more": "SELECT 2"})
    assert "sinks.more" in (more.refusal or "")
    old, elsewhere = make_config(**ROUTED), {"out": OUT, "bad": {"kind": "log", "log": "worse"}}
    moved = plan_edit(old, make_config(**{**ROUTED, "sinks": elsewhere}), running=False)
    gone = plan_edit(old, make_config(), running=False)
    for plan in (moved, gone):
        assert (plan.refusal or "").startswith("sinks.bad takes the bad records and stays as it is")
        assert "errors.action=stop ends the route" in (plan.refusal or "")


def test_an_error_route_is_ended_and_begun_again_and_its_sink_stays() -> None:
    routed = make_config(**ROUTED)
    ended = make_config(**{**ROUTED, "errors": {"action": "stop", "sink": "bad"}})
    assert ended.outputs == ["out"], "what was the route's is no output of the transformation"
    for old, new in ((routed, ended), (ended, routed)):
        plan = plan_edit(old, new, running=False)
        assert (plan.refusal, plan.actions) == (None, ("taken over by the next workers",))
        assert "scribengin restart flow" in (plan_edit(old, new, running=True).refusal or "")


def test_what_is_kept_of_a_key_stays_in_its_task() -> None:
    source = {"kind": "log", "logs": "in/*", "streams": 4, "partition_by": ["payload"]}
    old = make_config(sources={"in": source}, state={}, tasks=2)
    for running in (False, True):
        for tasks in (None, 3):
            moved = plan_edit(old, make_config(sources={"in": source}, state={}, tasks=tasks), running=running)
            assert (moved.refusal or "").startswith("tasks stays 2: what is kept of a key cannot move")
        otherwise = make_config(sources={"in": {**source, "streams": 8}}, state={}, tasks=2)
        assert "sources.in.streams cannot be edited" in (plan_edit(old, otherwise, running=running).refusal or "")


def test_an_edit_that_changes_nothing_is_accepted_and_does_nothing() -> None:
    assert planned(running=True) == EditPlan()
    assert planned(running=True).line == "nothing"


def test_a_config_that_the_registry_cannot_take_is_refused_in_a_line() -> None:
    plan = planned(running=True, settings={"table": ["x" * 10] * 30_000})
    assert "and the registry takes 262,144 of one" in (plan.refusal or "")
    assert len(plan.changes) == 1
    assert len(plan.changes[0]) < 150


def test_of_very_many_changes_some_are_told() -> None:
    many = {f"key-{n}": n for n in range(5_000)}
    plan = planned(running=True, settings=many)
    assert plan.refusal is None
    assert len(plan.changes) == 101
    assert plan.changes[-1] == "4,900 more"
    never = planned(running=True, sinks={f"s{n}": {"kind": "log", "log": f"s{n}"} for n in range(500)}, sql={})
    assert len(never.refusal or "") < 1_000


KAFKA = {"kind": "kafka", "bootstrap": "one:9092"}


@pytest.mark.parametrize(
    ("before", "after", "read", "left"),
    [
        ({"kind": "log", "logs": "a/*"}, {"kind": "log", "logs": "b/*"}, ["a/0", "a/10", "a/2"], "a/0, a/2, a/10"),
        ({"kind": "log", "logs": "a/*"}, {"kind": "log", "logs": "*/*"}, ["a/0", "a/1"], None),
        ({"kind": "log", "logs": "a/*"}, {"kind": "log", "logs": "a/*", "namespace": "/other"}, ["a/0"], "a/0"),
        ({**KAFKA, "topics": ["a", "b"]}, {**KAFKA, "topics": ["b", "c"]}, ["a/0", "b/0"], "a/0"),
        ({**KAFKA, "topics": ["a"]}, {**KAFKA, "topics": ["a"], "bootstrap": "two:9092"}, ["a/0"], None),
        ({"kind": "dafka", "topic": "a"}, {"kind": "dafka", "topic": "b"}, ["a/P"], "a/P"),
        ({"kind": "hdfs", "path": "/in"}, {"kind": "hdfs", "path": "/elsewhere"}, ["0"], "0"),
        ({"kind": "hdfs", "path": "/in"}, {"kind": "hdfs", "path": "/in", "paused": True}, ["0"], None),
    ],
)
def test_a_source_does_not_turn_away_from_what_tasks_read(
    before: dict[str, Any], after: dict[str, Any], read: list[str], left: str | None
) -> None:
    """They would go on reading it, and what is held back for them would stay so for ever."""
    old, new = (make_config(sources={"in": source}) for source in (before, after))
    streams = tuple(SourceStreamDescriptor(source="in", name=name) for name in read)
    tasks = [TaskDescriptor(name="task-0", sources=streams, sinks=())]
    refusal = streams_left(old, new, tasks)
    assert (refusal is None) == (left is None)
    assert left is None or f"sources.in: the dataflow reads {left}, which would not be meant any more" in str(refusal)


@pytest.mark.parametrize(
    "change", [{"bootstrap": "two:9092"}, {"client": {"debug": "all"}}, {"client_file": "/secret"}]
)
def test_a_topic_is_reached_in_another_way_by_the_next_workers(change: dict[str, Any]) -> None:
    """Brokers move, and certificates end: nobody is to begin anew for that."""
    sink = {**KAFKA, "topic": "out"}
    old, new = (make_config(sinks={"out": one}) for one in (sink, {**sink, **change}))
    (name,) = change
    assert f"sinks.out.{name}" in str(plan_edit(old, new, running=True).refusal)
    assert "`scribengin restart" in str(plan_edit(old, new, running=True).refusal)
    assert plan_edit(old, new, running=False).refusal is None
    moved = make_config(sinks={"out": {**sink, "topic": "elsewhere"}})
    assert "sinks.out.topic cannot be edited: delete" in str(plan_edit(old, moved, running=False).refusal)


def test_the_topic_of_bad_records_is_reached_in_another_way_too() -> None:
    bad = {**KAFKA, "topic": "bad"}
    old = make_config(**{**ROUTED, "sinks": {"out": OUT, "bad": bad}})
    for change, refused in (({"bootstrap": "two:9092"}, False), ({"topic": "worse"}, True)):
        new = make_config(**{**ROUTED, "sinks": {"out": OUT, "bad": {**bad, **change}}})
        refusal = plan_edit(old, new, running=False).refusal
        assert (refusal is not None) == refused
        assert refusal is None or refusal.startswith("sinks.bad takes the bad records and stays as it is")
