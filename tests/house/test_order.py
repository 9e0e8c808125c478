"""How a run of tests is shared out."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scribengin.testing.memory.registry import MemoryEnsemble
from tests.conftest import GARBAGE_EVERY
from tests.garbage import collect_garbage
from tests.order import (
    ON_BOOKIES,
    ON_HDFS,
    ON_KAFKA,
    ON_YARN,
    pytest_collection_modifyitems,
    pytest_runtest_teardown,
    pytest_xdist_make_scheduler,
    together,
)
from tests.servers.hadoop import HDFS, YARN
from tests.servers.kafka import KAFKA
from tests.servers.memory import threads_of_sessions_end


def item(path: str, *fixtures: str, marks: tuple[str, ...] = ()) -> Any:
    """As pytest collects one."""
    found = SimpleNamespace(path=Path(path), fixturenames=fixtures, marks={name: name for name in marks})
    found.add_marker = lambda mark: found.marks.setdefault(mark.name, mark)
    found.get_closest_marker = found.marks.get
    return found


def test_files_that_share_servers_are_taken_by_one_process_and_all_others_by_any() -> None:
    assert {together(f"tests/integration/launcher/{name}.py") for name in (*ON_YARN, *ON_HDFS)} == {"on Hadoop"}
    assert {together(f"tests/integration/connectors/{name}.py") for name in ON_KAFKA} == {"on Kafka"}
    assert {together(f"tests/integration/log/{name}.py") for name in ON_BOOKIES} == {"on bookies"}
    assert together("tests/unit/base/test_masking.py") == "tests/unit/base/test_masking.py"


def test_who_shares_tests_out_by_files_takes_those_of_hadoop_as_one() -> None:
    options = {"dist": "loadfile"}
    config: Any = SimpleNamespace(getoption=options.get, getvalue=lambda _name: ["popen"], option=SimpleNamespace())
    made: Any = pytest_xdist_make_scheduler(config, None)
    assert made._split_scope("tests/integration/launcher/test_yarn_deploy.py::test_it[a::b]") == "on Hadoop"
    assert made._split_scope("tests/unit/test_it.py::test_it") == "tests/unit/test_it.py"
    options["dist"] = "load"
    assert pytest_xdist_make_scheduler(config, None) is None


def test_hadoop_begins_then_comes_what_needs_nothing_then_other_shared_servers_then_all_others_mixed() -> None:
    items = [
        item("tests/integration/test_a_server.py", "own_kafka"),
        item("tests/contract/test_b_server.py", "own_kafka"),
        item("tests/integration/test_a_session.py", marks=("spark",)),
        item("tests/integration/test_demo.py", marks=("spark",)),
        item("tests/integration/test_an_outage.py"),
        item("tests/integration/test_another_outage.py"),
        item("tests/contract/test_kafka_seam.py", "kafka"),
        item("tests/contract/test_log_store_hdfs.py", "hdfs"),
        item("tests/integration/test_yarn_deploy.py", "first_node", "hdfs"),
        item("tests/unit/test_nothing.py"),
        item("tests/property/test_simulation.py"),
    ]
    pytest_collection_modifyitems(items)
    in_order = [one.path.stem for one in items]
    assert in_order[:2] == ["test_yarn_deploy", "test_log_store_hdfs"]
    assert in_order[2:5] == ["test_simulation", "test_nothing", "test_kafka_seam"]
    assert set(in_order[5:8]) == {"test_an_outage", "test_demo", "test_a_server"}
    assert set(in_order[8:]) == {"test_another_outage", "test_a_session", "test_b_server"}
    marked = {one.path.stem: set(one.marks) for one in items}
    assert marked["test_b_server"] == {"servers"}
    assert marked["test_yarn_deploy"] == {"servers", "timeout"}


def test_a_file_stays_together_though_only_some_of_it_needs_servers() -> None:
    names = ["tests/integration/test_both.py", "tests/integration/test_one.py"]
    items = [item(names[0]), item(names[1]), item(names[0], "own_kafka")]
    pytest_collection_modifyitems(items)
    assert [one.path.stem for one in items] in (["test_both"] * 2 + ["test_one"], ["test_one"] + ["test_both"] * 2)


@pytest.mark.parametrize(
    ("fixture", "what", "name"),
    [("first_node", "YARN", "ON_YARN"), ("hdfs", "HDFS", "ON_HDFS"), ("kafka", "a broker", "ON_KAFKA")],
)
def test_a_file_that_shares_servers_must_be_known_to_who_shares_tests_out(fixture: str, what: str, name: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"needs {what}: add it to {name}"):
        pytest_collection_modifyitems([item("tests/test_new.py", fixture)])


def test_a_file_that_needs_bookies_in_every_run_must_be_known_as_well() -> None:
    on_bookies = item("tests/test_new.py", marks=("real_stores",))
    on_bookies.callspec = SimpleNamespace(params={"log_place": "bk"})
    for one in (on_bookies, item("tests/test_new.py", "bookkeeper")):
        with pytest.raises(pytest.UsageError, match="needs bookies: add it to ON_BOOKIES"):
            pytest_collection_modifyitems([one])


@pytest.mark.parametrize(
    ("name", "following", "option", "stopped"),
    [
        ("test_yarn_deploy", "test_yarn_dataflow", None, []),
        ("test_yarn_deploy", "test_log_hdfs", None, ["YARN"]),
        ("test_yarn_deploy", "test_demo", None, ["YARN", "HDFS"]),
        ("test_yarn_deploy", None, None, ["YARN", "HDFS"]),
        ("test_log_hdfs", "test_kafka_seam", None, ["HDFS"]),
        ("test_kafka_seam", "test_demo", None, ["Kafka"]),
        ("test_demo", "test_yarn_deploy", None, []),
        ("test_demo", "test_web_page", None, []),
        # Tests that need them are not together then.
        ("test_yarn_deploy", "test_demo", "failedfirst", []),
        ("test_yarn_deploy", "test_demo", "newfirst", []),
    ],
)
def test_servers_are_stopped_behind_the_last_test_of_the_files_that_share_them(
    name: str, following: str | None, option: str | None, stopped: list[str]
) -> None:
    told: list[str] = []
    names: list[tuple[pytest.StashKey[Any], str]] = [(YARN, "YARN"), (HDFS, "HDFS"), (KAFKA, "Kafka")]
    one = item(f"{name}.py")
    stash = {key: SimpleNamespace(stop=partial(told.append, what)) for key, what in names}
    one.config = SimpleNamespace(stash=stash, getoption=lambda name, _default: name == option)
    wrapper = pytest_runtest_teardown(one, item(f"{following}.py") if following else None)
    next(wrapper)
    assert told == [], "fixtures of a file use them to their ends"
    with pytest.raises(StopIteration):
        wrapper.send(None)
    assert told == stopped


def test_garbage_is_looked_for_seldom_and_not_among_what_was_collected() -> None:
    assert gc.isenabled()
    assert gc.get_threshold() == GARBAGE_EVERY
    assert gc.get_freeze_count() > 100_000, "modules and tests are looked through, again and again"


class Circle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def long_collection() -> Iterator[threading.Event]:
    """Another thread collects, until the event is set."""
    begun, end = threading.Event(), threading.Event()

    def what_takes_long(_gone: object) -> None:
        begun.set()
        assert end.wait(120)

    kept = [weakref.ref(Circle(), what_takes_long)]
    other = threading.Thread(target=gc.collect, name="the other thread")
    other.start()
    assert begun.wait(120)
    yield end
    end.set()
    other.join(120)
    assert kept[0]() is None


def test_garbage_is_gone_though_another_thread_is_just_collecting(long_collection: threading.Event) -> None:
    ours = weakref.ref(Circle())
    assert gc.collect() == 0, "one at a time"
    assert ours() is not None
    soon = threading.Timer(0.1, long_collection.set)
    soon.start()
    collect_garbage()
    assert ours() is None
    soon.join(120)


@pytest.mark.usefixtures("long_collection")
def test_who_keeps_garbage_from_being_collected_is_named_with_all_that_threads_do() -> None:
    with pytest.raises(AssertionError, match="in vain for a collection of garbage") as failed:
        collect_garbage(0)
    first, *others = str(failed.value).split("\n\n")
    assert "\nthe other thread collects garbage:\n" in first
    assert "in what_takes_long" in first
    assert any(other.startswith("MainThread:\n") and "in collect_garbage" in other for other in others)


def test_no_thread_of_a_session_in_memory_stays_behind_a_test() -> None:
    ensemble = MemoryEnsemble()
    before = ensemble.connect()
    with threads_of_sessions_end():
        died, closed = ensemble.connect(), ensemble.connect()
        assert died._thread is not None
        assert died._thread.is_alive()
        closed.close()
    died._thread.join(120)
    assert not died._thread.is_alive()
    before.create("/still-here")
    before.close()
