"""A real Chromium, the machine's own, driven by playwright: no browser is downloaded beside the machine's packages."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--no-sandbox",  # CI is root, whom Chromium refuses otherwise; it sees pages of ours only
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
_INSTALL = ("apt-get", "install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core")
_LOCK = Path(tempfile.gettempdir()) / "scribengin-tests-chromium.lock"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless one. For a module: while playwright runs, asyncio.run does not work in this thread."""
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium(), args=list(_FLAGS))
        yield started
        started.close()


def chromium() -> str:
    """The browser's path. Root of a Debian gets it installed, as CI has none; others are told what to install."""
    found = _found()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with _LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of one run
            found = _found() or _installed()
    if found is None:
        pytest.fail(
            f"the web page is tested in a real browser, and none of {', '.join(NAMES)} is on PATH: "
            "install Chromium (Debian: `apt-get install chromium`)",
            pytrace=False,
        )
    return found


def _found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _installed() -> str | None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (("apt-get", "update"), _INSTALL):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode and command == _INSTALL:
            pytest.fail(f"`{' '.join(_INSTALL)}` failed: {done.stderr[-2_000:]}", pytrace=False)
    return _found()
