"""The page of `scribengin web` in a real browser: what could not be had, or was not decided yet, is shown once it can
be, or is."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.registry.descriptors import ConfigEdit, HistoryEvent
from scribengin.dataflow.registry.edit_log import write_edit
from scribengin.dataflow.registry.view import DataflowView
from scribengin.testing.memory.registry import MemoryRegistry
from scribengin_registry.contract import Registry
from scribengin_registry.errors import RegistryUnreachable
from scribengin_tools.web.model import watcher
from scribengin_tools.web.model.registry import RegistryView, look_around
from scribengin_tools.web.server import WebConfig, WebServer
from tests.integration import watched
from tests.integration.tools.test_web_editing import FLOW, at, edit
from tests.integration.tools.web_page import opened, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def refused(page: Page, path: str) -> Iterator[None]:
    """Meanwhile the server answers as it does while its registry is away."""

    def answer(route: Route) -> None:
        route.fulfill(status=503, json={"error": "the registry does not answer"})

    page.route(path, answer)
    yield
    page.unroute(path, answer)


def put(registry: Registry) -> DataflowView:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    return DataflowView(registry, FLOW)


def judge(view: DataflowView, version: int, error: str | None = None) -> None:
    """As the master does, to the config that stands there."""
    path = view.paths.edit(version)
    outcome = "accepted" if error is None else "refused"
    told = ConfigEdit.from_bytes(view.registry.get(path).data, path=path)
    view.registry.set(path, told.model_copy(update={"outcome": outcome, "error": error}).to_bytes())
    if error is None:
        view.registry.commit([view.acceptance(view.config().value, version)])
        view.set_status(view.status().model_copy(update={"config_version": version}))
    else:
        view.set_status(view.status().model_copy(update={"config_error": error}))


def scaled(view: DataflowView, workers: int) -> int:
    found = view.config()
    changed = found.value.model_copy(update={"workers": workers})
    return write_edit(view, changed, found.version, author="bob@desk", at_ms=SYSTEM_CLOCK.now_ms())


def test_a_history_that_could_not_be_read_is_shown_once_it_can_be(
    browser: Browser, memory_registry: MemoryRegistry
) -> None:
    put(memory_registry)
    with serving(memory_registry) as server, opened(browser, server, expected_errors="503") as page:
        with refused(page, "**/history"):
            at(page, "history")
            expect(page.get_by_text("the registry does not answer")).to_be_visible()
        expect(page.get_by_text("0 in force")).to_be_visible()
        expect(page.get_by_text("the registry does not answer")).to_be_hidden()


def test_a_version_that_cannot_be_read_is_named_beside_the_others(
    browser: Browser, memory_registry: MemoryRegistry
) -> None:
    view = put(memory_registry)
    version = scaled(view, 5)
    scaled(view, 6)
    view.registry.set(view.paths.edit(version), b"{")
    with serving(memory_registry) as server, opened(browser, server) as page:
        at(page, "history")
        expect(page.get_by_text(f"Left out: {view.paths.edit(version)}")).to_be_visible()
        expect(page.locator("tbody").first.locator("tr")).to_have_count(2)


@pytest.mark.full
def test_that_a_version_is_refused_is_shown_once_it_is(browser: Browser, memory_registry: MemoryRegistry) -> None:
    view = put(memory_registry)
    with serving(memory_registry) as server, opened(browser, server) as page:
        at(page, "history")
        version = scaled(view, 5)
        row = page.locator("tbody tr").filter(has_text="bob@desk")
        expect(row).to_contain_text("written")
        judge(view, version, "that is more than there is")
        expect(row).to_contain_text("refused")
        expect(row).to_contain_text("that is more than there is")


@pytest.mark.full
def test_a_config_that_could_not_be_read_is_shown_once_it_can_be(
    browser: Browser, memory_registry: MemoryRegistry
) -> None:
    put(memory_registry)
    with serving(memory_registry, write=True) as server, opened(browser, server, expected_errors="503") as page:
        with refused(page, "**/config"):
            at(page, "config")
            expect(page.locator("#config-state")).to_have_text("the registry does not answer")
        expect(page.locator("#config")).to_have_value(re.compile(r"name: flight_delays\n"))
        expect(page.locator("#config-state")).to_have_text("version 0, in force")


@pytest.mark.full
def test_an_edit_that_could_not_be_tried_out_is_once_it_can_be(
    browser: Browser, memory_registry: MemoryRegistry
) -> None:
    put(memory_registry)
    with serving(memory_registry, write=True) as server, opened(browser, server, expected_errors="503") as page:
        at(page, "config")
        with refused(page, "**/check"):
            edit(page, "workers: 2", "workers: 5")
            expect(page.locator(".verdict")).to_contain_text("the registry does not answer")
        expect(page.get_by_text("Can be saved.")).to_be_visible()
        expect(page.get_by_role("button", name="Save")).to_be_enabled()


def test_the_editor_says_that_a_version_is_in_force_once_it_is(
    browser: Browser, memory_registry: MemoryRegistry
) -> None:
    view = put(memory_registry)
    with serving(memory_registry, write=True) as server, opened(browser, server) as page:
        at(page, "config")
        edit(page, "workers: 2", "workers: 5")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#config-state")).to_have_text("version 1, while 0 is in force")
        judge(view, 1)
        expect(page.locator("#config-state")).to_have_text("version 1, in force")


@pytest.mark.full
def test_what_is_opened_while_nothing_was_seen_yet_is_shown_once_something_was(
    browser: Browser, memory_registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(memory_registry)
    answers = threading.Event()

    def look(registry: Registry, now_ms: int) -> RegistryView:
        if not answers.is_set():
            raise RegistryUnreachable("no server answers")
        return look_around(registry, now_ms)

    monkeypatch.setattr(watcher, "look_around", look)
    with WebServer(memory_registry, WebConfig(port=0)) as server, opened(browser, server) as page:
        expect(page.locator("main")).to_contain_text("Nothing of the registry has been seen yet.")
        page.evaluate("location.hash = '#/flow/none'")
        expect(page.locator("#trouble")).to_contain_text("no server answers")
        expect(page.locator("main")).to_contain_text("Nothing of the registry has been seen yet.")
        answers.set()
        expect(page.locator("#trouble")).to_be_hidden()
        expect(page.get_by_text("There is no dataflow 'none' in this registry (any more).")).to_be_visible()
        expect(page.get_by_text("Nothing of the registry has been seen yet.")).to_have_count(0)
        page.get_by_role("main").get_by_role("link", name="All dataflows").first.click()
        expect(page.locator("tbody tr")).to_have_count(3)


def test_what_happened_to_a_dataflow_is_shown_though_nothing_else_of_it_has_changed(
    browser: Browser, memory_registry: MemoryRegistry
) -> None:
    view = put(memory_registry)
    with serving(memory_registry) as server, opened(browser, server) as page:
        at(page, "history")
        expect(page.get_by_text("0 in force")).to_be_visible()
        for kind in ("rewound", "rebalanced"):
            view.add_history([HistoryEvent(at_ms=SYSTEM_CLOCK.now_ms(), kind=kind, message="by ada")])
            expect(page.get_by_text(kind)).to_be_visible()


def test_an_address_that_is_none_is_a_dataflow_that_there_is_not(
    browser: Browser, memory_registry: MemoryRegistry
) -> None:
    put(memory_registry)
    with serving(memory_registry) as server, opened(browser, server) as page:
        page.evaluate("location.hash = '#/flow/%'")
        expect(page.get_by_text("There is no dataflow '%'")).to_be_visible()
        page.reload()
        expect(page.get_by_text("There is no dataflow '%'")).to_be_visible()
        expect(page.locator("#live")).to_have_text("live")
