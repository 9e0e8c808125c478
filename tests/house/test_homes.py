"""A test stands in the folder of its room, and a helper with those who use it."""

from __future__ import annotations

from tests.house.allowed import HELPERS_ELSEWHERE, TESTS_ELSEWHERE
from tests.house.homes import BY_ROOM, NO_ROOM, stray_helpers, stray_tests
from tests.house.rooms import BELOW
from tests.house.tree import ROOT, expect_none, files_of_tests, parse


def test_a_test_stands_in_the_folder_of_its_room() -> None:
    found = stray_tests(files_of_tests())
    expect_none(line for line in found if line.split()[0] not in TESTS_ELSEWHERE)
    expect_none(path for path in TESTS_ELSEWHERE if path not in {line.split()[0] for line in found})


def test_folders_of_tests_are_called_as_rooms() -> None:
    rooms = {name.split(".")[0].removeprefix("scribengin_") for name in BELOW} | NO_ROOM.keys()
    folders = {path.parent for kind in BY_ROOM for path in (ROOT / "tests" / kind).glob("*/test_*.py")}
    expect_none(sorted(str(folder) for folder in folders if folder.name not in rooms))


def test_a_helper_stands_with_those_who_use_it() -> None:
    found = stray_helpers(files_of_tests())
    expect_none(line for line in found if line.split()[0] not in HELPERS_ELSEWHERE)
    expect_none(path for path in HELPERS_ELSEWHERE if path not in {line.split()[0] for line in found})


def test_the_rules_see_what_stands_elsewhere() -> None:
    helper = parse("import scribengin.master.process", "tests.integration.led", "tests/integration/led.py")
    one = parse("from tests.integration import led", "tests.unit.worker.test_a", "tests/unit/worker/test_a.py")
    assert stray_tests([helper, one]) == ["tests/unit/worker/test_a.py has nothing of worker"]
    assert stray_helpers([helper, one]) == ["tests/integration/led.py is of tests/unit/worker"]
    right = parse("from tests.integration import led", "tests.unit.master.test_a", "tests/unit/master/test_a.py")
    assert stray_tests([helper, right]) == []
    assert stray_helpers([helper, one, right]) == []
