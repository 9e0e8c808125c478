"""A page of `scribengin web` in a browser, as the tests open it, and where their pictures go."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, expect

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_tools.web.server import WebConfig, WebServer
from tests.house.tree import ROOT

SCREENSHOTS = ROOT / "build" / "screenshots"
"""Kept after the run; `tools/dev.py clean` removes them."""
PATIENCE_S = 60.0
expect.set_options(timeout=PATIENCE_S * 1000)
_CHUNK = b"iTXt"
_KEY = b"words"


@contextmanager
def serving(registry: Registry, *, write: bool = False, clock: Clock = SYSTEM_CLOCK) -> Iterator[WebServer]:
    """A server that has looked once."""
    with WebServer(registry, WebConfig(port=0, write=write), clock) as server:
        wait_until(lambda: server.watcher.looks, PATIENCE_S, "the first look")
        yield server


@contextmanager
def opened(
    browser: Browser,
    server: WebServer,
    size: tuple[int, int] = (1280, 800),
    scheme: Literal["light", "dark"] = "light",
    expected_errors: str = "",
) -> Iterator[Page]:
    """A page of somebody who has opened the printed link. It asks nobody but the server, and nothing in it goes wrong
    (of answers with an error the browser itself tells: those that are meant have `expected_errors` in them)."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, timezone_id="UTC", locale="en-US"
    )
    context.set_default_timeout(PATIENCE_S * 1000)
    page = context.new_page()
    wrong: list[str] = []
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    try:
        page.goto(server.link)
        page.wait_for_url(f"{server.url}/")
        yield page
        assert [url for url in asked if not url.startswith(f"{server.url}/")] == [], "it needs no other host"
        assert [words for words in wrong if not expected_errors or expected_errors not in words] == []
    finally:
        context.close()


def kept(page: Page, name: str) -> None:
    """A screenshot of the whole page, among those of the run."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"web-{name}.png", full_page=True)


def with_words(png: bytes, words: str) -> bytes:
    """A PNG that says what can be read in it, in a chunk that viewers leave alone."""
    body = _KEY + b"\0\1\0\0\0" + zlib.compress(words.encode())
    chunk = struct.pack(">I", len(body)) + _CHUNK + body + struct.pack(">I", zlib.crc32(_CHUNK + body))
    end = png.rindex(b"IEND") - 4
    return png[:end] + chunk + png[end:]


def words_in(path: Path) -> str:
    """What `with_words` wrote."""
    png = path.read_bytes()
    at = png.index(_CHUNK + _KEY)
    (length,) = struct.unpack(">I", png[at - 4 : at])
    return zlib.decompress(png[at + 4 + len(_KEY) + 5 : at + 4 + length]).decode()
