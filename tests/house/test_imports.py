"""Imports only go down, and the client of an optional system is imported in one place."""

from __future__ import annotations

import pytest

from tests.house.rooms import BELOW, CLIENTS, everything_below, room, stray_clients, upward_imports
from tests.house.tree import CODE_ROOTS, expect_none, parse, python_files, shipped_files


def test_imports_only_go_down() -> None:
    expect_none(line for file in shipped_files() for line in upward_imports(file))


def test_clients_of_optional_systems_are_imported_in_one_place() -> None:
    expect_none(line for file in shipped_files() for line in stray_clients(file))


def test_nothing_that_ships_imports_the_tests() -> None:
    importers = [file.path for file in shipped_files() if "from tests" in file.text or "import tests" in file.text]
    expect_none(importers)


def test_every_package_of_ours_is_a_room_of_the_table() -> None:
    packages = {
        file.module.split(".")[1]
        for file in python_files()
        if file.module.startswith("scribengin.") and file.is_package
    }
    assert packages - BELOW.keys() == set()


def test_master_and_worker_do_not_know_each_other() -> None:
    assert "worker" not in everything_below("master")
    assert "master" not in everything_below("worker")


def test_nothing_of_the_engine_may_import_the_testing_package() -> None:
    assert [name for name in BELOW if "testing" in everything_below(name)] == ["scribengin_tools", "testing"]


@pytest.mark.parametrize(
    ("module", "text", "lines"),
    [
        ("scribengin.log.writer", "from scribengin.connectors import contract", 1),
        ("scribengin.log.writer", "def f():\n    import scribengin.dataflow.view", 1),
        ("scribengin.log.writer", "from scribengin import dataflow", 1),
        ("scribengin.log.writer", "from ..connectors.contract import Source", 1),
        ("scribengin.log.writer", "from ..errors import Fenced\nfrom . import entry\nimport scribengin.model", 0),
        ("scribengin.log.writer", "from scribengin_registry.contract import Set", 0),
        ("scribengin.model", "from scribengin.log import DLSN", 1),
        ("scribengin_registry.election", "from scribengin.clock import Clock", 1),
        ("scribengin.worker.shell", "from scribengin.master.state import MasterState", 1),
        ("scribengin.dataflow.round", "from scribengin.testing import failpoints", 1),
        ("scribengin.connectors.log", "from scribengin.spark.session import start", 1),
        ("scribengin_tools.cli", "from scribengin.master.submit import submit\nimport scribengin.log", 0),
    ],
)
def test_the_rule_sees_an_import_in_whatever_form(module: str, text: str, lines: int) -> None:
    path = module.replace(".", "/") + ".py"
    assert len(upward_imports(parse(text, module, path))) == lines


def test_the_rule_sees_a_client_in_whatever_form() -> None:
    assert stray_clients(parse("from kazoo.client import KazooClient", "scribengin.log.metadata"))
    assert stray_clients(parse("def f():\n    import pyspark.sql as sql", "scribengin_tools.bench"))
    assert not stray_clients(parse("import kazoo.client", "scribengin_registry.kazoo_registry"))
    assert not stray_clients(parse("import fsspec", "scribengin.connectors.files.system"))


def test_rooms_are_told_from_module_names() -> None:
    names = ["scribengin", "scribengin.model", "scribengin.log", "scribengin.log.dlsn", "scribengin_tools.cli"]
    assert [room(name) for name in names] == ["base", "base", "log", "log", "scribengin_tools"]
    assert all(place.split(".")[0] in CODE_ROOTS for places in CLIENTS.values() for place in places)
