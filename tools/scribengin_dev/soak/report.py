"""The tables of a soak, as Markdown, and whether it has passed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from scribengin.operations.verify.tracking import Verdict
from scribengin_dev.soak.measuring import FILES_MORE_MAX, GROWTH_MAX_MIB, JUDGED_S, Life
from scribengin_dev.soak.schedule import KINDS, Act

_S_PER_MIN = 60.0
WATCHES_MORE = 1.5
"""At the end ZooKeeper may keep so many times the watches of the beginning, and WATCHES_FEW more."""
WATCHES_FEW = 50


@dataclass(frozen=True, slots=True)
class Done:
    """An act that was carried out: how long after it (after what it broke was mended) every stream was committed again,
    and how long until everything was whole."""

    act: Act
    went_on_s: float
    whole_s: float


@dataclass(frozen=True, slots=True)
class SoakMeasurement:
    """All that a soak has found. `failure`: what did not happen, and then there may be no verdict.

    `server_before` and `server_after` are ZooKeeper's figures with the chain whole, before the first act and after the
    last.
    """

    seed: int
    length_s: float
    planned: int
    took_s: float
    done: tuple[Done, ...]
    written: int
    verdict: Verdict | None
    rounds: int
    worst_gap_s: float
    lives: tuple[Life, ...]
    server_before: Mapping[str, float]
    server_after: Mapping[str, float]
    ended_early: bool = False
    failure: str | None = None

    @property
    def arrived(self) -> int:
        """Records that came out, each counted once."""
        return sum(chunk.arrived for chunk in self.verdict.chunks) if self.verdict else 0

    @property
    def problems(self) -> list[str]:
        """Why it has not passed; empty if it has."""
        found = [self.failure] if self.failure else []
        if self.verdict is not None:
            duplicated = sum(chunk.duplicated for chunk in self.verdict.chunks)
            lost = self.written - self.arrived
            found += [f"{lost:,} records were lost"] if lost else []
            found += [f"{duplicated:,} records came twice"] if duplicated else []
        for life in self.lives:
            if life.leaks:
                found.append(f"a {life.role} grows: {_growth(life)}, {life.more_files:.0f} more open files")
        before, after = (figures.get("watch_count", 0.0) for figures in (self.server_before, self.server_after))
        if after > WATCHES_MORE * before + WATCHES_FEW:
            found.append(f"watches are left behind: {before:,.0f} at the beginning, {after:,.0f} at the end")
        return found

    def markdown(self) -> str:
        """The whole."""
        early = ", ended early" if self.ended_early else ""
        head = (
            f"{self.took_s / _S_PER_MIN:.1f} minutes (planned: {self.length_s / _S_PER_MIN:g}), seed {self.seed}, "
            f"{len(self.done)} of {self.planned} acts{early}."
        )
        verdict = "\n".join(f"- NOT PASSED: {problem}" for problem in self.problems) or (
            "Nothing lost, nothing twice; and of what lived "
            f"{JUDGED_S / _S_PER_MIN:g} minutes, nothing that grows by more than {GROWTH_MAX_MIB:g} MiB or "
            f"{FILES_MORE_MAX} open files."
        )
        parts = [head, acts_table(self.done), self._records_table(), lives_table(self.lives)]
        parts += [_server_table(self.server_before, self.server_after), verdict]
        return "\n\n".join(parts)

    def _records_table(self) -> str:
        chunks = self.verdict.chunks if self.verdict else ()
        known = self.verdict is not None
        rows = [
            ("records written", f"{self.written:,}"),
            ("records that came out", f"{self.arrived:,}" if known else "not read"),
            ("lost", f"{self.written - self.arrived:,}" if known else "not known"),
            ("duplicated", f"{sum(chunk.duplicated for chunk in chunks):,}" if known else "not known"),
            ("out of order", f"{sum(chunk.out_of_order for chunk in chunks):,}" if known else "not known"),
            ("rounds of a stream", f"{self.rounds:,}"),
            ("longest gap between two commits of a stream", f"{self.worst_gap_s:.1f} s"),
        ]
        return table(("", ">"), rows)


def acts_table(done: Sequence[Done]) -> str:
    """A row for each kind of act."""
    rows = []
    for kind in KINDS:
        of_kind = [one for one in done if one.act.kind == kind]
        if of_kind:
            went_on, whole = [one.went_on_s for one in of_kind], [one.whole_s for one in of_kind]
            figures = (median(went_on), max(went_on), median(whole), max(whole))
            rows.append((kind, str(len(of_kind)), *(f"{seconds:.1f} s" for seconds in figures)))
    heads = ("act", ">times", ">every stream commits again: median", ">worst", ">all is whole: median", ">worst")
    return table(heads, rows)


def lives_table(lives: Iterable[Life]) -> str:
    """A row for each role."""
    by_role: dict[str, list[Life]] = {}
    for life in lives:
        by_role.setdefault(life.role, []).append(life)
    rows = []
    for role, of_role in by_role.items():
        first = next((life.settled[0] for life in of_role if life.settled), of_role[0].samples[-1])
        last = max(life.samples[-1].at_s for life in of_role)
        at_end = [life.samples[-1].memory_mib for life in of_role if life.samples[-1].at_s == last]
        samples = [sample for life in of_role for sample in life.samples]
        lasted_s = sum(life.lasted_s for life in of_role)
        cores = sum(life.samples[-1].cpu_s - life.samples[0].cpu_s for life in of_role) / lasted_s if lasted_s else 0.0
        oldest = max(of_role, key=lambda life: life.lasted_s)
        most = max(sample.memory_mib for sample in samples)
        figures = (f"{first.memory_mib:.0f} MiB", f"{max(at_end):.0f} MiB", f"{most:.0f} MiB", f"{cores:.2f} cores")
        rows.append((role, str(len(of_role)), *figures, _growth(oldest)))
    heads = ("process", ">seen", ">memory: once settled", ">at the end", ">most", ">processor", "growth of the oldest")
    return table(heads, rows)


def _server_table(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    names = (("znode_count", "znodes"), ("watch_count", "watches"), ("ephemerals_count", "ephemeral nodes"))
    named = (*names, ("num_alive_connections", "connections"), ("approximate_data_size", "bytes of data"))
    rows = [(label, f"{before.get(name, 0):,.0f}", f"{after.get(name, 0):,.0f}") for name, label in named]
    return table(("ZooKeeper", ">before the first act", ">after the last"), rows)


def _growth(life: Life) -> str:
    if life.growth_mib is None:
        return f"lived {life.lasted_s / _S_PER_MIN:.1f} min"
    return f"{life.growth_mib:+.0f} MiB in the last third of {life.lasted_s / _S_PER_MIN:.0f} min"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a head that begins with `>` is of a column of figures."""
    lines = ["| " + " | ".join(head.removeprefix(">") for head in heads) + " |"]
    lines.append("|" + "|".join("---:" if head.startswith(">") else "---" for head in heads) + "|")
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
