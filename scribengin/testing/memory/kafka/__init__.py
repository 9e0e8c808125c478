"""Kafka in memory, for tests and simulations: transactions, groups and topics as far as sinks and sources need them.

It passes the suite that a real broker passes at the same seam, that of the client (`conformance.kafka`), and random
histories on both are compared (`tests/integration/connectors/test_memory_kafka.py`). It is never what a user runs.
"""

from scribengin.testing.memory.kafka.cluster import MemoryKafka

__all__ = ["MemoryKafka"]
