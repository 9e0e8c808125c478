"""A soak from its beginning to its table."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from scribengin.base.clock import Clock
from scribengin.errors import ScribenginError
from scribengin.operations.chain.draining import left_to_read
from scribengin.operations.chain.lifecycle import stop_chain
from scribengin.operations.chain.registry import ChainDescriptor
from scribengin.operations.chain.submit import submit_chain
from scribengin.operations.verify.tracking import Verdict
from scribengin.operations.verify.verify import StreamEnds, ends_of, verify
from scribengin_dev.soak.acts import carry_out
from scribengin_dev.soak.chain import LOGS, STREAMS, SoakPlace, chain_config
from scribengin_dev.soak.commits import Commits
from scribengin_dev.soak.load import Load
from scribengin_dev.soak.measuring import Lives, server_figures
from scribengin_dev.soak.pace import EndedEarly, Pace
from scribengin_dev.soak.report import Done, SoakMeasurement
from scribengin_dev.soak.schedule import Act, schedule

_SAMPLE_S = 5.0
Say = Callable[[str], None]


@dataclass(slots=True)
class Soak:
    """One soak. `per_s` records a second go into each of the chain's first logs; `say` hears what is done."""

    place: SoakPlace
    clock: Clock
    seed: int
    length_s: float
    per_s: float
    say: Say
    ending: threading.Event = field(default_factory=threading.Event)
    _lives: Lives = field(default_factory=Lives)
    _done: list[Done] = field(default_factory=list)
    _sampled_s: float = 0.0

    def run(self) -> SoakMeasurement:
        """Do everything. What goes wrong with the chain stands in the result; what cannot be set up is raised."""
        acts = schedule(self.seed, self.length_s)
        self.say(f"{len(acts)} acts in {self.length_s / 60:g} minutes, seed {self.seed}; starting a chain of dataflows")
        chain = submit_chain(self.place.cut_off, chain_config(self.place.home.parent / "files"), self.place.home)
        with Load(self.place.namespace, LOGS, f"{self.seed:08x}", self.per_s, self.clock) as load:
            commits = self._commits()
            pace = Pace(self.clock, lambda: self._watch(load, commits), self.ending)
            return self._soak(chain, acts, load, commits, pace)

    def _soak(
        self, chain: ChainDescriptor, acts: tuple[Act, ...], load: Load, commits: Commits, pace: Pace
    ) -> SoakMeasurement:
        begun_s = self.clock.monotonic_s()
        before: dict[str, float] = {}
        after: dict[str, float] = {}
        early, failure, verdict = False, None, None
        try:
            try:
                self._await_whole(commits, pace)
                begun_s = self.clock.monotonic_s()
                before = server_figures(self.place.server.hosts)
                self._act(acts, begun_s, commits, pace)
            except EndedEarly:
                early = True
                self.say("ended early")
            after = server_figures(self.place.server.hosts)
            verdict = self._drain(chain, load)
        except ScribenginError as error:
            failure = f"{error}\n{self.place.last_words()}"
        return SoakMeasurement(
            seed=self.seed,
            length_s=self.length_s,
            planned=len(acts),
            took_s=self.clock.monotonic_s() - begun_s,
            done=tuple(self._done),
            written=load.written,
            verdict=verdict,
            rounds=commits.rounds,
            worst_gap_s=commits.worst_gap_s,
            lives=tuple(self._lives.all()),
            server_before=before,
            server_after=after,
            ended_early=early,
            failure=failure,
        )

    # -- the acts

    def _await_whole(self, commits: Commits, pace: Pace) -> None:
        for flow in self.place.flows():
            pace.wait(flow.is_whole, f"'{flow.name}' to be whole")
        mark = commits.mark()
        pace.wait(lambda: commits.went_on(mark), "a round of every stream")
        self.say("both dataflows run")

    def _act(self, acts: tuple[Act, ...], begun_s: float, commits: Commits, pace: Pace) -> None:
        flows = self.place.flows()
        for number, act in enumerate(acts, 1):
            pace.rest(begun_s + act.at_s)
            flow = flows[act.flow]
            at_s = self.clock.monotonic_s() - begun_s
            self.say(f"{at_s:6.1f} s  act {number} of {len(acts)}: {act.kind} of '{flow.name}'")
            carry_out(act, flow, pace)
            mended_s, mark = self.clock.monotonic_s(), commits.mark()
            pace.wait(lambda mark=mark: commits.went_on(mark), f"commits after: {act.kind}")  # type: ignore[misc]
            went_on_s = self.clock.monotonic_s() - mended_s
            for one in flows:
                pace.wait(one.is_whole, f"'{one.name}' to be whole after: {act.kind}")
            self._done.append(Done(act, went_on_s, self.clock.monotonic_s() - mended_s))
        pace.rest(begun_s + self.length_s)

    # -- the end

    def _drain(self, chain: ChainDescriptor, load: Load) -> Verdict:
        load.stop()
        self.say(f"{load.written:,} records are written; draining from the sources down")
        ends: StreamEnds = ends_of(self.place.registry, chain)
        first = self.place.flows()[0]
        unhurried = Pace(self.clock, lambda: None)
        unhurried.wait(lambda: not left_to_read(first.view, ["src"]), f"'{first.name}' to read all of its sources")
        stop_chain(self.place.registry, chain, lambda _: None)
        self.say("reading what came out")
        return verify(self.place.registry, ends, within_s=0)

    # -- watching

    def _commits(self) -> Commits:
        views = [flow.view for flow in self.place.flows()]
        streams = ("in", "mid")
        nodes = {
            (flow, number): view.paths.source_stream("src", f"{streams[flow]}/{number}")
            for flow, view in enumerate(views)
            for number in range(STREAMS)
        }
        return Commits(self.place.registry, self.clock, nodes, lambda flow: views[flow].task_set().count)

    def _watch(self, load: Load, commits: Commits) -> None:
        load.check()
        commits.look()
        now_s = self.clock.monotonic_s()
        if now_s - self._sampled_s >= _SAMPLE_S:
            self._sampled_s = now_s
            self._lives.look(now_s, self._containers(), self._servers())

    def _containers(self) -> Iterator[tuple[str, int]]:
        for flow in self.place.flows():
            for container in flow.containers():
                yield f"{container.name.partition('-')[0]} of {flow.name}", container.pid

    def _servers(self) -> Iterator[tuple[str, int]]:
        if self.place.server.pid is not None:
            yield "ZooKeeper", self.place.server.pid
        yield "the soak itself", os.getpid()


@contextmanager
def ending_early(soak: Soak) -> Iterator[None]:
    """The first Ctrl-C (or SIGTERM) ends the acts; the second one is what it always is."""

    def interrupted(number: int, frame: FrameType | None) -> None:
        handler = before[signal.Signals(number)]
        if soak.ending.is_set() and callable(handler):
            handler(number, frame)
        soak.ending.set()

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
