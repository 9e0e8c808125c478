"""`tools/dev.py simulate`: a cluster in one process, once for every seed, until a promise of the engine is broken.

A seed replays exactly. The first one that fails is made smaller, and its transcript printed.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Generator, Iterable, Sequence
from functools import partial
from multiprocessing import get_context
from typing import get_args

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.testing.simulation.plan import Storage, drawn
from scribengin.testing.simulation.shrinking import shrunk
from scribengin.testing.simulation.world import Outcome, simulate

SEEDS = 2000
TOLD_EVERY = 500
STORAGES = tuple(kind for kind in get_args(Storage) if kind != "sink")
Result = tuple[int, str | None, float]
"""What `broken` says of a schedule."""


def main(arguments: Sequence[str]) -> int:
    """Parse the command line and simulate. Returns the exit code: 1 when a promise was broken."""
    parser = argparse.ArgumentParser(
        prog="tools/dev.py simulate", description="The whole engine in one process, on a seeded scheduler, with faults."
    )
    parser.add_argument("--seeds", type=_positive, default=SEEDS, help=f"how many schedules (default: {SEEDS})")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default: 0)")
    parser.add_argument("--seed", type=int, help="only this one, with its transcript")
    parser.add_argument("--every-stop", action="store_true", help="with --seed: a line for every stop that is passed")
    parser.add_argument("--storage", choices=STORAGES, help="what all read and write (default: drawn from the seed)")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        outcome = simulate(drawn(options.seed, options.storage), every_stop=options.every_stop)
        sys.stdout.write(outcome.transcript)
        return 0 if outcome.failure is None else 1
    return _run(range(options.first, options.first + options.seeds), options.storage)


def broken(seed: int, storage: Storage | None = None) -> Result:
    """One schedule: its seed, the promise that it broke, and for how many seconds the cluster ran."""
    outcome = simulate(drawn(seed, storage))
    return seed, outcome.promise, outcome.seconds


def simulated(seeds: Iterable[int], storage: Storage | None = None) -> Generator[Result, None, None]:
    """What `broken` says of each, in their order, found side by side."""
    with get_context("spawn").Pool(os.cpu_count() or 1, initializer=_collect_seldom) as pool:
        yield from pool.imap(partial(broken, storage=storage), seeds, chunksize=10)


def _collect_seldom() -> None:
    """What is imported is never garbage; to look through it has cost a sixth of a schedule's time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def smallest_failing(seed: int, storage: Storage | None = None) -> Outcome:
    """The schedule of a seed that fails, made smaller."""
    return shrunk(simulate(drawn(seed, storage)))


def _run(seeds: Sequence[int], storage: Storage | None) -> int:
    begun_s = SYSTEM_CLOCK.monotonic_s()
    cluster_s = 0.0
    for done, (seed, promise, seconds) in enumerate(simulated(seeds, storage), start=1):
        cluster_s += seconds
        if promise is not None:
            sys.stdout.write(f"seed {seed} breaks a promise ({promise}); it is made smaller\n\n")
            sys.stdout.write(smallest_failing(seed, storage).transcript)
            chosen = f" --storage {storage}" if storage else ""
            sys.stdout.write(f"\nthe whole of it: tools/dev.py simulate --seed {seed}{chosen}\n")
            return 1
        if done % TOLD_EVERY == 0 or done == len(seeds):
            taken_s = SYSTEM_CLOCK.monotonic_s() - begun_s
            sys.stdout.write(f"{done} schedules, {cluster_s / 3600:.1f} h of a cluster, in {taken_s:.0f} s\n")
            sys.stdout.flush()
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
