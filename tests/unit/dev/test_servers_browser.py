"""How the tests come by a browser on a machine that has none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.servers.browser import chromium

APT = """#!/bin/sh
echo "$@" >> {folder}/asked
case "$1" in install) {install} ;; esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only one on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_the_first_name_that_is_there_is_taken(folder: Path) -> None:
    for name in ("google-chrome", "chromium"):
        executable(folder / name, "#!/bin/sh\n")
    assert chromium() == str(folder / "chromium")


def test_without_one_the_test_fails_with_what_to_install(folder: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"none of chromium, .*install Chromium"):
        chromium()


def test_root_of_a_debian_gets_it_installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    install = f"echo '#!/bin/sh' > {folder}/chromium; /bin/chmod +x {folder}/chromium"
    executable(folder / "apt-get", APT.format(folder=folder, install=install))
    assert chromium() == str(folder / "chromium")
    asked = (folder / "asked").read_text().splitlines()
    assert asked == ["update", "install -y --no-install-recommends chromium fonts-dejavu-core"]


def test_an_installation_that_fails_is_quoted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    executable(folder / "apt-get", APT.format(folder=folder, install="echo 'no room' >&2; exit 100"))
    with pytest.raises(pytest.fail.Exception, match=r"apt-get install .* failed: no room"):
        chromium()
