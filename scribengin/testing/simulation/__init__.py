"""A whole cluster in one process on a seeded scheduler: the engine's own code, simulated time, faults at every effect.

`plan` says what is to happen, `world` runs it, `oracle` judges what came of it, `shrinking` makes a failing plan small.
`simulate_sink` has all that done to a sink of your own.
"""

from scribengin.testing.simulation.sinks import simulate_sink
from scribengin.testing.simulation.streams.sinks import SinkSystem

__all__ = ["SinkSystem", "simulate_sink"]
