"""Nexmark's events, made from their numbers alone: whoever makes the same range with the same seed gets the same bytes.

Of fifty events one is a person, three are auctions and 46 are bids. Sizes, hot auctions, sellers and bidders, and how
many of each are in play follow the configuration that the benchmark's implementations share: 200, 500 and 100 bytes;
half of the bids go to one of a hundred auctions, three of four sellers and bidders are one of a hundred people.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

PERSON, AUCTION, BID = range(3)
SCHEMA_DDL = (
    "kind INT, ts TIMESTAMP, id BIGINT, name STRING, email STRING, card STRING, city STRING, state STRING, "
    "item STRING, description STRING, initial BIGINT, reserve BIGINT, expires TIMESTAMP, seller BIGINT, "
    "category BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, extra STRING"
)
"""What all kinds of events have; a field that a kind does not have is null."""
EVENTS_PER_S = 10_000
"""Of event time."""

Numbers = npt.NDArray[np.int64]
_OF_FIFTY, _PEOPLE, _AUCTIONS = 50, 1, 3
_FIRST_ID = 1_000
_FIRST_CATEGORY, _CATEGORIES = 10, 5
_HOT = 100
"""One of so many auctions, or people, is hot."""
_AUCTIONS_IN_FLIGHT, _ACTIVE_PEOPLE = 100, 1_000
_HOT_BIDS, _HOT_PEOPLE = 2, 4
"""All but one of so many go to what is hot."""
_BEGIN_MS = 1_767_225_600_000  # 2026 in UTC
_EXTRA_BYTES = {PERSON: 40, AUCTION: 250, BID: 8}
"""What brings the events to their average sizes; JSON's names of fields come on top."""
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz ", dtype=np.uint8)


def events(first: int, count: int, *, seed: int = 7) -> pa.Array:
    """The events of these numbers as JSON, in the order of their numbers and so of their times: a binary array."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    kinds = kinds_of(numbers)
    made = pa.concat_arrays([maker(numbers[kinds == kind], seed) for kind, maker in _MAKERS.items()])
    by_kind = np.concatenate([np.flatnonzero(kinds == kind) for kind in _MAKERS])
    return made.take(pa.array(np.argsort(by_kind))).cast(pa.binary())


def kinds_of(numbers: Numbers) -> Numbers:
    """Which kind each event is."""
    place = numbers % _OF_FIFTY
    return np.where(place < _PEOPLE, PERSON, np.where(place < _PEOPLE + _AUCTIONS, AUCTION, BID))


def _people(numbers: Numbers, seed: int) -> pa.Array:
    random = _Random(numbers, seed)
    first, last = (random.one_of(names) for names in (_FIRST_NAMES, _LAST_NAMES))
    email = pc.binary_join_element_wise(random.text(8), random.text(5), "@").cast(pa.string())
    return _json(
        kind=_same(PERSON, numbers), ts=_times(numbers), id=_people_before(numbers) + _FIRST_ID,
        name=pc.binary_join_element_wise(first, last, " "), email=email,
        card=random.below(10**16), city=random.one_of(_CITIES), state=random.one_of(_STATES),
        extra=random.text(_EXTRA_BYTES[PERSON]),
    )  # fmt: skip


def _auctions(numbers: Numbers, seed: int) -> pa.Array:
    random = _Random(numbers, seed)
    initial = random.price()
    return _json(
        kind=_same(AUCTION, numbers), ts=_times(numbers), id=_auctions_before(numbers) + _FIRST_ID,
        item=random.text(20), description=random.text(100), initial=initial, reserve=initial + random.price(),
        expires=_times(numbers, later_ms=1 + random.below(20_000)),
        seller=random.hot_or(_people_before(numbers), _HOT_PEOPLE, _ACTIVE_PEOPLE),
        category=_FIRST_CATEGORY + random.below(_CATEGORIES), extra=random.text(_EXTRA_BYTES[AUCTION]),
    )  # fmt: skip


def _bids(numbers: Numbers, seed: int) -> pa.Array:
    random = _Random(numbers, seed)
    channel = random.one_of(_CHANNELS)
    url = pc.binary_join_element_wise("https://www.nexmark.com", random.text(5), "item.htm", "/")
    return _json(
        kind=_same(BID, numbers), ts=_times(numbers),
        auction=random.hot_or(_auctions_before(numbers), _HOT_BIDS, _AUCTIONS_IN_FLIGHT),
        bidder=random.hot_or(_people_before(numbers), _HOT_PEOPLE, _ACTIVE_PEOPLE),
        price=random.price(), channel=channel, url=url, extra=random.text(_EXTRA_BYTES[BID]),
    )  # fmt: skip


_MAKERS = {PERSON: _people, AUCTION: _auctions, BID: _bids}


def _people_before(numbers: Numbers) -> Numbers:
    """How many people there are up to each event, the event included, less one: the last one's number."""
    return numbers // _OF_FIFTY


def _auctions_before(numbers: Numbers) -> Numbers:
    """The same of auctions; the first person came before the first auction, and counts as auction 0."""
    begun = np.clip(numbers % _OF_FIFTY - _PEOPLE, 0, _AUCTIONS - 1)
    return numbers // _OF_FIFTY * _AUCTIONS + begun


def _times(numbers: Numbers, *, later_ms: Numbers | int = 0) -> pa.Array:
    """When events happen, as text."""
    at = (_BEGIN_MS + numbers * 1000 // EVENTS_PER_S + later_ms).astype("datetime64[ms]")
    return pc.strftime(pa.array(at), format="%Y-%m-%dT%H:%M:%SZ")


def _same(value: int, numbers: Numbers) -> Numbers:
    return np.full(len(numbers), value, dtype=np.int64)


def _json(**fields: pa.Array | Numbers) -> pa.Array:
    """An object for each row. Nothing in it has to be escaped."""
    parts: list[pa.Array | str] = []
    for separator, (name, values) in zip(["{", *[","] * (len(fields) - 1)], fields.items(), strict=True):
        column = pa.array(values)
        quote = "" if pa.types.is_integer(column.type) else '"'
        parts += [f'{separator}"{name}":{quote}', column.cast(pa.string()), quote]
    return pc.binary_join_element_wise(*parts, "}", "")


class _Random:
    """Values that depend on the event's number, the seed and which value it is: one after the other."""

    def __init__(self, numbers: Numbers, seed: int) -> None:
        self._numbers = numbers.astype(np.uint64)
        self._seed = seed
        self._drawn = 0

    def below(self, limit: int) -> Numbers:
        return (self._bits() % np.uint64(limit)).astype(np.int64)

    def one_of(self, words: Sequence[str]) -> pa.Array:
        return pa.array(words).take(pa.array(self.below(len(words))))

    def price(self) -> Numbers:
        """Between 1 and a million, in cents: each power of ten as often as another."""
        return np.rint(10 ** (self._bits() / 2.0**64 * 6) * 100).astype(np.int64)

    def hot_or(self, last: Numbers, ratio: int, active: int) -> Numbers:
        """The hot one of those up to `last`, but once in `ratio`; else one of the `active` last."""
        hot = last // _HOT * _HOT
        oldest = np.maximum(last - active, 0)
        some = oldest + (self._bits() % (last - oldest + 1).astype(np.uint64)).astype(np.int64)
        return np.where(self.below(ratio) > 0, hot, some) + _FIRST_ID

    def text(self, characters: int) -> pa.Array:
        """So many small letters and spaces."""
        words = -(-characters // 8)
        octets = np.stack([self._bits() for _ in range(words)], axis=1).view(np.uint8)
        letters = np.ascontiguousarray(_LETTERS[octets[:, :characters] % len(_LETTERS)])
        offsets = np.arange(0, letters.size + 1, characters, dtype=np.int32)
        return pa.Array.from_buffers(
            pa.string(), len(self._numbers), [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
        )

    def _bits(self) -> npt.NDArray[np.uint64]:
        """64 bits for each event (splitmix64, public domain)."""
        self._drawn += 1
        with np.errstate(over="ignore"):
            mixed = self._numbers * np.uint64(0x9E3779B97F4A7C15) + _odd(self._seed * 1_000_003 + self._drawn)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            return mixed ^ (mixed >> np.uint64(31))


def _odd(value: int) -> np.uint64:
    return np.uint64(value * 0xD1342543DE82EF95 + 1 & 0xFFFFFFFFFFFFFFFF)
