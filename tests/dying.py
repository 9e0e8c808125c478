"""The death of a process, in the tests' own: what a failpoint raises, so that nothing after it is done.

with at_failpoint("log.metadata:before", stop_here), pytest.raises(Stopped):
"""

from __future__ import annotations


class Stopped(Exception):
    """Stands for the death of the process where a thread of its own has to tell whoever waits for it."""


def stop_here(_stop: str) -> None:
    """For a failpoint."""
    raise Stopped


class Died(BaseException):
    """The process is no more: nothing that could handle a failure sees it."""


def die(_stop: str) -> None:
    """For a failpoint."""
    raise Died
