"""How a session divides its memory."""

from __future__ import annotations

import pytest

from scribengin.spark.session.memory import beside_heap_mb, heap_mb, memory_mb_min


@pytest.mark.parametrize(
    ("memory_mb", "beside_mb", "heap"),
    [
        (None, 0, 1024),
        (2048, 0, 1024),
        (2048, 1024, 1024),
        (2048, 1025, 1023),
        (2048, 4096, 512),
        (256, 0, 512),
    ],
)
def test_the_heap_is_half_or_what_all_else_leaves(memory_mb: int | None, beside_mb: int, heap: int) -> None:
    assert heap_mb(memory_mb, beside_mb) == heap


@pytest.mark.parametrize("with_jvms", [False, True])
@pytest.mark.parametrize("cores", [1, 2, 8])
@pytest.mark.parametrize("state_mb", [32, 256, 4096])
def test_with_as_much_as_it_takes_at_least_all_fits(state_mb: int, cores: int, with_jvms: bool) -> None:
    least = memory_mb_min(state_mb, cores, with_jvms=with_jvms)
    beside_mb = beside_heap_mb(state_mb, cores, with_jvms=with_jvms)
    assert beside_mb == state_mb + 700 + 100 * cores + with_jvms * 200 * (1 + cores)
    assert heap_mb(least, beside_mb) + beside_mb == least
    assert heap_mb(least - 1, beside_mb) + beside_mb > least - 1
