"""A campaign of mutated entries: what one mutation is, and what may come of it. Runs in a process of its own.

Two kinds of mutation. *Blind* ones change bytes and leave the checksums as they are, as disks and cables do: what comes
of it is damage, or the entry as it was. *Signed* ones make the checksums right again, as a writer with a bug or an
attacker would: what comes of it is damage, or a batch that can be used in every way a reader uses one. Neither may end
the process, raise, or allocate what nobody wrote.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from scribengin.log.format.entry import (
    HEADER_BYTES,
    Damage,
    EntryHeader,
    EntryType,
    encode,
    read_body,
    read_header,
    to_records,
)
from scribengin.log.format.records import Record, body_of_records

DECODED_BYTES_MAX = 1024 * 1024
"""The bound that the campaign reads with: far more than any sample holds."""
CODECS = ("none", "lz4", "zstd")
INTERESTING = (0, 1, -1, 7, 63, 64, 65, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**33, 2**62, 2**63 - 1)
"""Numbers that lengths, offsets and counts go wrong at; 2**33 is the bomb that says it expands to 8 GiB."""

_SHAPES: tuple[list[Record], ...] = (
    [Record(7, None, None, b"one record")],
    [Record(7, "flights/ü", b"key", b"")],
    [Record(n, None, None, b"%d" % n) for n in range(20)],
    [Record(n, "a.b" if n % 3 else None, b"k%d" % n if n % 2 else None, bytes(n)) for n in range(40)],
    [Record(2**62, "ch" * 50, bytes(500), bytes(range(256)) * 8) for _ in range(3)],
)


@dataclass(frozen=True)
class Sample:
    """An entry as it is stored, and what is in it."""

    whole: bytes
    header: EntryHeader
    batch: pa.RecordBatch

    @property
    def body(self) -> bytes:
        return self.whole[HEADER_BYTES:]


def samples() -> list[Sample]:
    """Entries of every type, every codec and several shapes."""
    made = []
    for codec in CODECS:
        for records in _SHAPES:
            for kind in EntryType:
                batch = body_of_records(records)
                encoded = encode(batch, codec=codec).as_type(kind)
                header = encoded.place(entry=3, group_index=1, sequence=10, epoch=2)
                whole = header.to_bytes() + b"".join(bytes(memoryview(buffer)) for buffer in encoded.buffers)
                made.append(Sample(whole, header, batch))
    return made


@dataclass
class Campaign:
    """Mutates samples and judges what reading them gives. Deterministic for a seed."""

    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.samples = samples()

    def run(self, entries: int) -> None:
        """Mutate and read so many entries."""
        for _ in range(entries):
            sample = self.random.choice(self.samples)
            mutate = self.random.choice(MUTATIONS)
            changed = mutate(self.random, sample)
            try:
                outcome = judge(sample, changed, signed=mutate in SIGNED)
            except Exception as error:  # noqa: BLE001  whatever a reader raises here, it is what is looked for
                outcome = f"wrong: {type(error).__name__}: {error}"
            if outcome.startswith("wrong"):
                self.wrong.append(f"seed {self.seed}, {mutate.__name__} of {sample.header}: {outcome}")
            self.outcomes[f"{mutate.__name__}: {outcome}"] += 1


def judge(sample: Sample, changed: bytes, *, signed: bool) -> str:
    """What reading `changed` gives: "damage", "as it was", "usable", or "wrong" with the reason."""
    found = read(changed)
    if isinstance(found, Damage):
        return "damage"
    if found.equals(sample.batch):
        return "as it was"
    if not signed:
        return f"wrong: it passed as data: {found.to_pydict()}"
    use(found)
    return "usable"


def read(data: bytes) -> pa.RecordBatch | Damage:
    """Read an entry as readers do."""
    whole = pa.py_buffer(data)
    header = read_header(whole)
    if isinstance(header, Damage):
        return header
    body = whole.slice(HEADER_BYTES, min(header.body_bytes, whole.size - HEADER_BYTES))
    return read_body(header, body, decoded_bytes_max=DECODED_BYTES_MAX)


def use(batch: pa.RecordBatch) -> None:
    """Everything that our readers, Arrow and Spark do with a body: touch every value and every offset."""
    records = to_records(batch)
    assert len(batch.to_pylist()) == batch.num_rows
    copied = pa.concat_batches([records, records])
    copied.filter(pc.greater_equal(copied.column("txid"), 5)).validate(full=True)
    records.take(pa.array([batch.num_rows - 1, 0])).validate(full=True)
    pc.starts_with(records.column("channel"), "a")
    encode(batch.slice(batch.num_rows // 2), codec="zstd")


# --- mutations: a sample in, bytes out -------------------------------------------------------------------------------


def flip_bits(chosen: random.Random, sample: Sample) -> bytes:
    return _flipped(chosen, sample.whole)


def cut(chosen: random.Random, sample: Sample) -> bytes:
    return sample.whole[: chosen.randrange(len(sample.whole))]


def swap_ranges(chosen: random.Random, sample: Sample) -> bytes:
    return _swapped(chosen, sample.whole)


def overwrite(chosen: random.Random, sample: Sample) -> bytes:
    return _overwritten(chosen, sample.whole)


def shift(chosen: random.Random, sample: Sample) -> bytes:
    """Bytes left out or put in somewhere: what follows stands at another place."""
    at, length = chosen.randrange(len(sample.whole)), chosen.randrange(1, 65)
    if chosen.random() < 0.5:
        return sample.whole[:at] + sample.whole[at + length :]
    return sample.whole[:at] + chosen.randbytes(length) + sample.whole[at:]


def sign_header(chosen: random.Random, sample: Sample) -> bytes:
    """A field of the header made up, lengths most of all, and its checksum made right."""
    name, bits = chosen.choice(_FIELDS)
    return _with_header(sample, sample.body, **{name: chosen.choice(INTERESTING) % 2**bits})


def sign_flips(chosen: random.Random, sample: Sample) -> bytes:
    return _signed(sample, _flipped(chosen, sample.body))


def sign_swap(chosen: random.Random, sample: Sample) -> bytes:
    return _signed(sample, _swapped(chosen, sample.body))


def sign_noise(chosen: random.Random, sample: Sample) -> bytes:
    return _signed(sample, _overwritten(chosen, sample.body))


def sign_number(chosen: random.Random, sample: Sample) -> bytes:
    """A number in the body replaced by an interesting one: buffer offsets and lengths, row and null counts, offsets of
    values, lengths of what is compressed."""
    size = chosen.choice((4, 8))
    at = chosen.randrange(0, len(sample.body) - size, 4)
    number = (chosen.choice(INTERESTING) % 2 ** (8 * size)).to_bytes(size, "little")
    return _signed(sample, sample.body[:at] + number + sample.body[at + size :])


def sign_offset(chosen: random.Random, sample: Sample) -> bytes:
    """A number in the body moved by a little: offsets that overlap, run backwards, or end behind the data."""
    at = chosen.randrange(0, len(sample.body) - 4, 4)
    number = (struct.unpack_from("<I", sample.body, at)[0] + chosen.choice((-64, -8, -1, 1, 8, 64))) % 2**32
    return _signed(sample, sample.body[:at] + struct.pack("<I", number) + sample.body[at + 4 :])


def sign_length(chosen: random.Random, sample: Sample) -> bytes:
    """A body that ends early or goes on, with a header that says so."""
    length = chosen.randrange(64, len(sample.body) + 257, 64)
    return _signed(sample, (sample.body + chosen.randbytes(256))[:length])


def sign_splice(chosen: random.Random, sample: Sample) -> bytes:
    """The body of one entry under the header of another."""
    return _signed(sample, chosen.choice(_all_samples()).body)


def sign_codec(chosen: random.Random, sample: Sample) -> bytes:
    """A header that names another codec than the body has."""
    return _with_header(sample, sample.body, codec=chosen.randrange(3))


SIGNED: frozenset[Callable[[random.Random, Sample], bytes]] = frozenset(
    {sign_header, sign_flips, sign_swap, sign_noise, sign_number, sign_offset, sign_length, sign_splice, sign_codec}
)
MUTATIONS: list[Callable[[random.Random, Sample], bytes]] = [
    flip_bits,
    cut,
    swap_ranges,
    overwrite,
    shift,
    *sorted(SIGNED, key=lambda mutation: mutation.__name__),
]

_FIELDS = [
    ("body_bytes", 64),
    ("body_bytes", 64),
    ("records", 32),
    ("records", 32),
    ("body_crc", 32),
    ("type", 8),
    ("codec", 8),
    ("group_index", 8),
    ("sequence", 63),
    ("first_txid", 63),
    ("last_txid", 63),
    ("entry", 64),
    ("epoch", 64),
]
_ALL: list[Sample] = []


def _all_samples() -> list[Sample]:
    if not _ALL:
        _ALL.extend(samples())
    return _ALL


def _with_header(sample: Sample, body: bytes, **fields: int) -> bytes:
    values = {name: getattr(sample.header, name) for name in EntryHeader.__slots__} | fields
    return EntryHeader(**values).to_bytes() + body


def _signed(sample: Sample, body: bytes) -> bytes:
    return _with_header(sample, body, body_crc=crc32c(body), body_bytes=len(body))


def _flipped(chosen: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chosen.choice((1, 1, 2, 8))):
        bit = chosen.randrange(len(data) * 8)
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _swapped(chosen: random.Random, data: bytes) -> bytes:
    length = chosen.choice((1, 4, 8, 64))
    first, second = sorted(chosen.randrange(max(1, len(data) - length)) for _ in range(2))
    if second < first + length:
        return data
    middle = data[first + length : second]
    return (
        data[:first] + data[second : second + length] + middle + data[first : first + length] + data[second + length :]
    )


def _overwritten(chosen: random.Random, data: bytes) -> bytes:
    at, length = chosen.randrange(len(data)), chosen.randrange(1, 65)
    noise = chosen.choice((chosen.randbytes(length), bytes(length), b"\xff" * length))
    return (data[:at] + noise + data[at + length :])[: len(data)]


# --- a process of its own ---------------------------------------------------------------------------------------------


def run_campaign(seed: int, entries: int, report: Path) -> None:
    """Run a campaign and leave what was wrong in the file `report`, a line each; the last says that it ended."""
    campaign = Campaign(seed)
    campaign.run(entries)
    lines = [f"{outcome}: {count}" for outcome, count in sorted(campaign.outcomes.items()) if "wrong" not in outcome]
    peak = pa.default_memory_pool().max_memory()
    if peak > 2 * DECODED_BYTES_MAX:
        campaign.wrong.append(f"wrong: {peak} bytes were allocated at once")
    report.write_text("\n".join([*campaign.wrong, *lines, f"ended after {campaign.outcomes.total()} entries"]))
