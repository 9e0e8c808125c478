"""The page of `scribengin web` in a real browser: the keyboard, the config editor, and what else changes something."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.registry.edit_log import edits, write_edit
from scribengin.dataflow.registry.view import DataflowView
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from tests.integration import watched
from tests.integration.tools.web_page import PATIENCE_S, kept, opened, serving

FLOW = "flight_delays"


def edit(page: Page, old: str, new: str) -> None:
    """As somebody types it."""
    field = page.locator("#config")
    expect(field).to_have_value(re.compile(re.escape(old)))
    field.fill(field.input_value().replace(old, new))


def at(page: Page, path: str) -> None:
    page.evaluate("path => { location.hash = path; }", f"#/flow/{FLOW}/{path}")


def test_read_only_shows_the_config_and_offers_nothing(browser: Browser, registry: Registry) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    with serving(registry) as server, opened(browser, server) as page:
        at(page, "config")
        field = page.locator("#config")
        expect(field).to_have_value(re.compile(r"name: flight_delays\n"))
        expect(field).to_have_attribute("readonly", "")
        expect(page.get_by_text("This page is read-only")).to_be_visible()
        at(page, "history")
        expect(page.get_by_text("0 in force")).to_be_visible()
        for words in ("Save", "Pause", "worker more", "Roll back", "Stop", "Start"):
            expect(page.get_by_role("button", name=words)).to_have_count(0)
        page.keyboard.press("p")
        page.keyboard.press("+")
        expect(page.locator("dialog[open]")).to_have_count(0)
    assert DataflowView(registry, FLOW).config().version == 0


def test_the_editor_says_what_an_edit_would_do_and_saves_it(browser: Browser, registry: Registry) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    view = DataflowView(registry, FLOW)
    with serving(registry, write=True) as server, opened(browser, server) as page:
        at(page, "config")
        save = page.get_by_role("button", name="Save")
        expect(save).to_be_disabled()
        edit(page, "workers: 2", "wrokers: 2")
        expect(page.get_by_text("Cannot be saved.")).to_be_visible()
        expect(page.locator(".verdict")).to_contain_text("unknown key 'wrokers'")
        expect(save).to_be_disabled()
        kept(page, "editor-wrong")
        edit(page, "wrokers: 2", "workers: 5")
        expect(page.locator(".verdict")).to_contain_text("workers: 2 -> 5")
        expect(page.locator(".verdict")).to_contain_text("3 workers more")
        expect(page.locator(".difference .added")).to_have_text("+workers: 5")
        kept(page, "editor")
        at(page, "tasks")
        expect(page.locator("table.tasks tbody tr")).to_have_count(4)
        at(page, "config")
        expect(page.locator("#config")).to_have_value(re.compile("workers: 5"))  # what was typed is not lost
        expect(save).to_be_enabled()
        page.keyboard.press("Control+s")
        expect(page.get_by_text("Version 1 of flight_delays: workers: 2 -> 5")).to_be_visible()
        expect(save).to_be_disabled()
    assert view.config().value.workers == 5
    assert edits(view)[-1].author == "web"


@pytest.mark.parametrize("button", ["Compare mine with theirs", "Take theirs, drop mine"])
def test_what_is_typed_while_the_config_is_fetched_is_not_lost(
    browser: Browser, registry: Registry, button: str
) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    view = DataflowView(registry, FLOW)
    with serving(registry, write=True) as server, opened(browser, server) as page:
        at(page, "config")
        edit(page, "workers: 2", "workers: 4")
        found = view.config()
        theirs = found.value.model_copy(update={"executors_per_worker": 3})
        write_edit(view, theirs, found.version, author="bob@desk", at_ms=SYSTEM_CLOCK.now_ms())
        fetched: list[Route] = []
        page.route("**/config", lambda route: fetched.append(route))
        with page.expect_request("**/config"):
            page.get_by_role("button", name=button).click()
        edit(page, "workers: 4", "workers: 5")
        with page.expect_response("**/check"):
            fetched[0].continue_()
        expect(page.locator("#config")).to_have_value(re.compile("workers: 5"))
        expect(page.get_by_text("workers: 2 -> 5")).to_be_visible()


def test_the_second_of_two_sees_what_the_first_did_and_keeps_both(browser: Browser, registry: Registry) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    view = DataflowView(registry, FLOW)
    with serving(registry, write=True) as server, opened(browser, server, expected_errors="409") as page:
        at(page, "config")
        edit(page, "workers: 2", "workers: 4")
        expect(page.get_by_text("Can be saved.")).to_be_visible()
        found = view.config()
        theirs = found.value.model_copy(update={"executors_per_worker": 3})
        write_edit(view, theirs, found.version, author="bob@desk", at_ms=SYSTEM_CLOCK.now_ms())
        alert = page.locator(".editor .alert.warn")
        expect(alert).to_contain_text("version 1 by bob@desk: executors_per_worker: 1 -> 3")
        expect(page.get_by_role("button", name="Save")).to_be_disabled()
        kept(page, "editor-conflict")
        page.get_by_role("button", name="Compare mine with theirs").click()
        expect(page.locator(".difference .removed").filter(has_text="executors_per_worker: 3")).to_have_count(1)
        edit(page, "executors_per_worker: 1", "executors_per_worker: 3")
        expect(page.locator(".difference .removed")).to_have_count(1)
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("Version 2 of flight_delays: workers: 2 -> 4")).to_be_visible()
    assert (view.config().value.workers, view.config().value.executors_per_worker) == (4, 3)


@pytest.mark.full
def test_rollback_asks_first(browser: Browser, registry: Registry) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    view = DataflowView(registry, FLOW)
    found = view.config()
    write_edit(view, found.value.model_copy(update={"workers": 7}), 0, author="bob@desk", at_ms=1)
    accepted = view.acceptance(view.config().value, 1)
    registry.commit([accepted])
    with serving(registry, write=True) as server, opened(browser, server) as page:
        at(page, "history")
        expect(page.get_by_text("1 in force")).to_be_visible()
        page.get_by_role("button", name="Roll back to version 0").click()
        page.get_by_role("button", name="Cancel").click()
        assert view.config().version == 1
        page.get_by_role("button", name="Roll back to version 0").click()
        expect(page.get_by_role("heading", name="Back to version 0 of flight_delays?")).to_be_visible()
        page.keyboard.press("Enter")
        expect(page.get_by_text("Version 2 of flight_delays: workers: 7 -> 2")).to_be_visible()
        expect(page.locator("tbody").first).to_contain_text("bob@desk")
        kept(page, "history")
    assert view.config().value.workers == 2


def test_stop_asks_first_and_what_has_ended_is_started(browser: Browser, registry: Registry) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    view = DataflowView(registry, FLOW)
    with serving(registry, write=True) as server, opened(browser, server) as page:
        at(page, "logs")
        stop, start = (page.get_by_role("button", name=name, exact=True) for name in ("Stop", "Start"))
        expect(page.get_by_text(f"No output of {FLOW} is on the machine of this page.")).to_be_visible()
        expect(start).to_be_hidden()
        stop.click()
        page.get_by_role("button", name="Cancel").click()
        assert view.config().version == 0
        stop.click()
        expect(page.get_by_role("heading", name=f"Stop {FLOW}?")).to_be_visible()
        page.keyboard.press("Enter")
        expect(page.get_by_text(f"{FLOW} stops: its tasks commit, then all leave.")).to_be_visible()
        assert view.config().value.desired_state == "stopped"
        view.set_status(view.status().model_copy(update={"state": "stopped"}))
        expect(start).to_be_visible()
        expect(stop).to_be_hidden()
        start.click()
        expect(page.get_by_role("heading", name=f"Start {FLOW}?")).to_be_visible()
        page.get_by_role("button", name="Cancel").click()
        kept(page, "stopped")
    assert view.config().value.desired_state == "stopped"


def test_everything_is_done_from_the_keyboard(browser: Browser, registry: Registry) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    view = DataflowView(registry, FLOW)
    with serving(registry, write=True) as server, opened(browser, server) as page:
        expect(page.locator(".flow-node")).to_have_count(3)
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_contain_text("one worker more, one less")
        kept(page, "help")
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        page.keyboard.type("delays")
        expect(page.locator("table.flows tbody tr")).to_have_count(1)
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text(FLOW)
        page.keyboard.press("p")
        expect(page.get_by_role("heading", name="Pause flight_delays?")).to_be_visible()
        page.keyboard.press("Enter")
        wait_until(lambda: view.config().value.desired_state == "paused", PATIENCE_S, "the pause")
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        page.keyboard.press("p")
        wait_until(lambda: view.config().value.desired_state == "running", PATIENCE_S, "it to go on")
        page.keyboard.press("+")
        page.keyboard.press("Enter")
        wait_until(lambda: view.config().value.workers == 3, PATIENCE_S, "the third worker")
        page.keyboard.press("3")
        expect(page.locator("#config")).to_be_visible()
        page.keyboard.press("o")
        expect(page.locator("table.flows")).to_be_visible()


def test_tab_reaches_everything_and_is_seen(browser: Browser, registry: Registry) -> None:
    watched.put_three(registry, SYSTEM_CLOCK.now_ms())
    signs = {
        "": "figure.chart",
        "/tasks": "tbody tr",
        "/config": "#config",
        "/history": "tbody tr",
        "/logs": ".panel, main button:text-is('Look again')",
    }
    signs = {"#/": ".flow-node", **{f"#/flow/{FLOW}{tab}": sign for tab, sign in signs.items()}}
    with serving(registry, write=True) as server, opened(browser, server) as page:
        for path, sign in signs.items():
            page.goto(f"{server.url}/{path}")
            expect(page.locator(sign).first).to_be_visible()
            reached = tabbed_through(page)
            assert [one for one in reached if not one["seen"]] == [], path
            wanted = page.locator(_FOCUSABLE).evaluate_all(
                "all => all.filter(e => e.checkVisibility() && !e.disabled).length"
            )
            assert len(reached) >= wanted, path


_FOCUSABLE = "a[href], button, input:not([type=radio]), select, textarea, figure[tabindex='0']"
_FOCUSED = """() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const shown = one.matches("input[type=radio]") ? one.nextElementSibling : one.querySelector(":scope > rect") ?? one;
  const style = getComputedStyle(shown);
  one.tabNumber ??= Math.random();
  const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  const seen = outlined || parseFloat(style.strokeWidth) >= 4;
  return { number: one.tabNumber, what: one.outerHTML.slice(0, 80), seen };
}"""


def tabbed_through(page: Page) -> list[dict[str, Any]]:
    """What Tab comes to, one after the other, until it begins anew."""
    page.evaluate("document.activeElement?.blur()")
    found: list[dict[str, Any]] = []
    for _ in range(200):
        page.keyboard.press("Tab")
        one = page.evaluate(_FOCUSED)
        if one is not None and one["number"] in [known["number"] for known in found]:
            return found
        found += [] if one is None else [one]
    raise AssertionError("Tab never comes back to where it began")
