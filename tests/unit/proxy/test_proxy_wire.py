"""Requests and answers as bytes: what goes in comes out, and what was damaged on its way is told from it."""

from __future__ import annotations

import errno

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribengin import errors
from scribengin.errors import (
    ColdSegmentMissing,
    DamagedEntry,
    Fenced,
    LogError,
    LogWriteFailed,
    MessageDamaged,
    MessageInvalid,
    OutOfRoom,
    OverCapacity,
    ScribenginError,
    is_full,
)
from scribengin.log import DLSN
from scribengin.log.format.records import Record, body_of_records
from scribengin.log.write.results import SlotRange
from scribengin.proxy.wire.answers import (
    Answer,
    AskDone,
    MovedTo,
    Refused,
    TryAgain,
    Written,
    decode_answer,
    encode_answer,
)
from scribengin.proxy.wire.requests import AskRequest, decode_ask, decode_write, encode_ask, encode_write
from scribengin.proxy.wire.told_errors import NAMES, heard, told
from scribengin.worker.failures import Remedy, remedy_for
from scribengin_registry.errors import NodeMissing, SessionLost

SENDER = bytes(range(16))
NUMBERS = st.integers(0, 2**40)


def body(*payloads: bytes) -> pa.RecordBatch:
    return body_of_records([Record(7, "ch", b"k", payload, 3) for payload in payloads])


@given(
    log=st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable()),
    directory=st.text(max_size=60).filter(lambda text: text.isprintable()),
    number=NUMBERS,
    answered=NUMBERS,
    payloads=st.lists(st.binary(max_size=100), min_size=1, max_size=20),
    txids=st.booleans(),
    atomic=st.booleans(),
    since=NUMBERS,
)
def test_a_request_to_write_arrives_as_it_was_sent(
    log: str, directory: str, number: int, answered: int, payloads: list[bytes], txids: bool, atomic: bool, since: int
) -> None:
    sent = body(*payloads)
    options = {"txids": txids, "atomic": atomic}
    data = encode_write(log, SENDER, number, answered, sent, directory=directory, since=since, **options)
    found = decode_write(pa.py_buffer(data))
    assert (found.log, found.directory, found.atomic, found.since) == (log, directory, atomic, since)
    assert (found.sender, found.number, found.answered) == (SENDER, number, answered)
    assert found.records.equals(sent) if txids else found.records.schema.names == sent.schema.names[1:]
    assert found.records.column("payload").to_pylist() == payloads


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7), cut=st.integers(0, 10_000))
def test_damage_on_the_way_is_told(at: int, bit: int, cut: int) -> None:
    sent = encode_write("log", SENDER, 1, 0, body(b"one", b"two"), txids=True)
    entry = 64  # the head says who and what number: another request of the same client has it as well
    damaged = bytearray(sent)
    damaged[entry + at % (len(sent) - entry)] ^= 1 << bit
    with pytest.raises(MessageDamaged):
        decode_write(pa.py_buffer(bytes(damaged)))
    with pytest.raises(MessageDamaged):
        decode_write(pa.py_buffer(sent[: cut % len(sent)]))


def test_what_is_asked_arrives_as_it_was_sent() -> None:
    request = AskRequest("truncate", "flüge/0", {"before": [1, 2, 3], "force": False})
    assert decode_ask(pa.py_buffer(encode_ask(request))) == request
    for wrong in (b"", b"{", b"[]", b'{"op": "x"}', b"3"):
        with pytest.raises(MessageInvalid):
            decode_ask(pa.py_buffer(wrong))


RUNS = (SlotRange(DLSN(1, 2, 3), 4), SlotRange(DLSN(5, 6, 0), 70000))


@pytest.mark.parametrize(
    "answer",
    [Written(RUNS), Written(()), MovedTo("grpc://ü:1"), AskDone({"a": [1, "ü"]}), AskDone(data=pa.py_buffer(b"raw"))],
)
def test_answers_arrive_as_they_were_sent(answer: Answer) -> None:
    assert decode_answer([pa.py_buffer(message) for message in encode_answer(answer)]) == answer


def test_errors_arrive_by_name_with_their_fields() -> None:
    again = decode_answer([pa.py_buffer(m) for m in encode_answer(TryAgain(Fenced("gone"), maybe_written=True))])
    assert isinstance(again, TryAgain)
    assert again.maybe_written
    assert (type(again.why), str(again.why)) == (Fenced, "gone")
    damaged = DamagedEntry("bad", position="1/2/3", offset=77)
    refused = decode_answer([pa.py_buffer(m) for m in encode_answer(Refused(damaged))])
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, DamagedEntry)
    assert (refused.error.position, refused.error.offset) == ("1/2/3", 77)
    missing = heard(told(NodeMissing("no node", path="/a")))
    assert isinstance(missing, NodeMissing)
    assert missing.path == "/a"


def test_every_error_of_logs_has_a_name_on_the_wire() -> None:
    logs = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LogError)]
    assert {kind.__name__ for kind in logs} <= NAMES.keys()
    fields: dict[type, dict[str, object]] = {DamagedEntry: {"position": "1/0/0"}, ColdSegmentMissing: {"segment": 3}}
    for kind in [*logs, SessionLost]:
        made = kind("what", **fields.get(kind, {}))
        assert vars(heard(told(made))) == vars(made)
        assert type(heard(told(made))) is kind


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_known_behind_what_it_was_refused_for(code: int) -> None:
    full = LogWriteFailed("cannot write to segment 1: no space")
    full.__cause__ = OSError(code, "full")
    refused = decode_answer([pa.py_buffer(part) for part in encode_answer(Refused(full))])
    assert isinstance(refused, Refused)
    assert type(refused.error) is LogWriteFailed
    assert is_full(refused.error)
    assert remedy_for(refused.error).remedy is Remedy.AWAY
    assert is_full(heard(told(refused.error))), "also for whoever asked by another one"
    assert is_full(heard(told(OutOfRoom("no room"))))


def test_a_refusal_for_something_else_and_one_of_an_older_proxy_are_no_full_disk() -> None:
    broken = LogWriteFailed("cannot write to segment 1: it is broken")
    broken.__cause__ = OSError(errno.EIO, "broken")
    assert told(broken) == {"error": "LogWriteFailed", "message": str(broken)}, "as ever"
    for said in (told(broken), {**told(broken), "full": "?"}):
        assert type(heard(said)) is LogWriteFailed
        assert remedy_for(heard(said)).remedy is Remedy.RETRY


def test_an_error_that_nobody_knows_is_one_of_the_log() -> None:
    class Newer(OverCapacity):
        """Of a later version."""

    assert type(heard(told(Newer("full")))) is OverCapacity
    assert type(heard({"error": "OfAnotherVersion", "message": "x"})) is LogError
    assert type(heard(told(ScribenginError("other")))) is LogError


@pytest.mark.parametrize("data", [[], [b""], [b"?"], [b"W"], [b"W\x02\0\0\0"], [b"A{}"], [b"R["], [b"D"], [b"M\xff"]])
def test_what_is_no_answer_is_told(data: list[bytes]) -> None:
    with pytest.raises(MessageInvalid):
        decode_answer([pa.py_buffer(one) for one in data])
