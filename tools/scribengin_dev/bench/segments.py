"""Looks at a log of very many segments, beside the same looks at one that has a hundredth of them."""

from __future__ import annotations

from scribengin.log import DLSN
from scribengin.testing.log_samples import forge_segments
from scribengin_dev.bench.logs import LogBench
from scribengin_dev.bench.rows import Row, alternating

SEGMENTS = "log-segments-10000"
_FEWER = 100
_MS_PER_S = 1000


def segments(bench: LogBench) -> Row:
    """Open it for reading and for writing, count it, truncate and purge one segment: medians of `scale.runs` times."""
    many, few = bench.scale.segments, bench.scale.segments // _FEWER
    with bench.new_log() as large, bench.new_log() as small:
        for log, count in ((large, many), (small, few)):
            forge_segments(bench.namespace, bench.registry, log, count, files=True)
        # The small one shall not run out of segments: each run truncates one.
        runs = min(bench.scale.runs, few - 1)
        ours_ms, peer_ms = alternating(runs, lambda: (_looks_ms(bench, large, many), _looks_ms(bench, small, few)))
    what = f"{many:,} segments; open to read and to write, count, truncate and purge one segment, one after the other"
    return Row(SEGMENTS, "ms", ours_ms, peer_ms, f"the same with {few:,} segments", what)


def _looks_ms(bench: LogBench, log: str, segments: int) -> float:
    namespace = bench.namespace
    first = namespace.first_dlsn(log).segment
    begun_s = bench.clock.monotonic_s()
    namespace.open_reader(log, DLSN(segments, 0, 0)).close()
    namespace.open_writer(log).close()
    assert namespace.count(log) == segments - first + 1, "as many as there are"
    assert namespace.truncate(log, DLSN(first + 1, 0, 0)), "there is one more"
    assert namespace.purge(log).segments == 1, "the first"
    return (bench.clock.monotonic_s() - begun_s) * _MS_PER_S
