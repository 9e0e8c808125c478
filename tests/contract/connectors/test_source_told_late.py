"""A source whose open readers are told late of what was appended keeps what a source promises."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from scribengin.base.model import Position
from scribengin.connectors import Environment, open_source
from scribengin.connectors.log.source import LogSourceConfig, LogStreamReader
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.log import LogConfig, LogNamespace
from scribengin.testing import check_source
from scribengin.testing.memory.registry import MemoryEnsemble


class ToldWhenTheyWait:
    """Keeps what a session is to tell until a reader waits. Then nobody is late."""

    def __init__(self, wait: Callable[[LogStreamReader, Position, float], bool]) -> None:
        self._wait = wait
        self._waiting = 0
        self._kept: deque[Callable[[], None]] = deque()

    def tell(self, action: Callable[[], None]) -> None:
        self._kept.append(action)
        if self._waiting:
            self._tell_all()

    def wait(self, reader: LogStreamReader, position: Position, timeout_s: float) -> bool:
        self._waiting += 1
        self._tell_all()
        try:
            return self._wait(reader, position, timeout_s)
        finally:
            self._waiting -= 1

    def _tell_all(self) -> None:
        while self._kept:
            self._kept.popleft()()


def test_logs_of_which_changes_are_told_late_are_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late, ensemble = ToldWhenTheyWait(LogStreamReader.wait), MemoryEnsemble()
    monkeypatch.setattr(LogStreamReader, "wait", lambda reader, position, s: late.wait(reader, position, s))
    with ExitStack() as opened:
        registry = opened.enter_context(ensemble.connect(dispatch=late.tell))
        environment = Environment(registry=registry, dataflow="conformance", nodes=STREAM_NODES)
        writing = opened.enter_context(ensemble.connect())
        LogNamespace.bind("/logs", tmp_path, registry=writing)
        namespace = opened.enter_context(LogNamespace.open("/logs", registry=writing))
        namespace.create("in", LogConfig(segment_bytes_max=4096))
        writer = opened.enter_context(namespace.open_writer("in"))

        def append(_stream: str, payloads: Sequence[bytes]) -> None:
            for future in [writer.write(payload) for payload in payloads]:
                future.result(120)

        config = LogSourceConfig.parse({"kind": "log", "logs": "in"}, source="a test")
        check_source(
            lambda: open_source("in", config, environment), append, seal=lambda _stream: writer.mark_end_of_stream()
        )
