"""How much of a session's memory is its JVM's heap: the rest is its Python processes', and what Java and RocksDB hold
outside of the heap."""

from __future__ import annotations

MEMORY_MB_DEFAULT = 2048
"""Where nobody has said how much."""
HEAP_MB_MIN = 512
"""Spark refuses to start with less than 472 MB."""
_ALL_ELSE_MB = 700
_A_CORE_MB = 100
_A_JVM_MB = 200
# With state, beside the heap and RocksDB: 400 of the JVM for code, threads and what malloc keeps, and Python processes,
# of which one a core runs tasks. Measured with one source: `bench state-memory`. Where logs are on BookKeeper or
# HDFS, the worker has a JVM for them, and so has each Python process that runs tasks.


def heap_mb(memory_mb: int | None, beside_mb: int = 0) -> int:
    """The heap of a session that may use `memory_mb` with all of its processes: half of it, or what is left where
    `beside_mb` are wanted for all else."""
    memory_mb = memory_mb or MEMORY_MB_DEFAULT
    return max(min(memory_mb // 2, memory_mb - beside_mb), HEAP_MB_MIN)


def beside_heap_mb(state_mb: int, cores: int, *, with_jvms: bool) -> int:
    """What is wanted beside the heap where RocksDB has `state_mb` in memory. `with_jvms`: a source or a sink has a JVM
    of its own in each process."""
    jvms = 1 + cores if with_jvms else 0
    return state_mb + _ALL_ELSE_MB + _A_CORE_MB * cores + _A_JVM_MB * jvms


def memory_mb_min(state_mb: int, cores: int, *, with_jvms: bool) -> int:
    """What a session with so much for state may use at least; with less, it holds more than that in the end."""
    return HEAP_MB_MIN + beside_heap_mb(state_mb, cores, with_jvms=with_jvms)
