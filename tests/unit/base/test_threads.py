"""Work that goes on in the background until it is done."""

from __future__ import annotations

import pytest

from scribengin.base import threads
from scribengin.base.threads import go_on_trying
from scribengin.errors import ScribenginError
from scribengin.testing.waiting import wait_until


def test_what_fails_is_tried_again_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_TRY_AGAIN_S", 0.001)
    tries: list[bool] = []

    def attempt() -> bool:
        tries.append(len(tries) == 3)
        if len(tries) == 2:
            raise ScribenginError("somebody else was as quick")
        return tries[-1]

    go_on_trying("tries", attempt)
    wait_until(lambda: True in tries, what="it to be done")
    assert tries == [False, False, False, True]
