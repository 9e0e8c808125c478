"""What an owner offers to its streaming query, and what the query's sources answer: files in one directory.

Spark asks each source of a query where its stream ends just now, once a *trigger*, in a process of the source's own.
The engine plans ranges for all of them at once, and one round commits them all: so they must go into one batch, whole.
Of the sources that are asked in a trigger the first one waits for an offer; what it has answered the others answer.

    owner (QueryOffers)                                    sources (OfferReader)
    bind(start, end, splits) -> <range>.splits             partitions of a range: what is bound to it
    offer(offsets) -> <number>.offer                       the first: waits for a number; the others: that one, too
    idle() <- trigger                                      trigger: its number, the offer answered, whether it waits

An offset of Spark's is {"source", "streams": {stream: {"at": position, "records": of the range that ended there}}}
(of beats {"source", "at_ms"}, beats.py):
with the number of records the same range is planned again after a crash. Where late records go to a sink, it has
"watermark_ms", too: as it was when the range was planned. So a batch that is run again takes the same records for late.
With "owed_by" the range has no records: an owner had the query run the batch that this one, of another owner, has left
due. Spark runs none by itself where it did not run the one before.
A range without a file is one that the engine did not plan: reading it would be no round of ours.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.base.threads import pause

if TYPE_CHECKING:  # sources live in processes of their own, which shall not import every connector
    from scribengin.connectors.contract import RecordSplit

Offset = dict[str, Any]
Portable = Callable[[str, "Sequence[RecordSplit]"], "Sequence[RecordSplit]"]
POLL_S = 0.005
WAIT_S = 1.0
"""How long a source waits for an offer. Then it answers, and Spark sees whether anybody still wants the query."""
FIRST_WAIT_S = 60.0
"""As long for the first of all, which each owner makes as soon as it runs a round: a new query whose sources answer
before runs a batch without records, and that were a round of its own, on slow machines alone."""
_TRIGGER = "trigger"
_INITIAL = "initial"
_STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class BoundRange:
    """What the range [start, end) of a source reads."""

    start: Offset
    end: Offset
    splits: Sequence[RecordSplit]


class QueryOffers:
    """The owner's side. Used by one thread."""

    def __init__(self, directory: Path, initial: Mapping[str, Offset], portable: Portable | None = None) -> None:
        """`directory` is empty; `initial` says by source where its stream began. `portable` makes of a source's splits
        what executors elsewhere can read."""
        self._directory = directory
        self._portable = portable
        self._number = 0
        self._bound: list[Path] = []
        self._bound_max = 2 * len(initial)  # one batch is read, and one is offered
        _write(directory / _INITIAL, initial)

    def bind(self, bound: BoundRange) -> None:
        """Let sources find what a range reads. Raises what making that `portable` raises."""
        path = self._directory / _range_name(bound.start, bound.end)
        splits = bound.splits if self._portable is None else self._portable(str(bound.end["source"]), bound.splits)
        _replace(path, pickle.dumps(list(splits), protocol=pickle.HIGHEST_PROTOCOL))
        self._bound.append(path)
        while len(self._bound) > self._bound_max:
            self._bound.pop(0).unlink(missing_ok=True)

    def offer(self, offsets: Mapping[str, Offset]) -> None:
        """Where the stream of each source ends now. Offsets that are where they were: see whether state is due."""
        self._number += 1
        _write(_offer(self._directory, self._number), offsets)
        _offer(self._directory, self._number - 2).unlink(missing_ok=True)  # nobody can be at it any more

    def idle(self) -> bool:
        """Whether the query has done with the last offer: its sources have answered it, and are asked for the next."""
        trigger = self._trigger()  # read once: it changes
        return bool(trigger["waits"]) and trigger["number"] == self._number

    def waits(self) -> bool:
        """Whether the query has done with all that it was offered, and asks for more."""
        return bool(self._trigger()["waits"])

    def _trigger(self) -> dict[str, Any]:
        return _read(self._directory / _TRIGGER) or {"waits": False, "number": 0}

    def stop(self) -> None:
        """Let no source wait any more."""
        (self._directory / _STOPPING).touch()

    def remove(self) -> None:
        """The query has ended. What it has handed over stays readable to whoever has it."""
        shutil.rmtree(self._directory, ignore_errors=True)


class OfferReader:
    """One source's side, in the process that Spark has started for it."""

    def __init__(self, directory: Path, source: str) -> None:
        self._directory = directory
        self._source = source
        self._triggers = 0
        self._answered = 0

    def initial(self) -> Offset:
        """Where the stream began."""
        return self._of(_read(self._directory / _INITIAL) or {})

    def latest(self, start: Offset) -> Offset:
        """Where it ends in this trigger; `start`: nothing was offered."""
        self._triggers += 1
        trigger = _read(self._directory / _TRIGGER) or {"trigger": 0, "number": 0}
        first = trigger["trigger"] < self._triggers
        number = self._await(trigger["number"]) if first else trigger["number"]
        if number == self._answered:
            return start
        self._answered = number
        return self._of(_read(_offer(self._directory, number)) or {})

    def splits(self, start: Offset, end: Offset) -> list[RecordSplit]:
        """What is bound to a range. Raises RuntimeError when nothing is."""
        path = self._directory / _range_name(start, end)
        if not path.exists():
            raise RuntimeError(f"a batch of source '{self._source}' reads a range that no round has planned: {end}")
        splits: list[RecordSplit] = pickle.loads(path.read_bytes())
        return splits

    def _await(self, number: int) -> int:
        """As the first of a trigger: the next offer's number, or the same one."""
        self._say(number, waits=True)
        for _ in range(round((WAIT_S if number else FIRST_WAIT_S) / POLL_S)):
            if _offer(self._directory, number + 1).exists():
                number += 1
                break
            if (self._directory / _STOPPING).exists() or not self._directory.exists():
                break
            pause(POLL_S)
        self._say(number, waits=False)
        return number

    def _say(self, number: int, *, waits: bool) -> None:
        _write(self._directory / _TRIGGER, {"trigger": self._triggers, "number": number, "waits": waits})

    def _of(self, offsets: Mapping[str, Offset]) -> Offset:
        return offsets[self._source]


def _offer(directory: Path, number: int) -> Path:
    return directory / f"{number}.offer"


def _range_name(start: Offset, end: Offset) -> str:
    text = json.dumps([start, end], sort_keys=True)
    return f"{hashlib.sha256(text.encode()).hexdigest()}.splits"


def _write(path: Path, value: Any) -> None:
    _replace(path, json.dumps(value).encode())


def _replace(path: Path, data: bytes) -> None:
    """Whole, or not at all, to whoever reads it meanwhile."""
    beside = path.with_suffix(f".{os.getpid()}.new")
    beside.write_bytes(data)
    beside.replace(path)


def _read(path: Path) -> Any:
    """None: it is not there."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
