"""Dafka's frames: what its C programs wrote on a wire is read and written byte for byte, and nothing else is taken."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from scribengin.dafka.wire import (
    WELCOME,
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
    record_prefix,
    topic_prefix,
)
from scribengin.errors import FrameInvalid

GOLDEN = json.loads((Path(__file__).parent / "dafka_frames.json").read_text())
"""Frames that were seen between C programs: messages by their letter, subscriptions, the tower's."""
PRODUCER, CONSUMER, STORE = "66D4F828B9D74129BE679DDCED388225", "94A1BD282E2443EEBFB945972AC89479", "AA" * 16
KINDS = {"K": StoreAck, "F": Fetch, "L": StoreHello, "M": LiveRecord, "H": Head, "E": DirectHead, "D": DirectRecord}
CAPTURED = [
    (letter, [bytes.fromhex(frame) for frame in frames])
    for letter, messages in GOLDEN["frames_from_C_peers"].items()
    for frames in messages
]
MESSAGES: list[Message] = [
    LiveRecord("hello", PRODUCER, "hello", 0, b"content"),
    LiveRecord("grüße", PRODUCER, "grüße", 2**64 - 1, b""),
    DirectRecord(CONSUMER, PRODUCER, "hello", 7, b"x" * 1000),
    Fetch(PRODUCER, CONSUMER, "hello", 5, 2**32 - 1),
    StoreAck(PRODUCER, "hello", 4),
    Head("hello", PRODUCER, "hello", 9),
    DirectHead(CONSUMER, PRODUCER, "hello", 9),
    GetHeads("hello", CONSUMER),
    ConsumerHello(STORE, CONSUMER, ()),
    ConsumerHello(STORE, CONSUMER, ("hello", "x" * 1000)),
    StoreHello(CONSUMER, STORE),
    Truncated(CONSUMER, PRODUCER, "hello", 12),
    HeadsTold(CONSUMER, PRODUCER),
    LiveBatch("hello", PRODUCER, "hello", 7, [b"content", b"", b"x" * 1000]),
    DirectBatch(CONSUMER, PRODUCER, "grüße", 2**64 - 2, [b"", b""]),
    FindTime(STORE, CONSUMER, PRODUCER, "hello", 1_769_860_800_000),
    TimeFound(CONSUMER, STORE, PRODUCER, "hello", 1_769_860_800_000, KnownOfTime.WHERE, 258),
]


@pytest.mark.parametrize(("letter", "frames"), CAPTURED)
def test_frames_of_c_programs_are_read_and_written_as_they_were(letter: str, frames: list[bytes]) -> None:
    message = decode(frames)
    assert type(message) is KINDS[letter]
    assert encode(message) == frames


def test_fields_of_c_programs_are_where_they_belong() -> None:
    by_letter = {letter: [decode(frames) for other, frames in CAPTURED if other == letter] for letter in KINDS}
    assert by_letter["K"] == [StoreAck(PRODUCER, "hello", 4), StoreAck(PRODUCER, "hello", 9)]
    assert by_letter["F"][0] == Fetch(PRODUCER, "5A105A2B162A40459AB7B558B33BB1B8", "hello", 5, 99_995)
    assert by_letter["M"][2] == LiveRecord("hello2", "C009713E73904B42BC59274C768E402B", "hello2", 2, b"c-2")
    assert by_letter["D"][0] == DirectRecord(CONSUMER, PRODUCER, "hello", 2, b"py-2")


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_every_message_is_read_as_it_was_written(message: Message) -> None:
    assert decode(encode(message)) == message
    decoder = FrameDecoder()
    assert [decoder.decode(encode(message)) for _ in range(2)] == [message] * 2


def test_our_own_question_for_a_time_and_its_answer_are_these_bytes() -> None:
    """Golden frames of our own: roles of different versions have to understand each other."""
    asked = "S" + "D1" + "\0\x01" + "\x02C1" + "\x02P1" + "\x05hello" + "\0\0\x01\x9c\x14@\xfc\0"
    assert encode(FindTime("D1", "C1", "P1", "hello", 0x019C1440FC00)) == [asked.encode("latin-1")]
    told = "A" + "C1" + "\0\x01" + "\x02D1" + "\x02P1" + "\x05hello" + "\0\0\x01\x9c\x14@\xfc\0" + "\x02"
    frame = told.encode("latin-1") + (258).to_bytes(8, "big")
    assert encode(TimeFound("C1", "D1", "P1", "hello", 0x019C1440FC00, KnownOfTime.WHERE, 258)) == [frame]
    assert decode([frame]).known is KnownOfTime.WHERE  # type: ignore[union-attr]
    with pytest.raises(FrameInvalid, match="knows 3 of a time, and 2 is the most"):
        decode([frame[:-9] + b"\x03" + frame[-8:]])


def test_a_record_is_its_partitions_beginning_and_a_sequence() -> None:
    frames = encode(LiveRecord("hello", PRODUCER, "hello", 258, b"x"))
    prefix = record_prefix(LiveRecord, "hello", PRODUCER, "hello")
    assert frames[0] == prefix + (258).to_bytes(8, "big")


def test_a_decoder_tells_partitions_apart_and_forgets_when_there_are_many() -> None:
    decoder = FrameDecoder(partitions_max=2)
    records = [LiveRecord("t", f"{n:032X}", "t", s, b"%d" % s) for s in range(3) for n in range(5)]
    assert [decoder.decode(encode(record)) for record in records] == records
    assert len(decoder._known) <= 2


@pytest.mark.parametrize("frames", [encode(message) for message in MESSAGES], ids=lambda frames: frames[0][:1].decode())
def test_a_frame_that_ends_early_or_late_is_refused(frames: list[bytes]) -> None:
    first, content = frames[0], frames[1:]
    for end in range(len(first)):
        with pytest.raises(FrameInvalid):
            decode([first[:end], *content])
    for wrong in ([first + b"\0", *content], [*frames, b""], frames[1:], []):
        with pytest.raises(FrameInvalid):
            decode(wrong)


@pytest.mark.parametrize("version", [0, 2, 0x30, 0xFF])
def test_another_version_is_refused_and_said(version: int) -> None:
    frame = bytearray(encode(StoreAck(PRODUCER, "hello", 4))[0])
    frame[frame.index(0) + 1] = version
    with pytest.raises(FrameInvalid, match=f"version {version}; this program reads version 1"):
        decode([bytes(frame)])


@pytest.mark.parametrize(
    "message",
    [
        Fetch(PRODUCER, "x" * 32, "a", 0, 9),
        GetHeads("a", "x" * 32),
        LiveRecord("a", "x" * 32, "a", 0, b""),
        FindTime(STORE, "x" * 32, PRODUCER, "a", 0),
        FindTime(STORE, CONSUMER, "x" * 32, "a", 0),
    ],
    ids=lambda message: type(message).__name__,
)
def test_an_address_that_nobody_can_answer_is_refused(message: Message) -> None:
    first, *content = encode(message)
    with pytest.raises(FrameInvalid, match="has an address with a NUL in it"):
        decode([first.replace(b"xx", b"x\0", 1), *content])


def test_what_does_not_fit_is_refused_before_it_is_sent() -> None:
    for message in (
        LiveRecord("a\0b", PRODUCER, "a", 0, b""),
        LiveRecord("a", PRODUCER, "a" * 256, 0, b""),
        LiveRecord("a", PRODUCER, "a", -1, b""),
        LiveRecord("\ud800", PRODUCER, "a", 0, b""),
        Fetch(PRODUCER, CONSUMER, "a", 0, 2**32),
        StoreAck(PRODUCER, "a", 2**64),
        ConsumerHello(STORE, CONSUMER, ("a" * 65_536,)),
    ):
        with pytest.raises(FrameInvalid):
            encode(message)


@pytest.mark.parametrize(
    "lie", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\xff\xff\xff\xff", b"\x3f\xff\xff\xff" + b"\0" * 16]
)
def test_a_hello_that_says_it_is_huge_costs_nothing(lie: bytes) -> None:
    frame = encode(ConsumerHello(STORE, CONSUMER, ()))[0][:-4] + lie
    tracemalloc.start()
    with pytest.raises(FrameInvalid):
        decode([frame])
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * 1024


@pytest.mark.parametrize("text", GOLDEN["xpub_subscriptions_from_C_peers"])
def test_subscriptions_of_c_programs_are_read(text: str) -> None:
    frame = bytes.fromhex(text)
    assert decode_subscription(frame) == Subscription(frame[0] == 1, frame[1:])


def test_a_subscription_says_who_waits_for_a_hello() -> None:
    wanted = Subscription(True, b"L" + CONSUMER.encode())
    assert wanted.address_of(StoreHello) == CONSUMER
    assert wanted.address_of(ConsumerHello) is None
    assert Subscription(True, b"L").address_of(StoreHello) is None
    assert Subscription(True, b"L" + CONSUMER.encode() + b"\0").address_of(StoreHello) == CONSUMER
    assert Subscription(True, b"L\xff\xfe").address_of(StoreHello) is None
    for frame in (b"", b"\x02M"):
        with pytest.raises(FrameInvalid):
            decode_subscription(frame)


def test_an_exact_subscription_is_the_beginning_of_its_own_topic_only() -> None:
    hello, hello2 = (encode(Head(topic, PRODUCER, topic, 0))[0] for topic in ("hello", "hello2"))
    assert [frame.startswith(topic_prefix(Head, "hello")) for frame in (hello, hello2)] == [True, False]
    assert [frame.startswith(topic_prefix(Head, "hello", exact=False)) for frame in (hello, hello2)] == [True, True]


def test_frames_of_a_c_tower_are_read_and_written_as_they_were() -> None:
    frames = [[bytes.fromhex(frame) for frame in message] for message in GOLDEN["tower_frames"]]
    assert frames[0] == [WELCOME]
    peers = [decode_peer(message) for message in frames[1:]]
    assert peers[0] == PeerBeacon(PRODUCER, "tcp://127.0.0.1:34879")
    assert [encode_peer(peer) for peer in peers] == frames[1:]


def test_a_beacon_is_read_as_it_was_written() -> None:
    for beacon in (Beacon(PRODUCER, "", 34879), Beacon(CONSUMER, "10.0.0.3", 1)):
        assert decode_beacon(encode_beacon(beacon)) == beacon
    assert encode_beacon(Beacon(PRODUCER, "", 34879)) == [b"B", PRODUCER.encode(), b"", b"34879"]


def test_a_peer_with_a_key_has_a_frame_more_that_must_be_a_fingerprint() -> None:
    peer = PeerBeacon(PRODUCER, "tcp://127.0.0.1:34879", "0123456789abcdef" * 4)
    frames = encode_peer(peer)
    assert frames == [*encode_peer(PeerBeacon(*peer[:2])), peer.fingerprint.encode()]
    assert decode_peer(frames) == peer
    for wrong in (b"", b"0" * 63, b"G" * 64, b"0" * 64 + b"\n", b"\xff" * 64):
        with pytest.raises(FrameInvalid):
            decode_peer([*frames[:3], wrong])
    with pytest.raises(FrameInvalid):
        decode_peer([*frames, frames[3]])


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"B"],
        [b"X", b"AB", b"", b"1"],
        [b"B", b"", b"", b"1"],
        [b"B", b"A B", b"", b"1"],
        [b"B", b"AB", b"", b"0"],
        [b"B", b"AB", b"", b"65536"],
        [b"B", b"AB", b"", b"9" * 5000],
        [b"B", b"AB", b"\xff", b"1"],
        [b"B", b"AB", b"", "²".encode()],
    ],
)
def test_what_is_no_beacon_is_refused(frames: list[bytes]) -> None:
    with pytest.raises(FrameInvalid):
        decode_beacon(frames)
    with pytest.raises(FrameInvalid):
        decode_peer([*frames[:2], b"ipc://x"])
