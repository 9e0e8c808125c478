"""A wait leaves the processor to those who are waited for."""

from __future__ import annotations

import pytest

from scribengin.testing import waiting


@pytest.mark.parametrize(("look_s", "pause_s"), [(0.0, 0.01), (0.0005, 0.01), (0.004, 0.04), (0.02, 0.1), (7.0, 0.1)])
def test_what_takes_long_to_look_at_is_looked_at_less_often(
    look_s: float, pause_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Machine()
    monkeypatch.setattr(waiting, "pause", clock.pause)
    left = [True, True, False]

    def holds() -> bool:
        clock.now_s += look_s
        return not left.pop(0)

    waiting.wait_until(holds, clock=clock)
    assert clock.paused_s == pytest.approx([pause_s, pause_s])


class Machine:
    """A clock on which time passes where somebody looks or pauses."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.paused_s: list[float] = []

    def now_ms(self) -> int:
        return round(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.paused_s.append(seconds)
        self.now_s += seconds
