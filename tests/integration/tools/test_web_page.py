"""The page of `scribengin web` in a real browser: watching. Screenshots stay in `build/screenshots`."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.dataflow.registry.deletion import delete_nodes
from scribengin.dataflow.registry.descriptors import EdgeRates, HistoryEvent
from scribengin.dataflow.registry.edit_log import write_edit
from scribengin.dataflow.registry.view import DataflowView
from scribengin.operations.chain.registry import ChainDescriptor, ChainMember, create_chain
from scribengin.testing.chaos_proxy import ChaosProxy
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_registry.opening import connect
from tests.integration import watched
from tests.integration.tools.web_page import PATIENCE_S, kept, opened, serving


def put_chain(registry: Registry) -> Clock:
    """Three dataflows of one source, and two that read what one of them writes. By the clock that this returns what
    they report is never old: nobody writes it anew, as real workers do, and of who is silent no rate is shown."""
    clock = watched.StandingWallClock()
    now_ms = clock.now_ms()
    watched.put_three(registry, now_ms)
    watched.put(
        registry, "archive", [watched.task(0, lag=400, now_ms=now_ms)], now_ms=now_ms, reads="late-flight_delays"
    )
    watched.put(registry, "counts", [watched.task(0, now_ms=now_ms)], now_ms=now_ms, reads="late-flight_delays")
    return clock


def report(registry: Registry, name: str, **fields: object) -> None:
    """All tasks of a dataflow say something else from now on."""
    view = DataflowView(registry, name)
    for worker in view.workers():
        said = view.report(worker)
        assert said is not None
        tasks = tuple(task.model_copy(update=fields) for task in said.tasks)
        now_ms, rates = SYSTEM_CLOCK.now_ms(), watched.rates(tasks)
        view.set_report(said.model_copy(update={"tasks": tasks, "written_ms": now_ms, "rates": rates}))


def sideways(page: Page) -> int:
    """By how much the page is wider than the screen."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def resize(page: Page, width: int, height: int) -> None:
    """Another size of the screen. What is drawn to measure is drawn anew in the next frame."""
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_the_link_lets_in_and_the_token_leaves_the_address_bar(browser: Browser, registry: Registry) -> None:
    put_chain(registry)
    with serving(registry) as server, opened(browser, server, expected_errors="401") as page:
        expect(page.locator("#mode")).to_have_text("read-only")
        assert page.evaluate("history.length") <= 2
        assert server.token not in page.content()
        assert page.evaluate("document.cookie") == "", "scripts do not see the session"
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/login")
        page.get_by_label("Token").fill("not the token at all")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("that is not the token")
        kept(page, "login")
        page.get_by_label("Token").fill(server.token)
        page.get_by_label("Your name").fill("ada")
        page.keyboard.press("Enter")
        expect(page.locator("#user")).to_have_text("ada")
        page.goto(f"{server.link}&user=grace")
        expect(page.locator("#user")).to_have_text("grace")


def test_graph_and_table_show_who_feeds_whom_live(browser: Browser, registry: Registry) -> None:
    with serving(registry, clock=put_chain(registry)) as server, opened(browser, server) as page:
        expect(page.locator(".flow-node")).to_have_count(5)
        expect(page.locator(".edge")).to_have_count(10)
        expect(page.locator("tbody tr")).to_have_count(5)
        expect(page.locator("tbody tr").first).to_contain_text("flight_names")  # those in trouble first
        report(registry, "archive", in_per_s=7_700.0, lag_records=1_200)
        edge = page.locator('.edge[data-flow-edge="archive"]')
        expect(edge.locator(".rate").filter(has_text="7.7k/s")).to_have_count(1)
        row = page.locator("tbody tr").filter(has=page.get_by_role("link", name="archive"))
        expect(row.locator(".in")).to_have_text("7.7k/s")
        expect(row.locator(".lag")).to_have_text("1.2k")
        kept(page, "overview")
        report(registry, "archive", lag_records=1_200, lag_age_s=60.0)
        expect(row.locator(".lag")).to_have_text("~1.2k")
        report(registry, "archive", lag_records=None, lag_age_s=None, lag=())
        expect(row.locator(".lag")).to_have_text("?")
        expect(edge.get_by_text("lag ?")).to_have_count(1)
        watched.put(registry, "a_new_one", [watched.task(0)], reads="late-counts")
        expect(page.locator(".flow-node")).to_have_count(6)
        delete_nodes(DataflowView(registry, "a_new_one"))
        expect(page.locator(".flow-node")).to_have_count(5)


def test_each_edge_of_a_dataflow_has_its_own_rate_and_lag(browser: Browser, registry: Registry) -> None:
    logs = {"flights": {"kind": "log", "logs": "flights/*"}, "names": {"kind": "log", "logs": "names"}}
    outputs = {"late": {"kind": "log", "log": "late"}, "bad": {"kind": "log", "log": "bad"}}
    clock = watched.StandingWallClock()
    view = watched.put(
        registry, "joined", [watched.task(0, lag=1_200)], now_ms=clock.now_ms(), workers=1, sources=logs, sinks=outputs,
        sql={"late": "SELECT payload FROM flights", "bad": "SELECT payload FROM names"},
    )  # fmt: skip
    said = view.report("worker-1")
    assert said is not None
    rates = EdgeRates(sources={"flights": 7_700.0, "names": 12.0}, sinks={"late": 3_300.0})
    with serving(registry, clock=clock) as server, opened(browser, server) as page:
        view.set_report(said.model_copy(update={"rates": rates, "written_ms": clock.now_ms()}))
        expect(page.locator(".edge .rate").filter(has_text="/s")).to_have_count(3)
        told = {
            edge.locator("title").text_content(): edge.locator("text").all_text_contents()
            for edge in page.locator(".edge").all()
        }
        assert told == {
            "joined reads its source flights: 7.7k/s, 1.2k wait": ["7.7k/s", "lag 1.2k"],
            "joined reads its source names: 12/s, 0 wait": ["12/s", ""],
            "joined writes its sink late: 3.3k/s": ["3.3k/s", ""],
            "joined writes its sink bad: 0/s": ["", ""],
        }
        page.get_by_role("link", name="joined").first.click()
        panel = page.locator(".panel").filter(has=page.get_by_role("heading", name="Sources and sinks"))
        rows = panel.locator("tbody tr")
        expect(rows).to_have_count(4)
        assert rows.all_inner_texts() == [
            "flights\t7.7k/s\t1,200", "flights/0\t\t1,200", "names\t12/s\t0", "→ late\t3.3k/s\t"
        ]  # fmt: skip


def test_dataflows_of_a_chain_are_named_as_that(browser: Browser, registry: Registry) -> None:
    put_chain(registry)
    members = (ChainMember(key="clean", dataflow="flight_delays"), ChainMember(key="store", dataflow="archive"))
    create_chain(registry, ChainDescriptor(name="orders", members=members, config={}, submitted_ms=1))
    with serving(registry) as server, opened(browser, server) as page:
        expect(page.locator(".flow-node .name", has_text="orders / clean")).to_have_count(1)
        expect(page.locator(".flow-node .name", has_text="counts")).to_have_count(1)
        page.get_by_label("Filter dataflows").fill("orders")
        expect(page.locator("table.flows tbody tr")).to_have_count(2)
        page.get_by_label("Filter dataflows").fill("heat")
        expect(page.locator(".flow-node")).to_have_count(3)  # the graph follows: it, and who else reads what it reads
        page.get_by_label("Filter dataflows").fill("")
        expect(page.locator(".flow-node")).to_have_count(5)
        page.get_by_role("link", name="archive", exact=True).click()
        expect(page.locator(".title")).to_contain_text("store of chain orders")


def test_what_has_stalled_is_told_by_word_and_shape_as_well(browser: Browser, registry: Registry) -> None:
    with serving(registry, clock=put_chain(registry)) as server, opened(browser, server) as page:
        stalled, running = (page.locator(f'[data-flow-node="{name}"]') for name in ("flight_names", "flight_delays"))
        expect(stalled.locator(".facts")).to_contain_text("stalled")
        expect(running.locator(".facts")).to_contain_text("running")
        shapes = [node.locator(".node-mark path").get_attribute("d") for node in (stalled, running)]
        assert shapes[0] != shapes[1]
        edge = page.locator('.edge.bad[data-flow-edge="flight_names"]')
        expect(edge.locator(".rate")).to_have_text("stalled")
        dashes = edge.locator("path").evaluate("path => getComputedStyle(path).strokeDasharray")
        assert dashes != "none"


def test_time_lines_grow_and_outlive_a_reload(browser: Browser, registry: Registry) -> None:
    with serving(registry, clock=put_chain(registry)) as server, opened(browser, server) as page:
        page.get_by_role("link", name="flight_delays", exact=True).click()
        expect(page.locator("h1")).to_have_text("flight_delays")
        throughput = page.get_by_role("figure").filter(has_text="Throughput")
        line = throughput.locator("path.series.s0")
        wait_until(lambda: points(line.get_attribute("d") if line.count() else "") >= 3, PATIENCE_S, "a line")
        before = len(server.watcher.rows("flight_delays"))
        page.reload()
        wait_until(lambda: points(line.get_attribute("d") if line.count() else "") >= before, PATIENCE_S, "the line")
        assert "16.0k/s" in throughput.locator("svg").get_attribute("aria-label")  # type: ignore[operator]
        throughput.focus()
        page.keyboard.press("ArrowLeft")
        expect(throughput.locator(".reading")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d  in 16.0k/s  out 15.7k/s$"))
        page.get_by_text("30 min").click()
        expect(throughput.locator(".tick")).to_have_count(3 + 3)
        kept(page, "dataflow")


def test_the_labels_of_an_axis_differ(browser: Browser, registry: Registry) -> None:
    tops = [0, 0.04, 0.3, 0.9, 1, 1.2, 3, 7, 12, 99, 400, 999, 1500, 59_000, 61_000]
    with serving(registry, clock=put_chain(registry)) as server, opened(browser, server) as page:
        labels = page.evaluate(
            """async tops => {
              const [{ niceTop }, format] = [await import("/static/chart.js"), await import("/static/format.js")];
              const told = (unit) => tops.map((top) => [0, niceTop(top) / 2, niceTop(top)].map(unit));
              return { duration: told(format.duration), rate: told(format.rate), short: told(format.short) };
            }""",
            tops,
        )
    for unit, told in labels.items():
        assert [(top, axis) for top, axis in zip(tops, told, strict=True) if len(set(axis)) < 3] == [], unit
    assert labels["duration"][4] == ["0 ms", "0.5 ms", "1 ms"]


@pytest.mark.full
def test_no_word_of_the_history_is_broken(browser: Browser, registry: Registry) -> None:
    clock = put_chain(registry)
    view = DataflowView(registry, "flight_delays")
    changed = view.config().value.model_copy(update={"workers": 9, "tasks": 5, "stalled_after_s": 123.0})
    write_edit(view, changed, 0, author="somebody.else@a-machine-far-away", at_ms=clock.now_ms())
    words = "worker-1 was replaced by worker-2 after its session expired, and its tasks have gone to others " * 3
    view.add_history([HistoryEvent(at_ms=clock.now_ms(), kind="worker_registered", message=words)])
    with serving(registry, clock=clock) as server, opened(browser, server) as page:
        page.evaluate("location.hash = '#/flow/flight_delays/history'")
        expect(page.get_by_text("stalled_after_s: 60.0 -> 123.0")).to_be_visible()
        for width in (1280, 1000, 720):
            resize(page, width, 700)
            assert page.evaluate(_BROKEN_WORDS) == [], width
            assert sideways(page) == 0, width
        kept(page, f"history-{width}")


_BROKEN_WORDS = """() => {
  const broken = [];
  for (const cell of document.querySelectorAll(".history td, .history th")) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      for (const word of texts.currentNode.data.matchAll(/[^\\s-]+/g)) {
        const range = document.createRange();
        range.setStart(texts.currentNode, word.index);
        range.setEnd(texts.currentNode, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map((one) => Math.round(one.top)));
        if (lines.size > 1) broken.push(word[0]);
      }
    }
  }
  return broken;
}"""


def points(path: str | None) -> int:
    """How many points a line has."""
    return (path or "").count("L") + 1 if path else 0


@pytest.mark.full
def test_two_thousand_tasks_stay_usable(browser: Browser, registry: Registry) -> None:
    now_ms = SYSTEM_CLOCK.now_ms()
    watched.put(registry, "many", [watched.task(n, lag=n, now_ms=now_ms) for n in range(2_000)], now_ms=now_ms)
    with serving(registry) as server, opened(browser, server) as page:
        page.goto(f"{server.url}/#/flow/many/tasks")
        rows = page.locator("table.tasks tbody tr")
        expect(rows).to_have_count(50)
        expect(page.get_by_text("1\N{EN DASH}50 of 2,000")).to_be_visible()
        page.get_by_role("button", name="Next").click()
        expect(rows.first).to_contain_text("task-50")
        page.get_by_role("button", name="Lag").click()
        expect(rows.first).to_contain_text("task-1999")
        expect(page.locator("th", has_text="Lag")).to_have_attribute("aria-sort", "descending")
        page.keyboard.press("/")
        page.keyboard.type("task-77 worker-2")
        expect(rows).to_have_count(6)
        expect(page.get_by_text("1\N{EN DASH}6 of 6 (of 2,000 in all)")).to_be_visible()
        kept(page, "tasks")
        page.get_by_label("Filter tasks").fill("nothing like it")
        expect(page.get_by_text("No task has these words")).to_be_visible()


SIZES = [(1920, 1080), (1280, 800), (990, 700), (820, 1100), (360, 740)]
SCHEMES: dict[Literal["light", "dark"], list[tuple[int, int]]] = {"dark": SIZES[1:2], "light": SIZES}
"""No colour makes a page wider."""
SHOWN = (1280, 360)
"""Of which sizes pictures are kept: to draw one takes longer than all else."""
PLACES = {
    "overview": ".flow-node",
    "now": "figure.chart",
    "tasks": "table.tasks tbody tr",
    "config": "#config",
    "history": "tbody tr",
    "logs": "main button:text-is('Look again')",
}


@pytest.mark.full
def test_no_size_scrolls_sideways_in_light_or_dark(browser: Browser, registry: Registry) -> None:
    put_chain(registry)
    with serving(registry, write=True) as server, opened(browser, server) as page:
        for place, sign in PLACES.items():
            if place == "overview":
                expect(page.locator(".flow-node")).to_have_count(5)
                expect(page.locator('.edge.bad[data-flow-edge="flight_names"]')).to_have_count(1)
            else:
                page.goto(f"{server.url}/#/flow/flight_names/{'' if place == 'now' else place}")
                expect(page.locator(".troubles")).to_contain_text("Stalled.")
            expect(page.locator(sign).first).to_be_visible()
            for scheme, sizes in SCHEMES.items():
                page.emulate_media(color_scheme=scheme)
                for width, height in sizes:
                    resize(page, width, height)
                    assert sideways(page) == 0, (place, width)
                    if width in SHOWN:
                        kept(page, f"{width}-{scheme}-{place}")
                background = page.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (sum(map(int, re.findall(r"\d+", background))) > 384) is (scheme == "light")


def test_no_word_stands_over_the_edge_of_what_it_is_in(browser: Browser, registry: Registry) -> None:
    """Also where names are long and numbers large."""
    clock = watched.StandingWallClock()
    now_ms = clock.now_ms()
    name = "a_rather_long_name_of_a_dataflow_in_WWWWWWWWWW_production"
    tasks = [watched.task(n, lag=123_456_789, failures=4, behind_s=312.0, now_ms=now_ms) for n in range(2)]
    watched.put(registry, name, tasks, now_ms=now_ms, reads="flights_of_a_log_with_a_rather_long_WWWW_name/*")
    watched.put(registry, "counts", [watched.task(0, now_ms=now_ms)], now_ms=now_ms)
    watched.put_chain(registry, "a_chain_of_a_rather_long_name", ("and_a_long_name_within_it", "counts"))
    with serving(registry, write=True, clock=clock) as server, opened(browser, server, (400, 800)) as page:
        expect(page.locator(".flow-node")).to_have_count(2)
        for place, sign in {**PLACES, "overview": ".flow-node .name", "history": "main .panel"}.items():
            tab = {"now": "", "overview": ""}.get(place, place)
            page.goto(f"{server.url}/#/" if place == "overview" else f"{server.url}/#/flow/{name}/{tab}")
            expect(page.locator(sign).first).to_be_visible()
            for width in (400, 320):
                resize(page, width, 800)
                assert page.evaluate(_OVER_THE_EDGE) == [], (place, width)
                assert sideways(page) == 0, (place, width)
            kept(page, f"{width}-long-{place}")


_OVER_THE_EDGE = """() => {
  const over = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const parent = texts.currentNode.parentElement;
    const within = parent.closest(".flow-node, .place, .panel, .tile, nav, header, main");
    if (!within || parent.closest(".unseen, .skip, title, textarea, option, .edge")) continue;
    const box = (within.querySelector(":scope > rect") ?? within).getBoundingClientRect();
    const range = document.createRange();
    range.selectNodeContents(texts.currentNode);
    for (const one of range.getClientRects()) {
      if (one.left < box.left - 1 || one.right > box.right + 1) over.push(texts.currentNode.data);
    }
  }
  return over;
}"""


def test_an_empty_registry_says_how_to_begin(browser: Browser, registry: Registry) -> None:
    with serving(registry) as server, opened(browser, server) as page:
        expect(page.get_by_text("There are no dataflows in this registry yet")).to_be_visible()
        page.goto(f"{server.url}/#/flow/nobody")
        expect(page.get_by_text("There is no dataflow 'nobody'")).to_be_visible()
        kept(page, "empty")


def test_what_a_registry_holds_is_never_read_as_markup(browser: Browser, registry: Registry) -> None:
    now_ms = SYSTEM_CLOCK.now_ms()
    bad = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    tasks = [watched.task(0, lag=5, now_ms=now_ms).model_copy(update={"error": bad, "failures": 1})]
    view = watched.put(registry, "hot", tasks, now_ms=now_ms)
    view.set_status(view.status().model_copy(update={"error": bad}))
    with serving(registry) as server, opened(browser, server) as page:
        for tab in ("", "tasks", "history"):
            page.goto(f"{server.url}/#/flow/hot/{tab}")
            expect(page.locator(".troubles")).to_contain_text(bad)
        page.goto(f"{server.url}/#/flow/hot/tasks")
        expect(page.locator(".task-error")).to_have_text(bad)
        assert page.locator("img[src=x]").count() == 0
        assert page.title() == "hot · Scribengin"


def test_a_registry_that_is_away_is_said_and_comes_back_by_itself(browser: Browser, registry_hosts: str) -> None:
    address, _, chroot = registry_hosts.partition("/")
    with connect(registry_hosts) as direct:
        put_chain(direct)
    with (
        ChaosProxy(address) as proxy,
        connect(f"{proxy.address}/{chroot}", session_timeout_s=20.0) as behind,
        serving(behind) as server,
        opened(browser, server) as page,
    ):
        expect(page.locator("#live")).to_have_text("live")
        proxy.cut()
        expect(page.locator("#trouble")).to_contain_text("does not answer; what is shown is from before")
        expect(page.locator("#live")).to_have_text("not live")
        expect(page.locator(".flow-node")).to_have_count(5)
        kept(page, "registry-away")
        proxy.heal()
        expect(page.locator("#trouble")).to_be_hidden()
        expect(page.locator("#live")).to_have_text("live")


def test_a_server_that_has_gone_is_said(browser: Browser, registry: Registry) -> None:
    put_chain(registry)
    with serving(registry) as server, opened(browser, server, expected_errors="ERR_") as page:
        expect(page.locator("#live")).to_have_text("live")
        server.close()
        expect(page.locator("#trouble")).to_contain_text("The connection to this page's server is lost")
