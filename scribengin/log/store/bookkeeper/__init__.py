"""Segments on BookKeeper: a segment is a ledger, which several machines hold a copy of."""
