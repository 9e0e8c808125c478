"""The wheel installs three names that are ours, and nothing called `registry`, `tools` or `tests`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.house.tree import CODE_ROOTS, ROOT


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the wheel holds. Built by the backend itself: nothing is fetched, nothing is written into the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = Path(folder).glob("*.whl")
    with ZipFile(wheel) as archive:
        return archive.namelist()


INSTALLED = set(CODE_ROOTS) - {"scribengin_dev"}
"""What developers run stays at home."""


def test_the_wheel_installs_exactly_our_three_names(names: list[str]) -> None:
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == INSTALLED


def test_the_wheel_says_that_its_names_are_typed_and_carries_the_licence(names: list[str]) -> None:
    assert [name for name in INSTALLED if f"{name}/py.typed" not in names] == []
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_wheel_carries_the_web_page_and_not_the_pictures_of_the_pages(names: list[str]) -> None:
    here = ROOT / "tools" / "scribengin_tools"
    static = [str(path.relative_to(here.parent)) for path in (here / "web" / "static").iterdir()]
    assert {"index.html", "app.js", "style.css"} <= {name.rpartition("/")[2] for name in static}
    assert [name for name in static if name not in names] == []
    assert [name for name in names if "/pictures/" in name] == []


def test_the_wheel_holds_no_tests_and_no_caches(names: list[str]) -> None:
    assert [name for name in names if "__pycache__" in name or "/test_" in name] == []
