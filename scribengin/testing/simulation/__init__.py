"""A whole cluster in one process on a seeded scheduler: the engine's own code, simulated time, faults at every effect.

`plan` says what is to happen, `world` runs it, `oracle` judges what came of it, `shrinking` makes a failing plan small.
"""
