"""A frame whose bytes were changed is refused, or it is a message that is written as the same bytes: never a crash."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from scribengin.dafka.wire import (
    Beacon,
    ConsumerHello,
    DirectBatch,
    DirectHead,
    DirectRecord,
    Fetch,
    FrameDecoder,
    GetHeads,
    Head,
    HeadsTold,
    LiveBatch,
    LiveRecord,
    PeerBeacon,
    StoreAck,
    StoreHello,
    Truncated,
    decode,
    decode_beacon,
    decode_peer,
    encode,
    encode_beacon,
    encode_peer,
)
from scribengin.errors import FrameInvalid

MUTATIONS = 100_000
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60)
SEQUENCES = st.integers(0, 2**64 - 1)
FIRSTS = st.integers(0, 2**63)
CONTENTS = st.binary(max_size=40)
MANY = st.lists(CONTENTS, min_size=1)
MESSAGES = st.one_of(
    *(st.builds(kind, NAMES, NAMES, NAMES, SEQUENCES, CONTENTS) for kind in (LiveRecord, DirectRecord)),
    *(
        st.builds(kind, NAMES, NAMES, NAMES, FIRSTS, st.lists(CONTENTS, min_size=1))
        for kind in (LiveBatch, DirectBatch)
    ),
    *(st.builds(kind, NAMES, NAMES, NAMES, SEQUENCES) for kind in (Head, DirectHead, Truncated)),
    st.builds(Fetch, NAMES, NAMES, NAMES, SEQUENCES, st.integers(0, 2**32 - 1)),
    st.builds(StoreAck, NAMES, NAMES, SEQUENCES),
    st.builds(ConsumerHello, NAMES, NAMES, st.lists(NAMES, max_size=5).map(tuple)),
    *(st.builds(kind, NAMES, NAMES) for kind in (GetHeads, StoreHello, HeadsTold)),
)
ADDRESS = "66D4F828B9D74129BE679DDCED388225"
SAMPLES = [
    encode(LiveRecord("hello", ADDRESS, "hello", 300, b"content")),
    encode(DirectRecord(ADDRESS, ADDRESS, "hello", 2**40, b"")),
    encode(Fetch(ADDRESS, ADDRESS, "hello", 5, 99_995)),
    encode(StoreAck(ADDRESS, "hello", 9)),
    encode(Head("hello", ADDRESS, "hello", 9)),
    encode(GetHeads("hello", ADDRESS)),
    encode(ConsumerHello(ADDRESS, ADDRESS, ("hello", "grüße", ""))),
    encode(StoreHello(ADDRESS, ADDRESS)),
    encode(HeadsTold(ADDRESS, ADDRESS)),
    encode_beacon(Beacon(ADDRESS, "10.0.0.3", 34879)),
    encode_peer(PeerBeacon(ADDRESS, "tcp://10.0.0.3:34879")),
    encode_peer(PeerBeacon(ADDRESS, "tcp://10.0.0.3:34879", "0123456789abcdef" * 4)),
]
BATCHES = [
    encode(LiveBatch("hello", ADDRESS, "hello", 300, [b"content", b"", b"c" * 300])),
    encode(DirectBatch(ADDRESS, ADDRESS, "hello", 2**64 - 70, [b"%d" % n for n in range(70)])),
    encode(LiveBatch("", "", "", 0, [b""])),
]
INTERESTING = (0, 1, 2, 4, 127, 128, 254, 255)


@given(MESSAGES)
def test_any_message_is_read_as_it_was_written(message: LiveRecord) -> None:
    assert decode(encode(message)) == message
    assert FrameDecoder().decode(encode(message)) == message


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_whatever_comes_is_a_message_or_refused_by_one_class(frames: list[bytes]) -> None:
    for read in (decode, decode_beacon, decode_peer):
        try:
            read(frames)
        except FrameInvalid:
            continue


def mutated(frames: list[bytes], random_: random.Random) -> list[bytes]:
    """The frames with a few bytes changed, cut, put in, or frames lost, doubled and swapped."""
    changed = [bytearray(frame) for frame in frames]
    for _ in range(random_.randint(1, 3)):
        act = random_.randrange(6)
        frame = random_.choice(changed) if changed else bytearray()
        at = random_.randrange(len(frame) + 1)
        if act < 2 and at < len(frame):
            frame[at] = random_.choice(INTERESTING) if act else frame[at] ^ (1 << random_.randrange(8))
        elif act == 2:
            del frame[at : at + random_.randint(1, 8)]
        elif act == 3:
            frame[at:at] = random_.randbytes(random_.randint(1, 8))
        elif act == 4 and changed:
            changed.pop(random_.randrange(len(changed)))
        elif act == 5:
            changed.append(bytearray(frame))
    return [bytes(frame) for frame in changed]


def test_100_000_mutations_are_refused_or_mean_exactly_their_bytes() -> None:
    random_ = random.Random(17)
    outcomes: Counter[str] = Counter()
    decoder = FrameDecoder(partitions_max=64)
    of_peers: tuple[Callable, Callable] = (decode_peer, encode_peer)
    readers: list[tuple[Callable, Callable]] = [(decode_beacon, encode_beacon), of_peers, of_peers]
    for _ in range(MUTATIONS):
        sample = random_.randrange(len(SAMPLES))
        frames = mutated(SAMPLES[sample], random_)
        of_towers = sample - len(SAMPLES) + len(readers)
        read, write = readers[of_towers] if of_towers >= 0 else (decoder.decode, encode)
        try:
            message = read(frames)
        except FrameInvalid:
            outcomes["refused"] += 1
            continue
        outcomes["a message"] += 1
        # A port may have zeros before it, and is written without.
        assert write(message) == frames or (read is decode_beacon and decode_beacon(write(message)) == message)
    assert outcomes["refused"] > MUTATIONS / 4
    assert outcomes["a message"] > MUTATIONS / 20
    assert len(decoder._known) <= 64


def test_100_000_mutations_of_batches_are_refused_or_mean_exactly_their_bytes() -> None:
    random_ = random.Random(18)
    outcomes: Counter[str] = Counter()
    decoder = FrameDecoder(partitions_max=64)
    for _ in range(MUTATIONS):
        frames = mutated(random_.choice(BATCHES), random_)
        try:
            message = decoder.decode(frames)
        except FrameInvalid:
            outcomes["refused"] += 1
            continue
        outcomes["a message"] += 1
        assert encode(message) == frames
    assert outcomes["refused"] > MUTATIONS / 4
    assert outcomes["a message"] > MUTATIONS / 20
