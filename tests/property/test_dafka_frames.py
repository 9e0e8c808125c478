"""A frame whose bytes were changed is refused, or it is a message that is written as the same bytes: never a crash."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin.dafka.state import (
    EARLIEST,
    Append,
    ConsumerState,
    DafkaPartition,
    FollowerState,
    ProducerState,
    Send,
    StartOf,
    StoredRange,
    StoreState,
)
from scribengin.dafka.state.audience import Audience
from scribengin.dafka.wire import (
    Beacon,
    ConsumerHello,
    DirectBatch,
    DirectHead,
    DirectRecord,
    Fetch,
    FindTime,
    FrameDecoder,
    GetHeads,
    Head,
    HeadsTold,
    KnownOfTime,
    LiveBatch,
    LiveRecord,
    Message,
    PeerBeacon,
    RunDecoder,
    StoreAck,
    StoreHello,
    Subscription,
    TimeFound,
    Truncated,
    decode,
    decode_beacon,
    decode_peer,
    decode_subscription,
    encode,
    encode_beacon,
    encode_peer,
    topic_prefix,
)
from scribengin.dafka.wire.batches import GROUP_BYTES
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
    st.builds(FindTime, NAMES, NAMES, NAMES, NAMES, SEQUENCES),
    st.builds(TimeFound, NAMES, NAMES, NAMES, NAMES, SEQUENCES, st.sampled_from(KnownOfTime), SEQUENCES),
)
ADDRESS = "66D4F828B9D74129BE679DDCED388225"
SAMPLES = [
    encode(LiveRecord("hello", ADDRESS, "hello", 300, b"content")),
    encode(DirectRecord(ADDRESS, ADDRESS, "hello", 2**40, b"")),
    encode(Fetch(ADDRESS, ADDRESS, "hello", 5, 99_995)),
    encode(StoreAck(ADDRESS, "hello", 9)),
    encode(Head("hello", ADDRESS, "hello", 9)),
    encode(DirectHead(ADDRESS, ADDRESS, "hello", 9)),
    encode(Truncated(ADDRESS, ADDRESS, "hello", 9)),
    encode(GetHeads("hello", ADDRESS)),
    encode(ConsumerHello(ADDRESS, ADDRESS, ("hello", "grüße", ""))),
    encode(StoreHello(ADDRESS, ADDRESS)),
    encode(HeadsTold(ADDRESS, ADDRESS)),
    encode(FindTime(ADDRESS, ADDRESS, ADDRESS, "hello", 5)),
    encode(TimeFound(ADDRESS, ADDRESS, ADDRESS, "hello", 5, KnownOfTime.WHERE, 9)),
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


def test_100_000_mutations_of_subscriptions_are_refused_or_mean_exactly_their_bytes() -> None:
    """Of what an XPUB socket hears."""
    random_ = random.Random(19)
    kinds = (LiveRecord, LiveBatch, DirectBatch, ConsumerHello, StoreHello, GetHeads, FindTime)
    samples = [begins + topic_prefix(kind, ADDRESS, exact=False) for kind in kinds for begins in (b"\1", b"\0")]
    outcomes: Counter[str] = Counter()
    audience = Audience("hello")
    for _ in range(MUTATIONS):
        frame = b"".join(mutated([random_.choice(samples)], random_))
        try:
            heard = decode_subscription(frame)
        except FrameInvalid:
            outcomes["refused"] += 1
            continue
        outcomes["a subscription"] += 1
        assert bytes([heard.begins]) + heard.prefix == frame
        addresses = [heard.address_of(kind) for kind in (ConsumerHello, StoreHello, FindTime)]
        assert all(one is None or one.encode() in frame for one in addresses)
        audience.heard(heard)
    assert outcomes["refused"] > MUTATIONS / 40
    assert outcomes["a subscription"] > MUTATIONS / 4


LAST = [
    encode(LiveRecord("hello", ADDRESS, "hello", 2**64 - 2, b"content")),
    encode(DirectBatch(ADDRESS, ADDRESS, "hello", 2**63 - 1, [b"content"] * 3)),
    encode(Head("hello", ADDRESS, "hello", 2**64 - 1)),
    encode(Truncated(ADDRESS, ADDRESS, "hello", 2**64 - 2)),
    encode(Truncated(ADDRESS, ADDRESS, "hello", 2**63)),
    encode(StoreAck(ADDRESS, "hello", 2**64 - 1)),
    encode(Fetch(ADDRESS, ADDRESS, "hello", 2**64 - 1, 2**32 - 1)),
    encode(FindTime(ADDRESS, ADDRESS, ADDRESS, "hello", 2**64 - 1)),
    encode(TimeFound(ADDRESS, ADDRESS, ADDRESS, "hello", 5, KnownOfTime.WHERE, 2**64 - 1)),
    encode(TimeFound(ADDRESS, ADDRESS, ADDRESS, "hello", 5, KnownOfTime.BEGINS, 2**62)),
]
"""Of sequences that nobody ever comes to."""


class Roles:
    """One of each kind, without sockets. What it sends, somebody has to be able to read."""

    def __init__(self, random_: random.Random) -> None:
        mine = DafkaPartition("hello", ADDRESS)
        kept = {mine: StoredRange(2, 10)} if random_.random() < 0.5 else {}
        self._now_s = 0.0
        self._store = StoreState(ADDRESS, ADDRESS, kept)
        self._producer = ProducerState(mine)
        self._producer.publish([b"content"] * 10, 0.0, 5)
        self._consumer = ConsumerState(ADDRESS, start=EARLIEST, skip_gone=random_.random() < 0.5)
        self._consumer.subscribe("hello")
        self._since = ConsumerState(ADDRESS, start=StartOf("latest", since_ms=5))
        self._since.subscribe("hello")
        self._since.subscription(Subscription(True, topic_prefix(FindTime, ADDRESS)))
        self._follower = FollowerState(ADDRESS, "hello")
        self._follower.follow(mine, 0, 0.0)

    def hear(self, message: Message) -> None:
        """All of them; then time passes."""
        self._now_s += 0.7
        now_s = self._now_s
        done: list[object] = [*self._producer.message(message, "S"), *self._producer.answers(5)]
        done += [*self._store.messages([message], now_s), *self._store.asked(message), *self._store.tick(now_s)]
        for consumer in (self._consumer, self._since):
            done += [*consumer.messages([message], now_s), *consumer.tick(now_s)]
        done += [*self._follower.messages([message], now_s), *self._follower.tick(now_s)]
        for partition, end in self._follower.ends.items():
            assert end < 2**63, "no column has such a number"
            done += self._follower.follow(partition, max(0, end - 1), now_s)
        for one in done:
            if isinstance(one, Send):
                encode(one.message)
            elif isinstance(one, Append):
                assert one.sequence + len(one.contents) < 2**63, "no log has such a number"


def test_what_any_role_makes_of_20_000_mutations_can_be_sent_and_stored() -> None:
    """One that cannot be would end the role, and who sends it needs to be nobody."""
    random_ = random.Random(20)
    roles, heard = Roles(random_), 0
    for number in range(20_000):
        if number % 50 == 0:
            roles = Roles(random_)
        frames = random_.choice([*SAMPLES, *BATCHES, *LAST, *LAST])
        try:
            message = decode(frames if random_.random() < 0.5 else mutated(frames, random_))
        except FrameInvalid:
            continue
        heard += 1
        roles.hear(message)
    assert heard > 2_000


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


def expanded(messages: list[Message]) -> list[Message]:
    """Each batch as the records that it holds."""
    kinds: dict[type, Callable[..., Message]] = {LiveBatch: LiveRecord, DirectBatch: DirectRecord}
    return [
        one
        for message in messages
        for one in (
            [kinds[type(message)](*message[:3], n, c) for n, c in enumerate(message.contents, message.sequence)]
            if isinstance(message, LiveBatch | DirectBatch)
            else [message]
        )
    ]


def test_what_is_put_together_as_it_comes_is_what_came_whatever_is_between() -> None:
    random_ = random.Random(21)
    runs, decoder = RunDecoder(FrameDecoder()), FrameDecoder()
    together = 0
    for _ in range(300):
        came: list[Message] = []
        sequence = random_.choice([0, 2**64 - 40])
        for _ in range(random_.randint(1, 60)):
            kind, name = random_.choice([LiveRecord, LiveRecord, LiveRecord, DirectRecord]), random_.choice("aaaab")
            sequence = (sequence + random_.choice([1, 1, 1, 1, 0, 2])) % 2**64
            frames = encode(kind(name, ADDRESS, name, sequence, b"%d" % sequence))
            if random_.random() < 0.1:
                frames = mutated(random_.choice([*SAMPLES, *BATCHES, frames]), random_)
            try:
                came.append(decoder.decode(frames))
            except FrameInvalid:
                with pytest.raises(FrameInvalid):
                    runs.add(frames)
            else:
                runs.add(frames)
        taken = runs.taken()
        together += len(came) - len(taken)
        assert expanded(taken) == expanded(came)
        assert runs.taken() == []
    assert together > 1_000


def test_records_that_are_put_together_are_not_too_many() -> None:
    runs = RunDecoder(FrameDecoder())
    for n in range(3000):
        assert runs.add(encode(LiveRecord("a", ADDRESS, "a", n, b""))) == 0
    assert [len(one.contents) for one in runs.taken()] == [1024, 1024, 952]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("size_bytes", "together"), [(GROUP_BYTES // 2, [2, 2, 1]), (GROUP_BYTES, [1] * 5), (GROUP_BYTES + 1, [1] * 5)]
)
def test_records_that_are_put_together_are_not_too_large(size_bytes: int, together: list[int]) -> None:
    """Whoever takes them holds no more than its limit and one of these."""
    runs = RunDecoder(FrameDecoder())
    for n in range(5):
        runs.add(encode(LiveRecord("a", ADDRESS, "a", n, bytes(size_bytes))))
    assert [len(one.contents) for one in runs.taken()] == together  # type: ignore[union-attr]
    assert runs._contents == [], "nothing is kept of what was taken"
