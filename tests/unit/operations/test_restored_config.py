"""The config of a dataflow whose registry was restored from a backup: versions of its node begin at 0 again, and edits
count all the same."""

from __future__ import annotations

from pathlib import Path

from scribengin.dataflow.registry.edit_log import config_of_version, edits, write_edit
from scribengin.dataflow.registry.view import DataflowView
from scribengin.master.watching import DataflowWatcher
from scribengin.operations.registry.backup import back_up, restore
from tests.unit.submitted import CONFIG, submitted


def accepted(view: DataflowView) -> int:
    """A master accepts what stands there."""
    found = view.counted_config()
    accepted = view.acceptance(view.config_to_edit().value, found.version, found.version, found.numbers)
    view.commit_placement(view.placement_head(), [accepted])
    return found.version


def edited(view: DataflowView, workers: int) -> int:
    """Somebody asks for so many workers."""
    config = CONFIG.model_copy(update={"workers": workers})
    return write_edit(view, config, view.counted_config().version, author="ada@here", at_ms=workers)


def test_what_is_edited_after_a_restoration_is_news_to_a_master(tmp_path: Path) -> None:
    file = tmp_path / "registry.backup"
    with submitted() as view:
        for workers in (2, 3, 4):
            edited(view, workers)
            accepted(view)
        back_up(view.registry, file)
        restore(view.registry, file, replace=True)
        assert view.config_in_force().version == 3
        for workers in (5, 6, 7, 8, 9):  # nobody has accepted the first ones when the last ones are written
            before = view.counted_config().version
            assert edited(view, workers) == before + 1 > 3
        assert config_of_version(view, 2).workers == 3
        assert [edit.config["workers"] for edit in edits(view) if edit.config][-1] == 9
        assert accepted(view) == view.counted_config().version
        assert edited(view, 10) == view.counted_config().version == accepted(view)


def test_a_restored_dataflow_that_nobody_ever_edited_goes_on_at_the_first_version(tmp_path: Path) -> None:
    file = tmp_path / "registry.backup"
    with submitted() as view:
        back_up(view.registry, file)
        restore(view.registry, file, replace=True)
        assert view.counted_config().version == 0
        assert edited(view, 2) == 1


def test_a_dataflow_that_is_restored_stopped_can_be_started_again(tmp_path: Path) -> None:
    file = tmp_path / "registry.backup"
    with submitted() as view:
        edited(view, 2)
        accepted(view)
        back_up(view.registry, file)
        restore(view.registry, file, replace=True)
        edited(view, 3)
        assert DataflowWatcher(view, lambda _: None).is_asked_for(since=1)
