"""Your own sink in simulated clusters: masters, workers and the registry around it are the engine's own.

`simulate_sink` is to interleavings and crashes what `scribengin.testing.check_sink` is to single calls: run that first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from scribengin.testing.simulation.plan import drawn
from scribengin.testing.simulation.shrinking import shrunk
from scribengin.testing.simulation.world import MakeSystem, simulate

SEEDS = 200


def simulate_sink(make_system: MakeSystem, *, seeds: Iterable[int] = range(SEEDS), stops: Sequence[str] = ()) -> None:
    """Run the sink of a system once for every seed, each time in another cluster, with other faults.

    `make_system()` makes the system that the sink writes to, empty; it is called once for every simulation. `stops`
    names stops in the sink's own code at which faults are to happen, too (`table.rename:after`, of a `failpoint`).
    A seed takes about a tenth of a second.

    Raises AssertionError at the first seed by which a promise is broken: the promise, what was seen, and the transcript
    of the smallest schedule found that breaks it. Raises what readers of the output raise, if it is no ScribenginError.
    """
    run = partial(simulate, make_system=make_system)
    for seed in seeds:
        outcome = run(drawn(seed, "sink", stops))
        if outcome.failure is None:
            continue
        if run(outcome.plan).transcript != outcome.transcript:
            raise AssertionError(
                f"seed {seed} goes another way each time: the sink, or its system, draws something by chance, or reads "
                f"a clock that is not its environment's. One of the ways:\n\n{outcome.transcript}"
            )
        small = shrunk(outcome, run=run)
        raise AssertionError(f"seed {seed} of the sink: {small.failure}\n\n{small.transcript}") from small.failure
