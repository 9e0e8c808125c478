"""Pictures of dataflows, as they stand in a real registry."""

from __future__ import annotations

import pytest

from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import DataflowNotFound
from scribengin.monitoring.overview import overviews, read_overview
from scribengin_registry.contract import Registry
from tests.integration import watched


def reads(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The reads of the registry from now on."""
    seen: list[str] = []
    for name in ("get", "children"):  # `find` is a `get`
        plain = getattr(registry, name)

        def counted(path: str, *rest: object, plain: object = plain) -> object:
            seen.append(path)
            return plain(path, *rest)  # type: ignore[operator]

        monkeypatch.setattr(registry, name, counted)
    return seen


def test_a_look_reads_four_nodes_and_one_more_a_worker(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.put(registry, "hot", [watched.task(n) for n in range(500)], workers=3)
    seen = reads(registry, monkeypatch)
    (found,) = overviews(registry, watched.NOW_MS, ["hot"])
    assert (len(found.tasks), len(found.workers), found.masters) == (500, 3, 2)
    assert len(seen) == 4 + 3


def test_all_dataflows_of_a_registry_and_those_of_some_names(registry: Registry) -> None:
    assert overviews(registry, watched.NOW_MS) == ()
    watched.put_three(registry)
    found = overviews(registry, watched.NOW_MS)
    assert [(p.dataflow, p.state) for p in found] == [
        ("flight_delays", "running"),
        ("flight_names", "stalled"),
        ("heat_alarm", "paused"),
    ]
    assert overviews(registry, watched.NOW_MS, ["heat_alarm"]) == found[2:]
    with pytest.raises(DataflowNotFound, match="no dataflow 'nobody'"):
        overviews(registry, watched.NOW_MS, ["nobody"])


def test_a_bad_edit_is_in_the_picture_beside_the_config_in_force(registry: Registry) -> None:
    view = watched.put(registry, "hot", [watched.task(0, behind_s=70.0, lag=1)])
    registry.set(view.paths.config, b'{"name": "hot", "wrokers": 3}')
    (found,) = overviews(registry, watched.NOW_MS)
    assert "unknown key 'wrokers'" in str(found.config_error)
    assert (found.config_version, found.config_version_latest, found.workers_wanted) == (0, 1, 2)
    assert found.state == "stalled", "by the limit of the config in force"


def test_a_dataflow_whose_deletion_was_cut_short_is_shown_as_far_as_it_is_there(registry: Registry) -> None:
    view = watched.put(registry, "hot", [watched.task(0)])
    view.set_status(view.status().model_copy(update={"state": "deleting"}))
    for path in (view.paths.workers, view.paths.master, view.paths.config_in_force, view.paths.config):
        registry.delete(path, recursive=True)
    nodes = read_overview(DataflowView(registry, "hot"))
    assert (nodes.config, nodes.masters) == (None, 0)
    (found,) = overviews(registry, watched.NOW_MS)
    assert (found.state, found.tasks) == ("deleting", ())
