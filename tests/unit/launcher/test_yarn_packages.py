"""Which files an environment is made of: packages, also those installed in place; nothing that only develops."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scribengin.errors import ConfigInvalid
from scribengin.launcher.yarn.shipping.environment import environment_entries
from scribengin.launcher.yarn.shipping.packages import package_entries
from tests.house.tree import ROOT


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site directory beside those of this interpreter."""
    directory = tmp_path / "site-packages"
    for name in (
        "lib/__init__.py",
        "lib/tests/test_lib.py",
        "lib/__pycache__/x.pyc",
        "lib-1.dist-info/RECORD",
        "one.py",
    ):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("")
    (directory / "scribengin-1.dist-info").mkdir()
    (directory / "scribengin-1.dist-info" / "METADATA").write_text("Name: scribengin\nVersion: 1\n")
    ours = [str(ROOT / place) for place in (".", "registry", "tools")]
    monkeypatch.setattr(sys, "path", [*ours, str(directory)])
    return directory


def names_of(place: str = "p") -> set[str]:
    """What is packed, but for Scribengin."""
    return {entry.name for entry in package_entries(place) if not entry.name.startswith(f"{place}/scribengin")}


def test_packages_are_packed_without_tests_byte_code_and_where_they_came_from(site: Path) -> None:
    assert names_of() == {"p/lib/__init__.py", "p/one.py"}


def test_what_is_installed_in_place_is_packed_from_where_it_stands(site: Path, tmp_path: Path) -> None:
    (tmp_path / "src" / "mine").mkdir(parents=True)
    (tmp_path / "src" / "mine" / "__init__.py").write_text("")
    (tmp_path / "src" / "notes").mkdir()
    (site / "mine.pth").write_text(f"# a comment\n{tmp_path / 'src'}\nimport sys\n")
    assert names_of() == {"p/lib/__init__.py", "p/one.py", "p/mine/__init__.py"}


def test_an_import_hook_is_refused_because_it_may_import_anything(site: Path) -> None:
    (site / "__editable__.mine-1.pth").write_text("import __editable___mine_finder; install()\n")
    with pytest.raises(ConfigInvalid, match=r"mine-1 is installed in place, by an import hook .* without -e"):
        names_of()


def test_what_is_added_by_hand_comes_along_and_what_is_there_stays(site: Path, tmp_path: Path) -> None:
    (tmp_path / "added" / "more").mkdir(parents=True)
    (tmp_path / "added" / "more" / "__init__.py").write_text("")
    assert "p/more/__init__.py" in {entry.name for entry in package_entries("p", tmp_path / "added")}


def test_this_environment_has_what_a_dataflow_needs_once_and_nothing_that_only_develops() -> None:
    names = [entry.name for entry in environment_entries()]
    assert names == sorted(set(names))
    tops = {Path(name).parts[-1] for name in names} | {Path(name).parts[-2] for name in names}
    assert {"python", "os.py", "scribengin", "scribengin_registry", "scribengin_tools", "pyspark", "jpype"} <= tops
    assert not [name for name in names if "/mypy/" in name or "/_pytest/" in name or name.endswith(".pyc")]
