"""The side of a proxy that readers ask: bytes of segments out of one cache, and tails watched once for all."""
