"""What an edit changes in a task that is open: the limits of its rounds, and which of its sources are read."""

from __future__ import annotations

from scribengin.dataflow.config import ErrorsConfig, RoundConfig
from scribengin.log import LogNamespace
from scribengin_registry.contract import Registry
from tests.integration.dataflow.test_round_edges import LOG_SINK, append, delivered, namespace, owner, resources

__all__ = ["namespace"]
ERRORS = ErrorsConfig()


def test_the_next_round_reads_no_more_than_it_may_now(registry: Registry, namespace: LogNamespace) -> None:
    with resources(registry, LOG_SINK) as opened:
        task = owner(registry, opened, 1)
        for n in range(4):
            append(namespace, range(n, n + 1))
        task.reconfigure(RoundConfig(records_max=1), ERRORS, ())
        first = task.run_round()
        task.reconfigure(RoundConfig(), ERRORS, ())
        rest = task.run_round()
        assert first is not None
        assert rest is not None
        assert (first.records_in, rest.records_in) == (1, 3)
        task.close()
        assert delivered(opened) == [0, 1, 2, 3]


def test_a_paused_source_is_neither_read_nor_waited_for_nor_ended(registry: Registry, namespace: LogNamespace) -> None:
    with resources(registry, LOG_SINK) as opened:
        task = owner(registry, opened, 1)
        append(namespace, range(3))
        with namespace.open_writer("in/0") as writer:
            writer.mark_end_of_stream()
        task.reconfigure(RoundConfig(), ERRORS, ("in",))
        assert task.run_round() is None
        assert not task.wait(0.01)
        assert not task.ended()
        assert [(stream.records, stream.paused) for stream in task.lags()] == [(3, True)], "it is shown how much waits"
        task.reconfigure(RoundConfig(), ERRORS, ())
        assert task.wait(120)
        assert task.run_round() is not None
        assert task.ended()
        task.close()
        assert delivered(opened) == [0, 1, 2]
