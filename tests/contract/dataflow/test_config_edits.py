"""The history of a dataflow's config, on a real registry: who wrote what, and what a master made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scribengin.dataflow.config import DataflowConfig, load_config
from scribengin.dataflow.edits import plan_edit
from scribengin.dataflow.registry.config_node import CONFIG_BYTES_MAX, as_json, config_to_bytes, too_large
from scribengin.dataflow.registry.descriptors import ConfigEdit
from scribengin.dataflow.registry.edit_log import (
    EDITS_KEPT_MAX,
    config_of_version,
    described,
    edit_before,
    edits,
    outcome_operations,
    write_edit,
)
from scribengin.dataflow.registry.view import DataflowView, Versioned
from scribengin.errors import ConfigInvalid, DescriptorUnreadable, EditConflict
from scribengin.master.state.events import AcceptConfig, RefuseConfig
from scribengin.master.transactions import operations_for
from scribengin.testing.failpoints import at_failpoint
from scribengin_registry.contract import Registry
from scribengin_registry.errors import OutcomeUnknown


def config(**changes: Any) -> DataflowConfig:
    return load_config(
        {
            "name": "delays",
            "sources": {"flights": {"kind": "log", "logs": "flights/*"}},
            "sinks": {"late": {"kind": "log", "log": "late"}},
            "sql": "SELECT payload FROM flights",
            **changes,
        }
    )


@pytest.fixture
def view(registry: Registry) -> DataflowView:
    """A dataflow that has been submitted."""
    view = DataflowView(registry, "delays")
    view.submit(config(), ["log:/logs/late"], now_ms=1, author="ada@here")
    return view


def die(_stop: str) -> None:
    raise SystemExit


def judged(view: DataflowView, version: int, **changes: Any) -> None:
    """A master has looked at a version."""
    told = {"outcome": "accepted", **changes}
    seen = ConfigEdit(version=version, at_ms=99, config=as_json(config()), **told)
    view.registry.commit(outcome_operations(view, seen))


def test_a_dataflow_begins_with_the_version_that_was_submitted(view: DataflowView) -> None:
    (first,) = edits(view)
    assert (first.version, first.author, first.outcome) == (0, "ada@here", "accepted")
    assert config_of_version(view, 0) == config()


def test_an_edit_says_who_made_it_and_a_master_what_it_did(view: DataflowView) -> None:
    assert write_edit(view, config(workers=3), 0, author="bob@there", at_ms=7) == 1
    assert view.config().value.workers == 3
    judged(view, 1, changes=("workers: 1 -> 3",), actions=("2 workers more",))
    edit = edits(view)[-1]
    assert (edit.author, edit.at_ms, edit.outcome, edit.actions) == ("bob@there", 7, "accepted", ("2 workers more",))


def test_of_a_raw_edit_the_author_is_unknown(view: DataflowView) -> None:
    view.set_config(config(workers=2), 0)
    judged(view, 1, changes=("workers: 1 -> 2",))
    edit = edits(view)[-1]
    assert (edit.author, edit.at_ms) == (None, 99)
    assert described(edit) == "version 1 by unknown: workers: 1 -> 2"


def test_the_second_of_two_editors_is_told_what_the_first_did_and_changes_nothing(view: DataflowView) -> None:
    write_edit(view, config(workers=3), 0, author="ada@here", at_ms=7)
    with pytest.raises(EditConflict, match=r"version 1 by ada@here: workers: 1 -> 3") as told:
        write_edit(view, config(workers=9), 0, author="bob@there", at_ms=8)
    assert "was edited since version 0" in str(told.value)
    assert view.config().value.workers == 3
    assert [edit.author for edit in edits(view)] == ["ada@here", "ada@here"]


def test_the_second_editor_is_told_of_a_raw_edit_that_nobody_has_seen_yet(view: DataflowView) -> None:
    view.set_config(config(workers=2), 0)
    with pytest.raises(EditConflict, match="author is unknown"):
        write_edit(view, config(workers=9), 0, author="bob@there", at_ms=8)


def test_an_edit_stopped_before_or_after_its_transaction_is_there_whole_or_not_at_all(view: DataflowView) -> None:
    for stop, there in (("edits.write:before", False), ("edits.write:after", True)):
        version = view.config().version
        with at_failpoint(stop, die), pytest.raises(SystemExit):
            write_edit(view, config(workers=3), version, author="ada@here", at_ms=7)
        assert (view.config().value.workers == 3) == there
        assert edits(view)[-1].version == view.config().version == version + there


def test_a_lost_reply_is_settled_by_looking(view: DataflowView, monkeypatch: pytest.MonkeyPatch) -> None:
    commit: Callable[..., Any] = view.registry.commit

    def lose_the_reply(operations: Any) -> Any:
        commit(operations)
        raise OutcomeUnknown("the connection broke")

    monkeypatch.setattr(view.registry, "commit", lose_the_reply)
    assert write_edit(view, config(workers=3), 0, author="ada@here", at_ms=7) == 1
    monkeypatch.setattr(view.registry, "commit", lambda _: (_ for _ in ()).throw(OutcomeUnknown("lost")))
    with pytest.raises(OutcomeUnknown):
        write_edit(view, config(workers=4), 1, author="ada@here", at_ms=8)
    assert view.config().value.workers == 3


def test_a_dataflow_of_an_earlier_version_gets_its_history_with_the_first_edit(view: DataflowView) -> None:
    view.registry.delete(view.paths.edits, recursive=True)
    assert edits(view) == []
    write_edit(view, config(workers=2), 0, author="ada@here", at_ms=7)
    view.registry.delete(view.paths.edits, recursive=True)
    judged(view, 1)
    assert [edit.version for edit in edits(view)] == [1]


def test_the_oldest_versions_are_forgotten(view: DataflowView) -> None:
    for version in range(EDITS_KEPT_MAX + 3):
        write_edit(view, config(workers=version % 5), version, author="ada@here", at_ms=7)
        judged(view, version + 1)
    known = [edit.version for edit in edits(view)]
    assert known == list(range(4, EDITS_KEPT_MAX + 4))
    before = edit_before(view, 5)
    assert before is not None
    assert before.version == 4
    with pytest.raises(ConfigInvalid, match="version 3 of the config of 'delays' is not kept"):
        config_of_version(view, 3)


def test_a_further_edit_starts_from_what_stands_there_unless_just_that_was_refused(view: DataflowView) -> None:
    write_edit(view, config(workers=3), 0, author="ada@here", at_ms=7)
    judged(view, 1, outcome="refused")
    view.set_status(view.status().model_copy(update={"config_error": "version 1 of the config is refused"}))
    assert view.config_to_edit() == Versioned(config(), 1)
    write_edit(view, config(workers=4), 1, author="ada@here", at_ms=8)
    assert view.config_to_edit() == Versioned(config(workers=4), 2), "the status still speaks of the edit before"
    view.registry.set(view.paths.config, b"{")
    assert view.config_to_edit() == Versioned(config(), 3)


def test_what_was_no_config_is_kept_as_a_refusal_and_is_nothing_to_go_back_to(view: DataflowView) -> None:
    view.registry.set(view.paths.config, b"{")
    seen = ConfigEdit(version=1, at_ms=5, outcome="refused", error="it is not JSON")
    view.registry.commit(outcome_operations(view, seen))
    with pytest.raises(ConfigInvalid, match="was no config: it is not JSON"):
        config_of_version(view, 1)


def test_a_config_node_that_was_deleted_and_made_again_is_a_later_version(view: DataflowView) -> None:
    for version in range(3):
        write_edit(view, config(workers=version + 2), version, author="ada@here", at_ms=7)
    in_force_is(view, 3)
    view.registry.delete(view.paths.config)
    assert view.config_to_edit() == Versioned(config(workers=4), 3), "what is in force goes on"
    view.registry.create(view.paths.config, config_to_bytes(config(workers=7)))
    assert view.config_to_edit() == Versioned(config(workers=7), 1000)
    assert write_edit(view, config(workers=8), 1000, author="ada@here", at_ms=8) == 1001
    in_force_is(view, 1001)
    assert view.config_to_edit() == Versioned(config(workers=8), 1001), "and versions go on from there"
    with pytest.raises(EditConflict):
        write_edit(view, config(workers=9), 4, author="ada@here", at_ms=9)


def test_any_edit_makes_a_config_node_again_that_is_gone(view: DataflowView) -> None:
    for _ in range(2):  # the second time a version of that number is in the history already
        view.registry.delete(view.paths.config)
        with pytest.raises(EditConflict):
            write_edit(view, config(workers=9), 7, author="ada@here", at_ms=9)
        assert write_edit(view, config(workers=2), 0, author="ada@here", at_ms=9) == 1000
    assert view.config_to_edit() == Versioned(config(workers=2), 1000)
    assert [edit.version for edit in edits(view)] == [0, 1000]


def as_large_as_allowed(first: int) -> DataflowConfig:
    """As many small values as the limit takes: the worst there is, for the history indents each of them further."""
    count = CONFIG_BYTES_MAX // 12
    while too_large(large := config(settings={"deep": {"list": list(range(first, first + count))}})):
        count -= 100
    return large


def test_the_largest_config_there_may_be_can_be_submitted_edited_and_accepted(registry: Registry) -> None:
    view = DataflowView(registry, "delays")
    view.submit(as_large_as_allowed(10_000), ["log:/logs/late"], now_ms=1, author="ada@here")
    edited = as_large_as_allowed(30_000)
    assert write_edit(view, edited, 0, author="ada@here", at_ms=7) == 1
    plan = plan_edit(view.config_in_force().value, edited, running=True)
    changes = operations_for(view, [AcceptConfig(edited, 1, 1, plan, 9)])
    view.commit_placement(view.placement_head(), changes)
    assert view.config_in_force() == Versioned(edited, 1)
    assert edits(view)[-1].outcome == "accepted"


def test_a_larger_one_is_refused_before_anything_is_written(registry: Registry) -> None:
    view = DataflowView(registry, "delays")
    larger = config(settings={"text": "x" * CONFIG_BYTES_MAX})
    with pytest.raises(
        ConfigInvalid, match=r"the config of 'delays' is 26\d,\d+ bytes, and the registry takes 262,144"
    ):
        view.submit(larger, ["log:/logs/late"], now_ms=1)
    assert registry.find(view.paths.root) is None
    view.submit(config(), ["log:/logs/late"], now_ms=1)
    with pytest.raises(ConfigInvalid, match="put tables and long lists into files"):
        write_edit(view, larger, 0, author="ada@here", at_ms=7)
    assert view.config() == Versioned(config(), 0)


def test_what_another_client_has_written_too_large_is_refused_and_the_history_says_so(view: DataflowView) -> None:
    larger = config(settings={"text": "x" * 900_000})
    view.registry.set(view.paths.config, config_to_bytes(larger))
    plan = plan_edit(config(), larger, running=False)
    refused = operations_for(view, [RefuseConfig(larger, 1, plan, 9)])
    view.commit_placement(view.placement_head(), refused)
    last = edits(view)[-1]
    assert (last.outcome, last.config, "901," in (last.error or "")) == ("refused", None, True)


def in_force_is(view: DataflowView, version: int) -> None:
    """A master has accepted what stands there."""
    found = view.counted_config()
    view.registry.commit([view.acceptance(view.config_to_edit().value, version, 0, found.numbers)])


def damaged(view: DataflowView, version: int) -> None:
    """Somebody has written something else over an entry of the history."""
    view.registry.set(view.paths.edit(version), b"{")


def test_an_entry_that_cannot_be_read_hides_no_other_and_is_named(view: DataflowView) -> None:
    for version in range(3):
        write_edit(view, config(workers=version + 2), version, author="bob@there", at_ms=7)
    damaged(view, 1)
    unreadable: dict[str, str] = {}
    assert [edit.version for edit in edits(view, unreadable)] == [0, 2, 3]
    (why,) = unreadable.values()
    assert view.paths.edit(1) in why
    assert config_of_version(view, 2).workers == 3
    with pytest.raises(EditConflict, match="version 3 by bob@there"):
        write_edit(view, config(workers=9), 1, author="ada@here", at_ms=8)
    with pytest.raises(DescriptorUnreadable):
        config_of_version(view, 1)


def test_an_entry_that_cannot_be_read_keeps_nobody_from_editing_and_a_master_writes_it_anew(
    view: DataflowView,
) -> None:
    write_edit(view, config(workers=3), 0, author="bob@there", at_ms=7)
    damaged(view, 1)
    assert view.config_to_edit().value.workers == 3
    judged(view, 1)
    assert (edits(view)[-1].outcome, edits(view)[-1].author) == ("accepted", None)
