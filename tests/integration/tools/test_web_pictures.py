"""The pictures of the web page in the README and the guide are what it looks like.

To make them anew: delete them, and run this test once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, expect

from scribengin.dataflow.registry.view import DataflowView
from scribengin.testing.waiting import wait_until
from scribengin_registry.contract import Registry
from scribengin_tools.web.model.watcher import Watcher
from tests.house.tree import ROOT
from tests.integration import watched
from tests.integration.tools.test_monitor import PICTURE as PICTURE_OF_MONITOR
from tests.integration.tools.web_page import PATIENCE_S, opened, serving, with_words, words_in

PICTURES = ROOT / "docs" / "pictures"
LOOKS = 60
STEP_S = 5.0
BYTES_MAX = 200_000


@dataclass
class SteppedClock:
    """Its wall clock stands still, and so do all ages; its seconds go on when a test says so."""

    s: float = 0.0

    def now_ms(self) -> int:
        return watched.NOW_MS

    def monotonic_s(self) -> float:
        return self.s


def put_a_day(registry: Registry) -> None:
    """What the pictures show."""
    watched.put_three(registry)
    archive = [watched.task(n, per_s=3_900.0, lag=400 * n) for n in range(4)]
    watched.put(registry, "archive", archive, reads="late-flight_delays", writes="archive")
    watched.put(registry, "counts", [watched.task(0, per_s=15_680.0)], workers=1, reads="late-flight_delays")


def live_a_while(registry: Registry, clock: SteppedClock, watcher: Watcher) -> None:
    """Five minutes in which two dataflows have more and less to do; at their end they do what they did first."""
    views = [DataflowView(registry, name) for name in ("flight_delays", "archive")]
    reports = {(view, worker): view.report(worker) for view in views for worker in view.workers()}
    for step in range(1, LOOKS + 1):
        more = 1 + 0.35 * math.sin(math.tau * step / LOOKS) + 0.08 * math.sin(step * 2.1) * (step != LOOKS)
        for (view, _), said in reports.items():
            assert said is not None
            tasks = tuple(
                task.model_copy(
                    update={
                        "in_per_s": round(task.in_per_s * more, 1) if step != LOOKS else task.in_per_s,
                        "out_per_s": round(task.out_per_s * more, 1) if step != LOOKS else task.out_per_s,
                        "lag_records": int(task.lag_records * more**3) if step != LOOKS else task.lag_records,
                    }
                )
                for task in said.tasks
            )
            view.set_report(said.model_copy(update={"tasks": tasks}))
        before, clock.s = watcher.looks, step * STEP_S
        watcher.look_soon()
        wait_until(lambda before=before: watcher.looks > before, PATIENCE_S, "a look")


def test_the_pictures_are_what_it_looks_like(browser: Browser, registry: Registry) -> None:
    clock = SteppedClock()
    put_a_day(registry)
    with serving(registry, clock=clock) as server:
        live_a_while(registry, clock, server.watcher)
        with opened(browser, server, (1200, 700)) as page:
            page.clock.set_fixed_time(watched.NOW_MS)
            for name, path in (("web", ""), ("web-dataflow", "flow/flight_delays")):
                picture = PICTURES / f"{name}.png"
                page.goto(f"{server.url}/#/{path}")
                page.reload()
                expect(page.locator(".flow-node")).to_have_count(5)
                expect(page.locator(".edge.live")).to_have_count(4 if path else 7)
                if path:
                    expect(page.locator("tbody tr")).to_have_count(8)
                page.evaluate("document.getElementById('registry').textContent = 'zk-1:2181'")
                words = " ".join(page.locator("body").inner_text().split())
                if not picture.exists():
                    picture.write_bytes(with_words(page.screenshot(full_page=True), words))
                assert words == words_in(picture)
                assert picture.stat().st_size < BYTES_MAX


def test_the_guide_shows_them_and_the_readme_one() -> None:
    pictures: list[Path] = [PICTURE_OF_MONITOR, PICTURES / "web.png", PICTURES / "web-dataflow.png"]
    guide = (ROOT / "docs" / "guide" / "monitoring.md").read_text(encoding="utf-8")
    assert [path.name for path in pictures if f"](../pictures/{path.name})" not in guide] == []
    assert "](docs/pictures/web.png)" in (ROOT / "README.md").read_text(encoding="utf-8")
