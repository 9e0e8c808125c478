"""The demo over Dafka: the flights come from producers, and nothing between them and the dataflow is needed to go on.

A third of the way in, the store is killed, which keeps what producers have published; half way, a producer is, and
whom the command line says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from scribengin.dataflow.config import load_config
from scribengin_dev.demo.dafka_feed import COMES_LATE, DafkaFeed
from scribengin_dev.demo.flights import LOGS, Flights
from scribengin_dev.demo.roles import STORED, TOPIC
from scribengin_dev.demo.run import DELAYS, YEAR_S, Demo
from scribengin_dev.demo.steps import DATAFLOWS, FIRST_RECORDS
from scribengin_dev.harness.producer import Feed

_BEGIN_TIMEOUT_S = 120.0


@dataclass(slots=True)
class DafkaDemo(Demo):
    """One run."""

    _dafka: DafkaFeed | None = field(default=None, init=False)
    """From `feed` on."""

    def feed(self) -> Feed:
        """Three producers at once, who have begun: a dataflow has to know one."""
        folder = self.place.home / "dafka"
        folder.mkdir(parents=True)
        duration_s = self.duration_s(YEAR_S)
        self._dafka = feed = DafkaFeed(
            self.place, self.flights, folder, self.display, at_once=FIRST_RECORDS, duration_s=duration_s
        )
        self.display.say("starting a tower, a store and three producers of Dafka")
        try:
            feed.start()
            self.place.wait_until(
                lambda: self._has_begun(feed), _BEGIN_TIMEOUT_S, "the store to have the first flights"
            )
        except BaseException:
            feed.stop()
            raise
        return feed

    def _has_begun(self, feed: DafkaFeed) -> bool:
        feed.check()
        return feed.appended >= len(self.first())

    @property
    def grows(self) -> bool:
        return True

    @property
    def appended_to(self) -> tuple[str, str]:
        return "store flights/*", STORED

    def source(self) -> Mapping[str, str]:
        assert self._dafka is not None
        said = load_config(DATAFLOWS / DELAYS).sources["flights"]
        read = {"kind": "dafka", "topic": TOPIC, "format": said.format, "schema_ddl": said.schema_ddl}
        return {"sources.flights": json.dumps({**read, **self._dafka.network})}

    def first(self) -> Flights:
        table = self.flights.first(LOGS * FIRST_RECORDS).table
        return Flights(table[table.index % LOGS != COMES_LATE])

    def while_it_appends(self, producer: Feed, follow: Callable[[Callable[[], bool], str], None]) -> None:
        feed = self._dafka
        assert feed is not None
        follow(lambda: 3 * producer.appended >= producer.total, "a third of the flights")
        feed.kill_store()
        follow(lambda: 2 * producer.appended >= producer.total, "half of the flights")
        feed.kill_producer()
        self.kill_of(DELAYS)
