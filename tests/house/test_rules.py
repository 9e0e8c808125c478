"""The tree keeps the house rules about size, time, exceptions, words and exports; the rules see what they should."""

from __future__ import annotations

import pytest

from tests.house import rules
from tests.house.allowed import BLANKET_HANDLERS, FULL_FOLDERS, OWN_RACES, PRINTERS, TIME_READERS
from tests.house.tree import (
    ROOT,
    expect_none,
    files_of_tests,
    files_that_run,
    parse,
    python_files,
    shipped_files,
    text_files,
)

PROSE = [path for path in text_files() if path.name != "LICENSE" and path.suffix not in (".csv", ".json")]


def test_lines_files_and_functions_stay_within_their_limits() -> None:
    expect_none(line for file in python_files() for line in rules.too_long(file))


def test_a_folder_holds_no_more_than_a_reader_takes_in() -> None:
    found = rules.full_folders(shipped_files())
    expect_none(
        f"{name} holds {count} modules and folders" for name, count in found.items() if name not in FULL_FOLDERS
    )
    expect_none(f"{name} is excused and not full" for name in FULL_FOLDERS.keys() - found.keys())
    full = [parse("", f"a.b.m{number}") for number in range(13)]
    assert rules.full_folders(full) == {"a.b": 13}


def test_each_field_is_set_in_a_line_of_its_own() -> None:
    expect_none(line for file in files_that_run() for line in rules.crowded_assignments(file))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("self.a, self.b = a, b", 1),
        ("seen.a, self.b, self.c = 1, f(x), []", 1),
        ("self.a, self.b = self.b, self.a", 0),
        ("before, self.a = self.a, None", 0),
        ("a, b = 1, 2", 0),
        ("self.a, self.b = pair()", 0),
    ],
)
def test_the_rule_tells_crowded_assignments_from_swaps(text: str, lines: int) -> None:
    assert len(rules.crowded_assignments(parse(text))) == lines


def test_nobody_asks_which_kind_of_connector_it_is() -> None:
    """A new kind is an entry of `connectors.kinds`; a simulated one is of its own kind, and may."""
    own = ("scribengin.connectors.", "scribengin.testing.simulation.streams.")
    expect_none(line for f in shipped_files() if not f.module.startswith(own) for line in rules.kinds_asked(f))
    assert len(rules.kinds_asked(parse("isinstance(sink, LogSinkConfig | FileSinkConfig)\nisinstance(a, Sink)"))) == 2


def test_only_the_clock_reads_time() -> None:
    found = {file.path: rules.time_readers(file) for file in shipped_files()}
    expect_none(line for path, lines in found.items() if path not in TIME_READERS for line in lines)
    expect_none(f"{path} is excused and reads no time" for path in TIME_READERS if not found.get(path))


def test_threads_and_pauses_are_made_in_one_place() -> None:
    engine = [file for file in shipped_files() if file.module.split(".")[0] in ("scribengin", "scribengin_registry")]
    found = {file.module: rules.thread_starters(file) for file in engine}
    assert found.pop("scribengin_registry.threads")
    expect_none(line for lines in found.values() for line in lines)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("import threading\nthreading.Thread(target=f).start()", 1),
        ("from threading import Timer as T\nT(3, f)", 1),
        ("import threading\nthreading.Event().wait(1)", 1),
        ("import threading\nwoken = threading.Event()\nwoken.wait(1)", 0),
        ("import threading\ndef f(thread: threading.Thread) -> None: thread.join()", 0),
    ],
)
def test_the_rule_sees_a_thread_that_is_made(text: str, lines: int) -> None:
    assert len(rules.thread_starters(parse(text))) == lines


def test_nothing_catches_everything_and_goes_on() -> None:
    found = [handler for file in files_that_run() for handler in rules.blanket_handlers(file)]
    expect_none(f"{place} in {name}" for name, place in found if name not in BLANKET_HANDLERS)
    expect_none(
        f"{name} is excused and catches nothing" for name in BLANKET_HANDLERS.keys() - {name for name, _ in found}
    )


def test_only_tools_and_entry_points_print() -> None:
    """Whoever prints talks to people, or to the process that has started it. All else logs, returns or raises."""
    libraries = [file for file in shipped_files() if not file.module.startswith(("scribengin_tools", "scribengin_dev"))]
    found = {file.module: rules.printers(file) for file in libraries if not file.path.endswith("__main__.py")}
    rest = {m: lines for m, lines in found.items() if m not in PRINTERS and not m.startswith("scribengin.testing")}
    expect_none(line for lines in rest.values() for line in lines)
    expect_none(f"{module} is excused and does not print" for module in PRINTERS if not found.get(module))


def test_messages_count_in_the_words_of_one_helper() -> None:
    """What users install, that is. Developers' programs and simulations print numbers that they have chosen."""
    own = ("scribengin_dev", "scribengin.testing.simulation")
    said = [file for file in shipped_files() if not file.module.startswith(own)]
    assert said
    expect_none(line for file in said for line in rules.bare_counts(file))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('f"{n} records"', 1),
        ('f"{len(found):,} logs of {name}"', 1),
        ("f\"{name}: {many(n, 'record')}\"", 0),
        ('"one log" if n == 1 else f"{n} logs"', 0),
        ('which(n, "its task", f"its {n} tasks")', 0),
        ('f"{n} recordings of {seconds} s"', 0),
        ('f"config set {name} tasks={n}"', 0),
        ('_LOG.info("merged %d records of %s", n, name)', 1),
        ('_LOG.info("merged %s of %s", many(n, "record"), name)', 0),
    ],
)
def test_the_rule_sees_what_is_counted_without_the_helper(text: str, lines: int) -> None:
    assert len(rules.bare_counts(parse(text))) == lines


def test_races_are_won_in_one_place() -> None:
    found = [race for file in shipped_files() for race in rules.hand_made_races(file)]
    expect_none(f"{place}: use scribengin_registry.compare_and_set" for name, place in found if name not in OWN_RACES)
    expect_none(f"{name} is excused and has no loop" for name in OWN_RACES.keys() - {name for name, _ in found})
    loop = "while True:\n    try:\n        f()\n    except (NodeMissing, VersionConflict):\n        continue"
    assert list(rules.hand_made_races(parse(loop)))


def test_nothing_is_left_for_later() -> None:
    expect_none(_found(rules.unfinished))


def test_nothing_names_a_path_of_the_machine_it_was_written_on() -> None:
    expect_none(_found(rules.machine_paths))


def test_nothing_says_where_packages_come_from() -> None:
    expect_none(_found(rules.package_indexes))


def test_packages_export_exactly_what_they_declare() -> None:
    expect_none(line for file in shipped_files() if file.is_package for line in rules.wrong_exports(file))


def test_no_test_is_left_out() -> None:
    expect_none(line for file in files_of_tests() for line in rules.skippers(file))


def test_no_test_sleeps() -> None:
    expect_none(line for file in files_of_tests() for line in rules.sleepers(file))


def test_every_file_of_tests_says_what_it_is_about() -> None:
    silent = [
        f.path
        for f in files_of_tests()
        if f.path.split("/")[-1].startswith("test_") and not f.text.startswith(('"""', 'r"""'))
    ]
    expect_none(silent)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import time\ntime.time()", True),
        ("import time as t\nt.monotonic_ns()", True),
        ("from time import monotonic\nmonotonic()", True),
        ("from time import perf_counter as now\nclock = now", True),
        ("from datetime import datetime\ndatetime.now()", True),
        ("import datetime\ndatetime.datetime.utcnow()", True),
        ("import datetime\ndatetime.timedelta(1)", False),
        ("import time\ntime.strftime('%Y')", False),
        ("def f(clock):\n    return clock.time()", False),
    ],
)
def test_the_rule_sees_time_in_whatever_form(text: str, found: bool) -> None:
    assert bool(rules.time_readers(parse(text))) is found


@pytest.mark.parametrize(
    ("handler", "found"),
    [
        ("except Exception:\n    pass", True),
        ("except:\n    pass", True),
        ("except BaseException as error:\n    failed = error", True),
        ("except (OSError, Exception):\n    pass", True),
        ("except Exception:\n    close()\n    raise", False),
        ("except Exception as error:\n    raise ValueError('x') from error", False),
        ("except OSError:\n    pass", False),
    ],
)
def test_the_rule_sees_a_handler_that_swallows_everything(handler: str, found: bool) -> None:
    assert bool(list(rules.blanket_handlers(parse(f"try:\n    f()\n{handler}")))) is found


def test_a_handler_is_named_by_its_function() -> None:
    text = "class Writer:\n    def run(self):\n        with suppress(Exception):\n            pass\n"
    assert list(rules.blanket_handlers(parse(text, "a.b"))) == [("a.b:Writer.run", "example.py:3")]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("from scribengin.log.format.dlsn import DLSN\n__all__ = ['DLSN']", 0),
        ("from scribengin.log.format.dlsn import DLSN", 1),
        ("from .dlsn import DLSN, INITIAL\n__all__ = ['DLSN']", 1),
        ("from collections.abc import Sequence\n__all__ = []", 0),
        ("__all__ = ['gone']", 1),
        ("VERSION = '1'\n_private = 2\n__all__ = ['VERSION', 'VERSION']", 1),
        ("def helper(): ...\n__all__ = []", 1),
    ],
)
def test_the_rule_sees_exports_that_do_not_match(text: str, wrong: int) -> None:
    assert len(rules.wrong_exports(parse(text, path="scribengin/log/__init__.py"))) == wrong


def test_the_rule_sees_tests_that_are_left_out() -> None:
    text = "import pytest\nfrom pytest import mark, skip\n@mark.skipif(True)\ndef f(): skip()\npytest.importorskip('x')"
    assert len(rules.skippers(parse(text))) == 3
    assert rules.skippers(parse("def skip(records): ...\nskip(3)\nreader.skip(2)")) == []


def test_the_rule_sees_sizes() -> None:
    body = "    x = 1\n" * rules.FUNCTION_LINES_MAX
    assert rules.too_long(parse(f"class A:\n  def f():\n{body}")) == ["example.py:2 A.f 71 lines"]
    assert len(rules.too_long(parse("x = 1\n" * (rules.FILE_LINES_MAX + 1)))) == 1
    assert len(rules.too_long(parse(f"x = '{'a' * 120}'"))) == 1


def test_the_rules_see_words() -> None:
    assert rules.machine_paths(f"open('/{'work'}/main/x')")
    assert not rules.machine_paths("path/to/work/x /tmp/work/x {home}/work/y https://host/root/z")
    assert rules.package_indexes(f"pip install --{'index'}-url https://x")
    assert rules.package_indexes(f"https://{'pypi'}.example/simple")
    assert not rules.package_indexes("a Java runtime from PyPI")
    assert rules.unfinished(f"# {'TO'}DO later")


def _found(rule: object) -> list[str]:
    assert callable(rule)
    return [f"{path.relative_to(ROOT)}:{line}" for path in PROSE for line in rule(path.read_text(encoding="utf-8"))]


def test_the_top_level_is_what_was_agreed() -> None:
    folders = {"scribengin", "registry", "dataflows", "deploy", "tests", "tools", "docs"}
    files = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md"}
    here = {path.relative_to(ROOT).parts for path in text_files()}
    expect_none(sorted({parts[0] for parts in here if not parts[0].startswith(".")} - folders - files))
