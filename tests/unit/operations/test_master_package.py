"""Shipping a package: a copy by content, which appears whole."""

from __future__ import annotations

import errno
import os
import stat
import zipfile
from pathlib import Path

import pytest

from scribengin.errors import PackageInvalid
from scribengin.operations.submit import package
from scribengin.operations.submit.package import pack_package, ship_package


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "flights"
    (directory / "tables").mkdir(parents=True)
    (directory / "flights.py").write_text("def transform(inputs, context): ...\n")
    (directory / "tables" / "airlines.csv").write_text("AA,American\n")
    return directory


def content(directory: Path) -> dict[str, str]:
    return {str(p.relative_to(directory)): p.read_text() for p in sorted(directory.rglob("*")) if p.is_file()}


def test_a_package_is_copied_and_named_by_what_is_in_it(source: Path, tmp_path: Path) -> None:
    shipped = ship_package(source, tmp_path / "home")
    assert shipped.parent == tmp_path / "home" / "packages"
    assert content(shipped) == content(source)
    assert ship_package(source, tmp_path / "home") == shipped
    (source / "flights.py").write_text("changed\n")
    assert ship_package(source, tmp_path / "home") != shipped
    assert content(shipped)["flights.py"].startswith("def transform")


def test_hidden_files_and_byte_code_stay_behind(source: Path, tmp_path: Path) -> None:
    before = ship_package(source, tmp_path / "home")
    for name in (".git/config", "__pycache__/flights.pyc", ".venv/lib.py"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text("not shipped")
    assert ship_package(source, tmp_path / "home") == before


def test_modes_are_kept_and_count(source: Path, tmp_path: Path) -> None:
    before = ship_package(source, tmp_path / "home")
    (source / "flights.py").chmod(0o750)
    shipped = ship_package(source, tmp_path / "home")
    assert shipped != before
    assert stat.S_IMODE((shipped / "flights.py").stat().st_mode) == 0o750
    with zipfile.ZipFile(pack_package(source, tmp_path / "home")) as packed:
        assert stat.S_IMODE(packed.getinfo("flights.py").external_attr >> 16) == 0o750


def test_nobody_else_may_look_into_a_home(source: Path, tmp_path: Path) -> None:
    ship_package(source, tmp_path / "a" / "home")
    for made in (tmp_path / "a", tmp_path / "a" / "home", tmp_path / "a" / "home" / "packages"):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_a_link_that_leads_outside_is_refused_and_one_within_is_the_file(source: Path, tmp_path: Path) -> None:
    (source / "same.csv").symlink_to("tables/airlines.csv")
    shipped = ship_package(source, tmp_path / "home")
    assert not (shipped / "same.csv").is_symlink()
    assert content(shipped)["same.csv"] == "AA,American\n"
    (tmp_path / "key").write_text("secret")
    (tmp_path / "flights-of-others").mkdir()
    for target, words in {
        str(tmp_path / "key"): "leads outside",
        "../key": "leads outside",
        "/etc": "link to a directory",
        "../flights-of-others": "link to a directory",
        "tables/nothing": "no file",
    }.items():
        (source / "link").symlink_to(target)
        with pytest.raises(PackageInvalid, match=words):
            ship_package(source, tmp_path / "home")
        (source / "link").unlink()
    os.mkfifo(source / "link")
    with pytest.raises(PackageInvalid, match="no file"):
        ship_package(source, tmp_path / "home")


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackageInvalid, match="no directory"):
        ship_package(tmp_path / "absent", tmp_path / "home")


def test_a_directory_that_is_too_large_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "PACKAGE_BYTES_MAX", 10)
    with pytest.raises(PackageInvalid, match="directory of its own"):
        ship_package(source, tmp_path / "home")
    assert not list(tmp_path.glob("home/packages/*"))


def test_a_home_that_cannot_be_written_is_one_clear_error(source: Path, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where a directory should be")
    with pytest.raises(PackageInvalid, match="cannot be copied"):
        ship_package(source, tmp_path / "home")


def test_a_packed_package_is_named_by_its_content_and_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "below").mkdir(parents=True)
    (package / "flow.py").write_text("def transform(): pass\n")
    (package / "below" / "table.csv").write_text("a,b\n")
    first = pack_package(package, tmp_path / "home")
    again = pack_package(package, tmp_path / "another-home")
    assert first.name == again.name
    assert first.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(first) as packed:
        assert sorted(packed.namelist()) == ["below/table.csv", "flow.py"]
        assert packed.read("below/table.csv") == b"a,b\n"
    (package / "flow.py").write_text("def transform(): return 1\n")
    assert pack_package(package, tmp_path / "home") != first


def test_an_archive_that_cannot_be_finished_leaves_no_draft(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    copy = ship_package(source, tmp_path / "home")
    with monkeypatch.context() as broken:
        broken.setattr(zipfile.ZipFile, "writestr", full)
        with pytest.raises(PackageInvalid, match="No space left on device"):
            pack_package(source, tmp_path / "home")
    assert list(copy.parent.iterdir()) == [copy]
    archive = pack_package(source, tmp_path / "home")
    assert sorted(copy.parent.iterdir()) == sorted([copy, archive])
