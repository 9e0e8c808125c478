"""Imports only go down, and the client of an optional system is imported in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.allowed import INSIDE_LOG, INSIDE_REGISTRY, PROCESSES_SEEN, UPWARD
from tests.house.names import SAID_IN, said_elsewhere, stale_names
from tests.house.programs import program_of, undefined_names, unknown_imports
from tests.house.rooms import (
    ACTING,
    BELOW,
    CLIENTS,
    DRAWING,
    LOG_FACES,
    behind_the_face,
    behind_the_registry,
    circles,
    drawing,
    everything_below,
    imported_modules,
    past_the_door,
    room,
    stray_clients,
    upward_imports,
)
from tests.house.tree import CODE_ROOTS, ROOT, expect_none, parse, python_files, shipped_files


def test_imports_only_go_down() -> None:
    expect_none(line for file in shipped_files() for line in upward_imports(file))


def test_folders_form_no_circle_at_any_depth() -> None:
    expect_none(circles(shipped_files()))
    around = [
        parse("", "a", "a/__init__.py"),
        *(parse("", f"a.{name}", f"a/{name}/__init__.py") for name in ("x", "y", "z")),
        parse("from a.y.two import f", "a.x.one", "a/x/one.py"),
        parse("import a.z.three", "a.y.two", "a/y/two.py"),
    ]
    assert circles([*around, parse("", "a.z.three", "a/z/three.py")]) == []
    back = parse("from a.x import one", "a.z.three", "a/z/three.py")
    assert circles([*around, back]) == [f"a.{one} imports a.{other} in a circle" for one, other in ("xy", "yz", "zx")]


def test_clients_of_optional_systems_are_imported_in_one_place() -> None:
    expect_none(line for file in shipped_files() for line in stray_clients(file))


def test_others_see_the_face_of_the_log_store_and_no_more() -> None:
    expect_none(line for file in shipped_files() for line in behind_the_face(file))
    for place in INSIDE_LOG:
        inside = [file for file in shipped_files() if file.module == place or file.module.startswith(f"{place}.")]
        modules = {module for file in inside for module, _line in imported_modules(file)}
        assert any(m.startswith("scribengin.log.") and not m.startswith(LOG_FACES) for m in modules), place


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("from scribengin.log import DLSN, LogNamespace", 0),
        ("from scribengin.log.clients.offsets import OffsetStore\nimport scribengin.log.metrics", 0),
        ("from scribengin.log.format.entry import PAYLOAD", 1),
        ("def f():\n    import scribengin.log.store.file", 1),
        ("from scribengin.log import store", 1),
    ],
)
def test_the_rule_sees_what_is_not_meant_for_others(text: str, lines: int) -> None:
    assert len(behind_the_face(parse(text, "scribengin.connectors.contract"))) == lines
    assert behind_the_face(parse(text, "scribengin.log.namespace")) == []


def test_only_the_list_of_stores_knows_the_store_of_files() -> None:
    store = "scribengin.log.store.file"
    importers = {file.module for file in shipped_files() for module, _line in imported_modules(file) if module == store}
    assert importers == {"scribengin.log.store.opening"}


def test_others_see_the_top_of_the_registry_and_no_more() -> None:
    expect_none(line for file in shipped_files() for line in behind_the_registry(file))
    for place in INSIDE_REGISTRY:
        inside = [file for file in shipped_files() if file.module.startswith(f"{place}.")]
        assert any(m.startswith("scribengin_registry.client.") for f in inside for m, _line in imported_modules(f))
    text = "from scribengin_registry.client import batches\nfrom scribengin_registry.java.jars import pyspark_jars\n"
    assert behind_the_registry(parse(text, "scribengin.log.write.writer")) == []
    deeper = parse("def f():\n    from scribengin_registry.client.deadline import Deadline", "scribengin.log.namespace")
    assert behind_the_registry(deeper) == [f"{deeper.path}:2 imports scribengin_registry.client.deadline"]


def test_whoever_connects_comes_through_the_door() -> None:
    expect_none(line for file in python_files() for line in past_the_door(file))
    assert past_the_door(parse("def f():\n    from scribengin_registry.zookeeper import registry", "tests.unit.x"))


def test_what_draws_does_not_act() -> None:
    modules = {file.module: file for file in shipped_files()}
    drawing_files = [file for name, file in modules.items() if name.startswith(f"{DRAWING}.")]
    assert drawing_files
    assert set(ACTING) <= modules.keys()
    expect_none(f"{f.path}:{n} imports {m}" for f in drawing_files for m, n in imported_modules(f) if m in ACTING)


def test_nothing_that_ships_imports_the_tests() -> None:
    importers = [file.path for file in shipped_files() if "from tests" in file.text or "import tests" in file.text]
    expect_none(importers)


def test_what_may_break_the_table_still_does() -> None:
    modules = {file.module: file for file in shipped_files()}
    for module, (to, _why) in UPWARD.items():
        assert to in {room(imported) for imported, _line in imported_modules(modules[module])}, module


def test_every_room_of_the_table_is_there_and_no_package_is_left_out() -> None:
    modules = {file.module.removeprefix("scribengin.") for file in shipped_files()}
    assert {name for name in BELOW if name not in modules} == set()
    packages = {
        file.module.split(".")[1]
        for file in python_files()
        if file.module.startswith("scribengin.") and file.is_package
    }
    assert packages - BELOW.keys() == set()


def test_rooms_form_no_circle() -> None:
    for name in BELOW:
        assert all(name not in everything_below(below) for below in BELOW[name]), name


def test_the_drawing_is_the_table() -> None:
    page = (ROOT / "scribengin" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert f"```\n{drawing()}\n```" in page, "print it with `python -m tests.house.rooms`"


def test_master_and_worker_do_not_know_each_other() -> None:
    assert "worker" not in everything_below("master")
    assert "master" not in everything_below("worker")


def test_nobody_imports_the_processes_but_the_testing_package() -> None:
    """They are started with `python -m`."""
    for process in ("master", "worker"):
        above = {name for name in BELOW if process in everything_below(name)}
        assert above == {process, "testing", "scribengin_dev"}
    importers = {
        file.module
        for file in shipped_files()
        for imported, _line in imported_modules(file)
        if room(imported) in ("master", "worker")
    }
    expect_none(sorted(m for m in importers if room(m) == "scribengin_dev" and m not in PROCESSES_SEEN))
    assert PROCESSES_SEEN.keys() <= importers


def test_nothing_that_users_install_but_the_testing_package_itself_may_import_it() -> None:
    assert [name for name in BELOW if "testing" in everything_below(name)] == ["scribengin_dev", "testing"]
    assert [name for name in BELOW if "scribengin_dev" in everything_below(name)] == ["scribengin_dev"]


@pytest.mark.parametrize(
    ("module", "text", "lines"),
    [
        ("scribengin.log.write.writer", "from scribengin.connectors import contract", 1),
        ("scribengin.log.write.writer", "from scribengin.log.read import reader", 1),
        ("scribengin.log.write.writer", "def f():\n    import scribengin.dataflow.registry.view", 1),
        ("scribengin.log.write.writer", "from scribengin import dataflow", 1),
        ("scribengin.log.write.writer", "from ...connectors.contract import Source", 1),
        ("scribengin.log.write.writer", "from ...errors import Fenced\nfrom . import recovery", 0),
        ("scribengin.log.write.writer", "from scribengin.log.format import entry\nimport scribengin.base.model", 0),
        ("scribengin.log.write.writer", "from scribengin_registry.contract import Set", 0),
        ("scribengin.base.model", "from scribengin.log import DLSN", 1),
        ("scribengin_registry.election", "from scribengin.base.clock import Clock", 1),
        ("scribengin_registry.election", "from scribengin_registry.zookeeper.registry import connect", 1),
        ("scribengin.worker.process", "from scribengin.master.state.machine import MasterState", 1),
        ("scribengin.dataflow.round.runner", "from scribengin.testing import failpoints", 1),
        ("scribengin.connectors.log.source", "from scribengin.spark.session import start_session", 1),
        (
            "scribengin_tools.cli.main",
            "from scribengin.operations.submit.submit import submit\nimport scribengin.log",
            0,
        ),
        ("scribengin_tools.cli.main", "from scribengin.master.process import run_master", 1),
    ],
)
def test_the_rule_sees_an_import_in_whatever_form(module: str, text: str, lines: int) -> None:
    path = module.replace(".", "/") + ".py"
    assert len(upward_imports(parse(text, module, path))) == lines


def test_the_rule_sees_a_client_in_whatever_form() -> None:
    assert stray_clients(parse("from kazoo.client import KazooClient", "scribengin.log.metadata.segments"))
    assert stray_clients(parse("def f():\n    import pyspark.sql as sql", "scribengin_tools.logs.lines"))
    assert not stray_clients(parse("import kazoo.client", "scribengin_registry.zookeeper.registry"))
    assert not stray_clients(parse("import fsspec", "scribengin.filesystems.fsspec"))


def test_names_of_ours_in_strings_name_something() -> None:
    """The examples of rules' own tests name what they like; a keytab is a file."""
    files = python_files()
    modules = {file.module: file for file in files}
    found = [
        line for file in files if not file.path.startswith("tests/house/test_") for line in stale_names(file, modules)
    ]
    expect_none(line for line in found if not line.endswith(" scribengin.keytab"))
    moved = parse(
        'run("-m", "scribengin.gone.away")\nOLD = {"scribengin.base.names:nobody": 1, "scribengin.base.names": 2}'
    )
    assert [line.split()[1] for line in stale_names(moved, modules)] == [
        "scribengin.gone.away",
        "scribengin.base.names:nobody",
    ]


def test_what_one_place_says_is_named_elsewhere() -> None:
    """Where all nodes of dataflows stand, and the variable that names Hadoop's directory."""
    modules = {file.module: file for file in shipped_files()}
    expect_none(line for file in modules.values() for line in said_elsewhere(file))
    for said, place in SAID_IN.items():
        assert f'"{said}"' in modules[place].text, said
    again = parse('LOCKS = "/scribengin/locks"\nDIRECTORY = "HADOOP_CONF_DIR"\nOTHER = f"/scribengin-{1}"\n')
    assert len(said_elsewhere(again)) == 2


def test_programs_in_strings_import_what_there_is_and_use_what_they_import(tmp_path: Path) -> None:
    files = python_files()
    modules = {file.module: file for file in files}
    texts = {f.path: text for f in files if not f.path.startswith("tests/house/") and (text := program_of(f))}
    assert len(texts) > 10
    missing = [f"{path} {name}" for path, text in texts.items() for name in unknown_imports(text, modules)]
    expect_none([*missing, *undefined_names(texts, tmp_path)])


def test_the_rule_sees_what_a_program_in_a_string_lacks(tmp_path: Path) -> None:
    modules = {file.module: file for file in python_files()}
    text = program_of(parse('P = """\nfrom scribengin.errors import Gone\nprint(Gone, missing)\n"""'))
    assert list(unknown_imports(text, modules)) == ["scribengin.errors.Gone"]
    assert list(undefined_names({"tests/a.py": text}, tmp_path)) == ["tests/a.py Undefined name `missing`"]


def test_a_module_that_is_run_can_be() -> None:
    """What follows `-m` is a package with a `__main__`, or a module that ends as one does."""
    modules = {file.module: file for file in python_files()}
    for module in ("scribengin.master", "scribengin.worker", "scribengin_tools", "scribengin_dev.servers"):
        assert f"{module}.__main__" in modules


def test_rooms_are_told_from_module_names() -> None:
    names = [
        "scribengin",
        "scribengin.base.model",
        "scribengin.log",
        "scribengin.log.namespace",
        "scribengin_tools.__main__",
    ]
    assert [room(name) for name in names] == ["base", "base", "log", "log", "scribengin_tools"]
    names = ["scribengin.log.format.dlsn", "scribengin.launcher.yarn.config", "scribengin_registry.embedded"]
    assert [room(name) for name in names] == ["log.format", "launcher", "scribengin_registry.embedded"]
    assert all(place.split(".")[0] in CODE_ROOTS for places in CLIENTS.values() for place in places)
