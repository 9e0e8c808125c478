"""Who may ask a proxy for what: every operation against every right, without a network."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from scribengin.errors import AccessDenied, CallerUnknown, ConfigInvalid, InvalidLogName, LogError, ScribenginError
from scribengin.log import LogConfig, LogNamespace
from scribengin.log.format.records import Record, body_of_records
from scribengin.log.store.contract import SegmentName
from scribengin.proxy import AccessConfig, ProxiedNamespace, ProxyClientConfig, ProxyConfig
from scribengin.proxy.access import rules_of
from scribengin.proxy.client.credentials import ProxyCredentials
from scribengin.proxy.client.transport import ProxyTransport
from scribengin.proxy.config import CA_VARIABLE, PROXY_INSECURE_VARIABLE, RIGHTS, TOKEN_VARIABLE, Right
from scribengin.proxy.nodes import ProxyDescriptor
from scribengin.proxy.service import ProxyService
from scribengin.proxy.state.access import ANYBODY, AccessRules, Caller, token_digest
from scribengin.proxy.wire import segments as wire
from scribengin.proxy.wire.answers import Answer, AskDone, Refused, Written, decode_answer
from scribengin.proxy.wire.requests import ASK, WRITE, AskRequest, encode_ask, encode_write
from scribengin.testing.log_samples import bound_namespace, fill_log, payloads_read
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin_registry.errors import ReferenceMissing

LOG, OTHER, PATH = "orders/eu", "flights/0", "/logs"
ALL_THREE = ("store_create", "store_append", "store_sync", "store_settle", "store_show", "store_close")
ALL_THREE += ("store_save_index", "store_fence", "store_make_durable", "store_announce", "store_move")
RIGHTS_OF: dict[str, tuple[Right, ...]] = {
    **dict.fromkeys(("write", "open"), ("write",)),
    **dict.fromkeys(("create", "delete", "truncate", "seal", "release"), ("administer",)),
    **dict.fromkeys(("segment_open", "segment_bytes", "segment_tail", "segment_size"), ("read",)),
    **dict.fromkeys(("segment_index", "segment_doubt"), ("read",)),
    **dict.fromkeys(("store_create_log", "store_delete_log", "store_remove"), ("administer",)),
    **dict.fromkeys(("store_names", "store_announced", "store_disk_size", "store_disk_bytes"), ("administer",)),
    **dict.fromkeys(ALL_THREE, RIGHTS),
}
"""What a proxy can be asked to do to a log, and the rights that takes."""
WITH_DATA = (wire.APPEND, wire.SAVE_INDEX)
TOKENS = {right: f"the-token-of-who-may-{right}" for right in RIGHTS}
"""A caller for each right, who has it to logs of orders, and no other one."""
TOKENS_BUT = {right: f"the-token-of-who-may-all-but-{right}" for right in RIGHTS}
"""A caller for each right, who has the two others."""
WHOLE = "the-token-of-who-may-all-of-it"
SECRET = "0123456789-is-a-secret"


class MemoryTransport(ProxyTransport):
    """Carries requests to services in this process, with a token."""

    def __init__(self, services: dict[str, ProxyService], token: str | None) -> None:
        self._services = services
        self._token = token

    def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
        said = self._services[address].handle(kind, pa.py_buffer(body), self._token)
        return [pa.py_buffer(message) for message in said]

    def close(self) -> None:
        """There is nothing to close."""


class Place:
    """Proxies over one namespace in memory, whose callers each have one right to `orders/*`."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._ensemble = MemoryEnsemble()
        self._registry = stack.enter_context(self._ensemble.connect())
        disk = MemoryDisk(f"disk {id(self)}")
        self.namespace = bound_namespace(self._registry, disk.name, LOG, OTHER, store=MEMORY_STORE)
        self.services: dict[str, ProxyService] = {}

    def start(self) -> ProxyService:
        """A proxy more."""
        address = f"memory-{len(self.services)}"
        registry = self._stack.enter_context(self._ensemble.connect())
        namespace = self._stack.enter_context(LogNamespace.open(PATH, registry=registry))
        callers = {
            token_digest(token): Caller(f"the {right}r", {"orders/*": frozenset([right])})
            for right, token in TOKENS.items()
        }
        for name, token, missing in ((f"but {right}", token, {right}) for right, token in TOKENS_BUT.items()):
            callers[token_digest(token)] = Caller(name, {"orders/*": frozenset(RIGHTS) - missing})
        callers[token_digest(WHOLE)] = Caller("whole", {"orders/*": frozenset(RIGHTS)})
        proxy = ProxyDescriptor(name=address, address=address)
        service = ProxyService(namespace, registry, proxy, access=AccessRules(callers))
        self.services[address] = self._stack.enter_context(service)
        service.announce()
        return service

    def client(self, token: str | None, **config: object) -> ProxiedNamespace:
        """A client that has that token."""
        client = ProxyClientConfig.parse({"reads": "proxy", "patience_s": 5, **config}, source="a test")
        registry = self._stack.enter_context(self._ensemble.connect())
        transport = MemoryTransport(self.services, token)
        return self._stack.enter_context(
            ProxiedNamespace.open(PATH, registry=registry, client=client, transport=transport)
        )


@pytest.fixture
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack)


def request_of(op: str, log: str, namespace: LogNamespace) -> tuple[str, bytes]:
    """Kind and body of a request for an operation on a log that stands, in the namespace."""
    if op == "write":
        return WRITE, encode_write(log, bytes(16), 1, 0, body_of_records([Record(7, None, None, b"x", 0)]), txids=False)
    if op.startswith("segment_"):
        name = namespace.segments(log)[0].file
        more = {"offset": 0, "length": 1, "ahead": 0, "known": -1, "wait_s": 0.0, "kind": "positions"}
        return ASK, encode_ask(wire.about_segment(op, name, **more))
    if op.startswith("store_"):
        return request_to_store(op, namespace.segments(log)[0].file)
    fields = {"force": True, "before": list(namespace.first_dlsn(log)), "config": None}
    return ASK, encode_ask(AskRequest(op, log, fields))


def request_to_store(op: str, name: SegmentName) -> tuple[str, bytes]:
    """The same for what a writer elsewhere does to a segment."""
    more = {"handle": "a", "step": 1, "fsync": True, "tail": [0, 0, 0, 0], "to": [f"{name.directory}/aside", 9, 9, ""]}
    more |= {"directory": name.directory, "kind": "positions", "offset": 0, "length": 1}
    request = replace(wire.about_segment(op, name, **more), data=pa.py_buffer(b"") if op in WITH_DATA else None)
    return request.kind, encode_ask(request)


def asked(service: ProxyService, op: str, log: str, namespace: LogNamespace, token: str | None) -> Answer:
    kind, body = request_of(op, log, namespace)
    return service.answer(kind, pa.py_buffer(body), token)


def refusal(answer: Answer) -> ScribenginError:
    """The error of an answer, as a client has it from the wire: in one line."""
    assert isinstance(answer, Refused), answer
    error = answer.error
    assert "\n" not in str(error)
    assert not any(token in str(error) for token in TOKENS.values())
    return error


def test_the_table_names_all_that_can_be_asked(place: Place) -> None:
    service = place.start()
    assert {op: rights for op, (rights, _do) in service._done_to_logs.items()} | {"write": ("write",)} == RIGHTS_OF


@pytest.mark.parametrize("op", RIGHTS_OF)
@pytest.mark.parametrize("right", RIGHTS)
def test_each_operation_takes_its_right_and_no_other(place: Place, op: str, right: Right) -> None:
    fill_log(place.namespace, LOG, 2, 1)
    service = place.start()
    answer = asked(service, op, LOG, place.namespace, TOKENS[right])
    if RIGHTS_OF[op] == (right,):
        assert isinstance(answer, Written | AskDone) or isinstance(refusal(answer), LogError)
        assert not (isinstance(answer, Refused) and isinstance(answer.error, AccessDenied))
        return
    error = refusal(answer)
    assert type(error) is AccessDenied
    for word in (
        f"log '{LOG}'",
        f"caller 'the {right}r'",
        f"may not {next(one for one in RIGHTS_OF[op] if one != right)} it",
        f"only {right} it",
        "`access`",
    ):
        assert word in str(error)
    assert len(payloads_read(place.namespace, LOG)) == 2


@pytest.mark.parametrize("op", ALL_THREE)
def test_what_only_a_writer_elsewhere_does_takes_all_three_rights(place: Place, op: str) -> None:
    fill_log(place.namespace, LOG, 2, 1)
    service = place.start()
    for missing, token in TOKENS_BUT.items():
        error = refusal(asked(service, op, LOG, place.namespace, token))
        assert type(error) is AccessDenied
        assert f"may not {missing} it" in str(error)
    answer = asked(service, op, LOG, place.namespace, WHOLE)
    assert isinstance(answer, AskDone) or type(refusal(answer)) is not AccessDenied


@pytest.mark.parametrize("op", RIGHTS_OF)
def test_a_right_to_some_logs_is_none_to_others_and_strangers_have_none(place: Place, op: str) -> None:
    payloads = fill_log(place.namespace, OTHER, 2, 1)
    service = place.start()
    error = refusal(asked(service, op, OTHER, place.namespace, TOKENS[RIGHTS_OF[op][0]]))
    assert type(error) is AccessDenied
    assert f"log '{OTHER}'" in str(error)
    assert "only" not in str(error)
    for token, word in ((None, TOKEN_VARIABLE), ("nobody's", "knows no caller"), ("", "knows no caller")):
        error = refusal(asked(service, op, OTHER, place.namespace, token))
        assert type(error) is CallerUnknown
        assert word in str(error)
    assert payloads_read(place.namespace, OTHER) == payloads
    said = service.answer(ASK, pa.py_buffer(encode_ask(AskRequest("info"))), TOKENS["read"])
    assert isinstance(said, AskDone)
    assert said.said["requests_denied"] == 4


def test_strangers_are_asked_who_they_are_before_anything_of_a_request_is_read(place: Place) -> None:
    service = place.start()
    for kind, body in ((WRITE, b"damaged"), (ASK, b"{"), ("dance", b"")):
        assert type(refusal(service.answer(kind, pa.py_buffer(body), "nobody's"))) is CallerUnknown


def test_a_log_has_the_same_rules_by_all_its_names(place: Place) -> None:
    service = place.start()
    error = refusal(asked(service, "release", f"/{OTHER}", place.namespace, TOKENS["administer"]))
    assert type(error) is AccessDenied
    assert isinstance(asked(service, "release", f"/{LOG}", place.namespace, TOKENS["administer"]), AskDone)
    body = encode_ask(AskRequest("release", "orders/../flights/0"))
    assert type(refusal(service.answer(ASK, pa.py_buffer(body), TOKENS["administer"]))) is InvalidLogName


def test_a_log_has_one_owner_by_all_its_names(place: Place) -> None:
    service = place.start()
    for name in (LOG, f"/{LOG}"):
        body = encode_ask(AskRequest("open", name))
        assert service.answer(ASK, pa.py_buffer(body), TOKENS["write"]) == AskDone()
        assert service.logs == [LOG]


def test_nobody_reads_a_log_by_the_name_of_another_one(place: Place) -> None:
    fill_log(place.namespace, OTHER, 2, 1)
    service = place.start()
    directory, *rest = place.namespace.segments(OTHER)[0].file
    body = encode_ask(AskRequest(wire.SIZE, LOG, {"segment": [directory, *rest]}))
    answer = service.answer(ASK, pa.py_buffer(body), TOKENS["read"])
    assert not isinstance(answer, AskDone)


def test_a_client_is_told_the_names_of_what_it_may_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.namespace.create("orders/us")
    service = place.start()
    monkeypatch.setenv(TOKEN_VARIABLE, TOKENS["read"])
    reader = place.client(TOKENS["read"])
    assert reader.names() == ["orders/eu", "orders/us"]
    assert reader.names("orders/u") == reader.matching("*u[s]") == ["orders/us"]
    assert place.client(TOKENS["write"]).names() == []
    place.client(TOKENS["write"]).open_writer(LOG).close()
    for right, logs in (("read", [LOG]), ("write", [])):
        said = service.answer(ASK, pa.py_buffer(encode_ask(AskRequest("info"))), TOKENS[right])
        assert isinstance(said, AskDone)
        assert said.said["logs"] == logs
    with pytest.raises(CallerUnknown):
        place.client("nobody's").names()
    monkeypatch.delenv(TOKEN_VARIABLE)
    assert place.client(None).names() == place.namespace.names()


def test_a_client_raises_what_it_was_denied_with_wherever_the_log_is(place: Place) -> None:
    """A log goes from one proxy to another while clients write and read: who may goes on, who may not does not."""
    one, other = place.start(), place.start()
    writer, reader = place.client(TOKENS["write"]), place.client(TOKENS["read"])
    administrator = place.client(TOKENS["administer"])
    with writer.open_writer(LOG) as handle:
        handle.write(b"1").result(120)
        (owner,) = (service for service in (one, other) if service.logs)
        for service in (one, other):  # whoever is asked sends it on to the owner, which asks who it is as well
            kind, body = request_of("open", LOG, place.namespace)
            assert isinstance(refusal(service.answer(kind, pa.py_buffer(body), TOKENS["read"])), AccessDenied)
        owner.close()
        handle.write(b"2").result(120)
        assert payloads_read(reader, LOG) == [b"1", b"2"]
        with pytest.raises(AccessDenied, match="may not read it, only write it"):
            payloads_read(writer, LOG)
        with pytest.raises(AccessDenied, match="may not write it, only read it"):
            reader.open_writer(LOG)
        with pytest.raises(AccessDenied, match="may not administer it, only write it"):
            handle.mark_end_of_stream()
        for denied in (lambda: writer.create("orders/new"), lambda: reader.delete(LOG)):
            with pytest.raises(AccessDenied, match="may not administer it"):
                denied()
    administrator.release(LOG)
    administrator.create("orders/new", LogConfig(retention_hours=1))
    administrator.delete("orders/new")
    assert payloads_read(place.namespace, LOG) == [b"1", b"2"]


def test_records_are_denied_to_a_writer_whose_right_was_taken(place: Place) -> None:
    """Its batches, too: and what it has written before stays."""
    place.start()
    tokens = {"memory-0": TOKENS["write"]}

    class Changing(MemoryTransport):
        def call(self, address: str, kind: str, body: bytes, timeout_s: float) -> list[pa.Buffer]:
            self._token = tokens[address]
            return super().call(address, kind, body, timeout_s)

    client = place.client(None)
    client._delivery._transport = Changing(place.services, None)
    with client.open_writer(LOG) as writer:
        writer.write(b"1").result(120)
        tokens["memory-0"] = TOKENS["read"]
        batch = pa.RecordBatch.from_arrays([pa.array([b"2"], pa.binary())], names=["payload"])
        for future in (writer.write(b"2"), writer.write_bulk(batch), writer.write_atomic(batch)):
            assert isinstance(future.exception(120), AccessDenied)
        tokens["memory-0"] = TOKENS["write"]
        writer.write(b"3").result(120)
    assert payloads_read(place.namespace, LOG) == [b"1", b"3"]


def test_rights_are_those_of_all_patterns_that_fit() -> None:
    caller = Caller("c", {"orders/*": frozenset(["read"]), "*/eu": frozenset(["write"]), LOG: frozenset()})
    assert caller.rights(LOG) == {"read", "write"}
    assert caller.rights("orders/us") == {"read"}
    assert caller.rights("Orders/us") == frozenset()
    assert ANYBODY.rights("anything/at.all") == set(RIGHTS)
    with pytest.raises(AccessDenied, match="only read and write it"):
        caller.check(LOG, "administer")


def test_a_proxy_without_rules_asks_nobody(place: Place) -> None:
    assert AccessRules().caller(None) is AccessRules().caller("whatever") is ANYBODY
    with pytest.raises(CallerUnknown):
        AccessRules({}).caller("whatever")


def test_tokens_are_found_where_the_configuration_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    monkeypatch.setenv("THE_OTHER", SECRET + "2")
    access = access_of(
        a={"token": f"${{file:{tmp_path}/token}}", "logs": {"*": ["read"]}},
        b={"token": "${env:THE_OTHER}", "logs": {"b*": ["write", "administer"]}},
        c={"token_sha256": hashlib.sha256(b"third").hexdigest(), "logs": {"c": []}},
    )
    assert SECRET not in repr(access)
    rules = rules_of(access)
    assert [rules.caller(token).name for token in (SECRET, SECRET + "2", "third")] == ["a", "b", "c"]
    assert rules.caller(SECRET + "2").rights("b1") == {"write", "administer"}
    assert rules_of(None).caller(None) is ANYBODY


def access_of(**callers: object) -> AccessConfig:
    return AccessConfig.parse({"callers": callers}, source="access.yaml")


@pytest.mark.parametrize(
    ("caller", "words"),
    [
        ({"token": SECRET}, r"callers\.a\.token: a token does not stand in a configuration"),
        ({"token": "${env:A} " + SECRET}, "a token does not stand in a configuration"),
        ({"token_sha256": SECRET}, "is no SHA-256"),
        ({}, "known by `token` or by `token_sha256`"),
        ({"token": "${env:A}", "token_sha256": "0" * 64}, "known by `token` or by `token_sha256`"),
        ({"token": "${env:A}", "logs": {"*": ["raed"]}}, "did you mean 'read'"),
        ({"token": "${env:A}", "logs": {}}, r"callers\.a\.logs: is empty"),
    ],
)
def test_a_wrong_configuration_is_refused_and_shows_no_token(caller: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words) as refused:
        access_of(a={"logs": {"*": ["read"]}, **caller})
    assert SECRET not in str(refused.value)


def test_tokens_that_can_be_guessed_or_are_two_callers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = ({"token": f"${{env:{name}}}", "logs": {"*": ["read"]}} for name in ("ONE", "OTHER"))
    for value, words in {
        "short": "has 5 characters and needs 16",
        SECRET + " ": "a space or a character that is not ASCII",
        SECRET + "ü": "a space or a character that is not ASCII",
        SECRET: "'a' and 'b' have the same token",
    }.items():
        monkeypatch.setenv("ONE", value)
        monkeypatch.setenv("OTHER", SECRET)
        with pytest.raises(ConfigInvalid, match=words) as refused:
            rules_of(access_of(a=one, b=other))
        assert value not in str(refused.value)
    monkeypatch.delenv("ONE")
    with pytest.raises(ReferenceMissing, match="ONE"):
        rules_of(access_of(a=one))


def test_other_machines_are_let_in_with_tls_and_access_or_on_purpose() -> None:
    tls = {"certificate_file": "c", "key_file": "k"}
    access = {"callers": {"a": {"token": "${env:A}", "logs": {"*": ["read"]}}}}
    nobody, clear = "clients are not asked who they are", "what they send is not encrypted"
    for more, words in (
        ({}, f"{clear} and {nobody}; set `tls` and `access`, say `insecure: true`"),
        ({"tls": tls}, f"and {nobody}; set `access`, say"),
        ({"access": access}, f"and {clear}; set `tls`, say"),
    ):
        with pytest.raises(ConfigInvalid, match=r"host 0\.0\.0\.0 is reached by other machines") as refused:
            ProxyConfig.parse({"host": "0.0.0.0", **more}, source="proxy.yaml")
        assert words in str(refused.value)
        ProxyConfig.parse({"host": "0.0.0.0", "insecure": True, **more}, source="proxy.yaml")
        ProxyConfig.parse({"host": "::1", **more}, source="proxy.yaml")
    ProxyConfig.parse({"host": "0.0.0.0", "tls": tls, "access": access}, source="proxy.yaml")


def test_a_client_has_its_token_from_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert ProxyCredentials.of(ProxyClientConfig()).token is None
    (tmp_path / "token").write_text(f"{SECRET}\n")
    monkeypatch.setenv(TOKEN_VARIABLE, f"${{file:{tmp_path}/token}}")
    found = ProxyCredentials.of(ProxyClientConfig())
    assert found.token == SECRET
    assert SECRET not in repr(found)
    monkeypatch.setenv("MINE", SECRET + "2")
    said = ProxyClientConfig.parse({"token": "${env:MINE}"}, source="a test")
    assert ProxyCredentials.of(said).token == SECRET + "2"
    assert SECRET not in repr(said)
    for value in (SECRET + " x", SECRET + "\n\n\tx"):
        monkeypatch.setenv("MINE", value)
        with pytest.raises(ConfigInvalid, match="a space or a character") as refused:
            ProxyCredentials.of(said)
        assert SECRET not in str(refused.value)


def test_a_token_is_not_sent_in_the_clear_to_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, near, hidden = "grpc://box-1.example:8490", "grpc://[::1]:8490", "grpc+tls://box-1.example:8490"
    monkeypatch.setenv("MINE", SECRET)
    said = ProxyClientConfig.parse({"token": "${env:MINE}"}, source="a test")
    credentials = ProxyCredentials.of(said)
    for address in (near, hidden, "grpc://127.0.0.1:1", "grpc://localhost:1"):
        credentials.check(address)
    with pytest.raises(ConfigInvalid, match=f"the proxy {plain} encrypts nothing"):
        credentials.check(plain)
    ProxyCredentials().check(plain)
    ProxyCredentials.of(said.model_copy(update={"insecure": True})).check(plain)
    monkeypatch.setenv(PROXY_INSECURE_VARIABLE, "1")
    ProxyCredentials.of(said).check(plain)


def test_the_authorities_of_a_client_are_read_before_it_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.pem").write_text("")
    for name, words in (("absent.pem", "cannot be read"), ("empty.pem", "holds no certificate")):
        monkeypatch.setenv(CA_VARIABLE, str(tmp_path / name))
        with pytest.raises(ConfigInvalid, match=f"{name}.*{words}"):
            ProxyCredentials.of(ProxyClientConfig())


def test_errors_of_access_are_the_same_class_on_the_other_side() -> None:
    for kind in (AccessDenied, CallerUnknown):
        answer = decode_answer([pa.py_buffer(b'R{"error": "%s", "message": "no"}' % kind.__name__.encode())])
        assert type(refusal(answer)) is kind
        assert kind.exit_code == 2
