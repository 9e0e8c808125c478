"""How a run of tests is shared out."""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import GARBAGE_EVERY
from tests.order import ON_YARN, pytest_collection_modifyitems, pytest_xdist_make_scheduler, together


def item(path: str, *fixtures: str, marks: tuple[str, ...] = ()) -> Any:
    """As pytest collects one."""
    found = SimpleNamespace(path=Path(path), fixturenames=fixtures, marks={name: name for name in marks})
    found.add_marker = lambda mark: found.marks.setdefault(mark.name, mark)
    found.get_closest_marker = found.marks.get
    return found


def test_files_that_need_yarn_are_taken_by_one_process_and_all_others_by_any() -> None:
    assert {together(f"tests/integration/launcher/{name}.py") for name in ON_YARN} == {"on YARN"}
    assert together("tests/unit/base/test_masking.py") == "tests/unit/base/test_masking.py"


def test_who_shares_tests_out_by_files_takes_yarns_as_one() -> None:
    options = {"dist": "loadfile"}
    config: Any = SimpleNamespace(getoption=options.get, getvalue=lambda _name: ["popen"], option=SimpleNamespace())
    made: Any = pytest_xdist_make_scheduler(config, None)
    assert made._split_scope("tests/integration/launcher/test_yarn_deploy.py::test_it[a::b]") == "on YARN"
    assert made._split_scope("tests/unit/test_it.py::test_it") == "tests/unit/test_it.py"
    options["dist"] = "load"
    assert pytest_xdist_make_scheduler(config, None) is None


def test_what_needs_nothing_runs_first_and_servers_last_and_yarn_before_spark() -> None:
    items = [
        item("tests/test_a_server.py", "kafka"),
        item("tests/test_a_session.py", marks=("spark",)),
        item("tests/test_demo.py", marks=("spark",)),
        item("tests/test_yarn_deploy.py", "yarn"),
        item("tests/test_nothing.py"),
        item("tests/test_simulation.py"),
    ]
    pytest_collection_modifyitems(items)
    in_order = [one.path.stem for one in items]
    assert in_order == [
        "test_simulation", "test_nothing", "test_yarn_deploy", "test_demo", "test_a_session", "test_a_server",
    ]  # fmt: skip
    assert "servers" in items[-1].marks
    assert "timeout" in items[2].marks


def test_a_file_that_needs_yarn_must_be_known_to_who_shares_tests_out() -> None:
    with pytest.raises(pytest.UsageError, match="needs YARN: add it to ON_YARN"):
        pytest_collection_modifyitems([item("tests/test_new.py", "yarn")])


def test_garbage_is_looked_for_seldom_and_not_among_what_was_collected() -> None:
    assert gc.isenabled()
    assert gc.get_threshold() == GARBAGE_EVERY
    assert gc.get_freeze_count() > 100_000, "modules and tests are looked through, again and again"
