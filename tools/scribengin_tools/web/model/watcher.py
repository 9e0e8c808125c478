"""Watches a registry for all browsers together: one thread, one look at a time, whatever the number of browsers.

It looks once a second while somebody watches (with a pause of five times as long as a look took, where that is longer:
very many dataflows), and every 15 s otherwise, so that the time lines have no gap when somebody comes back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.text.plain_words import in_plain_words
from scribengin.errors import ScribenginError
from scribengin_registry.contract import Registry, SessionState
from scribengin_tools.web.model.graph import graph_of_flows
from scribengin_tools.web.model.registry import RegistryView, look_around
from scribengin_tools.web.model.timeline import Row, Timeline, row_of
from scribengin_tools.web.model.values import Json, flow_json, graph_json, unreadable_json

WATCHED_S = 1.0
UNWATCHED_S = 15.0
_SHARE_OF_TIME = 5
_LOOK_ENDS_S = 2.0
_AWAY = (SessionState.SUSPENDED, SessionState.LOST)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the page shows now. `seq` grows with every change; beside each part stands the one it is of."""

    seq: int = 0
    at_ms: int = 0
    """When the last look was that succeeded."""
    look: RegistryView = field(default_factory=RegistryView)
    flows: Mapping[str, tuple[int, Json]] = field(default_factory=dict)
    names_seq: int = 0
    graph: Json = field(default_factory=lambda: {"nodes": [], "edges": []})
    graph_seq: int = 0
    rows: Mapping[str, Row] = field(default_factory=dict)
    rows_seq: int = 0
    trouble: str | None = None
    trouble_since_ms: int | None = None

    def after(self, look: RegistryView, at_ms: int, axis_ms: int) -> Snapshot:
        """The snapshot that follows once `look` was taken. `axis_ms` is where its rows stand in the time lines."""
        seq = self.seq + 1
        shown = {name: unreadable_json(name, why) for name, why in look.unreadable.items()}
        shown |= {name: flow_json(found, look.chains.get(name)) for name, found in look.overviews.items()}
        flows = {
            name: self.flows[name] if name in self.flows and self.flows[name][1] == value else (seq, value)
            for name, value in sorted(shown.items())
        }
        graph, graph_seq = self.graph, self.graph_seq
        if _wiring(look) != _wiring(self.look) or not self.at_ms:
            graph, graph_seq = graph_json(graph_of_flows(look.configs)), seq
        return Snapshot(
            seq=seq,
            at_ms=at_ms,
            look=look,
            flows=flows,
            names_seq=self.names_seq if flows.keys() == self.flows.keys() and self.at_ms else seq,
            graph=graph,
            graph_seq=graph_seq,
            rows={name: row_of(found, axis_ms) for name, found in look.overviews.items()},
            rows_seq=seq,
        )

    def troubled(self, words: str, now_ms: int) -> Snapshot:
        """The same, with what is wrong; the last overview stays."""
        if self.trouble == words:
            return self
        return replace(self, seq=self.seq + 1, trouble=words, trouble_since_ms=self.trouble_since_ms or now_ms)


def pause_s(took_s: float, *, watched: bool) -> float:
    """How long to wait after a look that took so long."""
    return max(WATCHED_S if watched else UNWATCHED_S, _SHARE_OF_TIME * took_s)


def _wiring(look: RegistryView) -> Mapping[str, object]:
    """What the graph depends on."""
    return {name: config and (config.sources, config.sinks) for name, config in look.configs.items()}


class Watcher:
    """Looks until `close`, from when it is entered on. All methods may be called by any thread."""

    def __init__(self, registry: Registry, clock: Clock = SYSTEM_CLOCK) -> None:
        self._registry = registry
        self._clock = clock
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._snapshot = Snapshot()
        self._timelines: dict[str, Timeline] = {}
        self._listeners: list[Callable[[], None]] = []
        self._started_ms = clock.now_ms()
        self._started_s = clock.monotonic_s()
        self._thread = threading.Thread(target=self._run, name="web-watcher", daemon=True)
        self.looks = 0

    def __enter__(self) -> Self:
        self._registry.on_session(self._session_changed)
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    @property
    def snapshot(self) -> Snapshot:
        """As of now."""
        return self._snapshot

    @property
    def watched(self) -> int:
        """How many listen."""
        return len(self._listeners)

    def rows(self, name: str, last: int | None = None) -> list[Row]:
        """The time line of a dataflow, oldest first."""
        with self._lock:
            timeline = self._timelines.get(name)
            return timeline.rows(last) if timeline is not None else []

    @contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        """Have `listener` called, by another thread, whenever the snapshot has changed. It must return at once."""
        with self._lock:
            self._listeners.append(listener)
        self._wake.set()
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)

    def look_soon(self) -> None:
        """Something was changed: do not wait for the next look."""
        self._wake.set()

    def stop(self) -> None:
        """Tell those who listen that there is nothing more to come. Returns at once."""
        self._closed.set()
        self._wake.set()
        self._tell()

    def close(self) -> None:
        """Look no longer. A look that is under way is left to end by itself."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join(_LOOK_ENDS_S)

    @property
    def closed(self) -> bool:
        """Whether there is nothing to wait for any more."""
        return self._closed.is_set()

    def _run(self) -> None:
        while not self._closed.is_set():
            begun_s = self._clock.monotonic_s()
            self._wake.clear()
            try:
                self._seen(look_around(self._registry, self._clock.now_ms()))
            except ScribenginError as error:
                self._failed(in_plain_words(error))
            except Exception as error:  # noqa: BLE001  the thread's outermost loop: the page shows it
                self._failed(f"this is a bug in Scribengin: {type(error).__name__}: {error}")
            took_s = self._clock.monotonic_s() - begun_s
            self._wake.wait(pause_s(took_s, watched=bool(self._listeners)))

    def _seen(self, look: RegistryView) -> None:
        axis_ms = self._started_ms + round((self._clock.monotonic_s() - self._started_s) * 1000)
        with self._lock:
            self._snapshot = self._snapshot.after(look, self._clock.now_ms(), axis_ms)
            self._timelines = {name: line for name, line in self._timelines.items() if name in self._snapshot.flows}
            for name, row in self._snapshot.rows.items():
                self._timelines.setdefault(name, Timeline()).add(row)
            self.looks += 1
        self._tell()

    def _failed(self, words: str) -> None:
        with self._lock:
            self._snapshot = self._snapshot.troubled(words, self._clock.now_ms())
        self._tell()

    def _session_changed(self, state: SessionState) -> None:
        """On a thread of the registry's. Reads would wait long before they fail: it is said at once."""
        if state in _AWAY:
            self._failed(f"the registry {self._registry.hosts} does not answer; what is shown is from before")
        self._wake.set()

    def _tell(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener()
