"""Fixtures for all folders of tests. Each server has its module in `tests/servers`."""

import gc
from collections.abc import Generator, Iterator
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

from scribengin.base.diagnostics import unconfigure_logging
from scribengin_tools.rendering.text import SILENT_VARIABLE
from tests.garbage import note_who_collects
from tests.servers.bookkeeper import bookkeeper
from tests.servers.browser import browser
from tests.servers.cold import cold_log, unmaintained
from tests.servers.hadoop import first_node, hdfs, own_hdfs, own_yarn, yarn
from tests.servers.jvms import start_jvms_lightly, start_servers_lightly
from tests.servers.kafka import kafka, kafka_brokers, own_kafka
from tests.servers.memory import SERVED_STORES, ensemble, log_place, memory_registry, no_thread_of_a_session_left
from tests.servers.provider import (
    provider,
    pytest_addoption,
    pytest_configure,
    pytest_ignore_collect,
    pytest_report_header,
    pytest_terminal_summary,
)
from tests.servers.zookeeper import cleaner, registry, registry_hosts, zookeeper, zookeeper_quorum

__all__ = [
    "bookkeeper",
    "browser",
    "cleaner",
    "cold_log",
    "ensemble",
    "first_node",
    "hdfs",
    "kafka",
    "kafka_brokers",
    "log_place",
    "memory_registry",
    "no_thread_of_a_session_left",
    "own_hdfs",
    "own_kafka",
    "own_yarn",
    "provider",
    "pytest_addoption",
    "pytest_configure",
    "pytest_ignore_collect",
    "pytest_report_header",
    "pytest_terminal_summary",
    "registry",
    "registry_hosts",
    "unmaintained",
    "yarn",
    "zookeeper",
    "zookeeper_quorum",
]

pytest_plugins = ["tests.limits", "tests.order", "tests.running", "tests.stalls"]

# How long anything takes says more about the machine than about what is tested.
settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ours")

# What stands in a process of a run, modules and tests, is never garbage. To look through it again and again has cost a
# third of the processor's time to collect, and a fifth of that of tests in one process.
GARBAGE_EVERY = (20_000, 20, 50)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage afterwards only, seldom, and among what is made from then on."""
    note_who_collects()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*GARBAGE_EVERY)
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave logs on HDFS and BookKeeper to full runs, but those on BookKeeper that say otherwise."""
    for item in items:
        store = _store_of(item)
        real = store == "bk" and item.get_closest_marker("real_stores") is not None
        if store in SERVED_STORES and not real:
            item.add_marker(pytest.mark.full)


def _store_of(item: pytest.Item) -> object:
    """The store of a variant of a test of logs; None of another test."""
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        return item.callspec.params.get("log_place")
    return None


def pytest_collection_finish(session: pytest.Session) -> None:
    """What starts JVMs starts them lightly. A process of a run that shares its tests out has none itself."""
    if any(_starts_jvms(item) for item in session.items) and not session.config.option.collectonly:
        start_servers_lightly()


@pytest.hookimpl(tryfirst=True)  # before fixtures
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The archive of Spark's classes is waited for when it is wanted: it is made beside the first tests."""
    if _starts_jvms(item):
        _spark_starts_lightly()


@cache
def _spark_starts_lightly() -> None:
    start_jvms_lightly()


def _starts_jvms(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("spark", "servers"))


@pytest.fixture(scope="session", autouse=True)
def commands_wait_without_a_word() -> Iterator[None]:
    """For how long commands wait says more about the machine than about them. A test that is about what they say
    meanwhile sets the variable itself."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(SILENT_VARIABLE, "86400")
        yield


@pytest.fixture(scope="session", autouse=True)
def processes_compute_on_one_thread() -> Iterator[None]:
    """What numpy begins for every core takes a twentieth of the start of a process, and no test multiplies matrices."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OPENBLAS_NUM_THREADS", "1")
        yield


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A test that is a process of ours writes lines as one; the next test does not."""
    yield
    unconfigure_logging()
