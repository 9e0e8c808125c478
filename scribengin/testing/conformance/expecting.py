"""What the conformance suites say when a promise is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from scribengin.errors import ScribenginError

_SHOWN_CHARACTERS_MAX = 400


def expect(holds: bool, promise: str) -> None:
    """Raise AssertionError, saying `promise`, unless it holds."""
    if not holds:
        raise AssertionError(f"broken promise: {promise}")


def expect_equal(found: object, wanted: object, what: str) -> None:
    """Raise AssertionError unless `found` is as it should be."""
    if found != wanted:
        raise AssertionError(f"broken promise: {what} should be {_shown(wanted)}, and is {_shown(found)}")


@contextmanager
def promised(check: Callable[..., object]) -> Iterator[None]:
    """Run one check: an error of the connector's own breaks the promise that the check is named for."""
    try:
        yield
    except ScribenginError as error:
        promise = check.__name__.replace("_", " ")
        raise AssertionError(f"broken promise: {promise}; it raised {type(error).__name__}: {error}") from error


def numbered(group: int, count: int) -> list[bytes]:
    """Payloads that tell where they come from: `3.0`, `3.1`, ..."""
    return [f"{group}.{number}".encode() for number in range(count)]


def _shown(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) > 20:
        return f"{len(value)} values, {_shown(value[:5])} to {_shown(value[-5:])}"
    return repr(value)[:_SHOWN_CHARACTERS_MAX]
