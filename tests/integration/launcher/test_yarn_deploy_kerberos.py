"""Kerberos, with a real KDC and a NameNode that insists on it: the login, the tokens that containers are given, and how
a master renews them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scribengin.testing.waiting import wait_until
from tests.integration.launcher.answering import Program
from tests.integration.launcher.kerberos_hdfs import LIFE_MS, SecureHdfs, secure_hdfs

_TIMEOUT_S = 240.0

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]  # it starts its own
_HEAD = """
import base64, json, sys
import jpype
from scribengin.errors import ScribenginError
from scribengin.launcher.yarn.config import SecurityConfig
from scribengin.base.jvm import java, java_errors, yarn_configuration
from scribengin.launcher.yarn.security import TokenRenewal, login, obtain, serialised

configuration = yarn_configuration()

def told(act):
    try:
        return {"answer": act()}
    except ScribenginError as error:
        return {"error": str(error), "code": error.exit_code}

def as_bytes(buffer):
    return bytes(buffer.array()[: buffer.limit()])

def made_with(tokens, name):
    # Make a directory as somebody who has these tokens and nothing else, as in a container.
    user = java("org.apache.hadoop.security.UserGroupInformation").createRemoteUser("flow")
    held = java("org.apache.hadoop.security.Credentials")()
    stream = java("java.io.DataInputStream")(java("java.io.ByteArrayInputStream")(tokens))
    if tokens:
        held.readTokenStorageStream(stream)
    user.addCredentials(held)

    @jpype.JImplements("java.security.PrivilegedExceptionAction")
    class Make:
        @jpype.JOverride
        def run(self):
            systems = java("org.apache.hadoop.fs.FileSystem")
            system = systems.newInstance(systems.getDefaultUri(configuration), configuration)
            system.mkdirs(java("org.apache.hadoop.fs.Path")(name))
            system.close()
            return None

    with java_errors("not made"):
        user.doAs(Make())
    return "made"
"""
_LOGIN = """
for line in sys.stdin:
    who = SecurityConfig(**json.loads(line))
    print(json.dumps(told(lambda: login(configuration, who))), flush=True)
"""
_OBTAIN = """
login(configuration, SecurityConfig(principal="flow", keytab=sys.argv[1]))
found = obtain(configuration, ["/somewhere"], "rm/localhost@EXAMPLE.COM")
kinds = [str(token.getKind()) for token in found.getAllTokens()]
tokens = as_bytes(serialised(found))
print(json.dumps([kinds, told(lambda: made_with(tokens, "/with")), told(lambda: made_with(b"", "/without"))]))
"""
_RENEW = """
renewal = TokenRenewal(configuration, SecurityConfig(principal="flow", keytab=sys.argv[1]), [])
first = as_bytes(renewal.current())
print(json.dumps([told(lambda: made_with(first, "/first"))]), flush=True)
for line in sys.stdin:
    now = as_bytes(renewal.current())
    works = [told(lambda: made_with(tokens, "/later")) for tokens in (first, now)]
    print(json.dumps([now != first, *works, renewal.age_max_ms(), str(renewal.failure or "")]), flush=True)
renewal.close()
"""


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureHdfs]:
    with secure_hdfs(tmp_path_factory.mktemp("secure")) as servers:
        yield servers


@pytest.fixture
def start(secure: SecureHdfs) -> Iterator[Callable[..., Program]]:
    """Starts programs; at the end each must have ended well."""
    started = []

    def start_one(code: str, *arguments: str) -> Program:
        started.append(Program(secure.start_program(_HEAD + code, *arguments)))
        return started[-1]

    yield start_one
    for program in started:
        program.end()


def test_a_keytab_logs_in_and_what_does_not_is_told(
    secure: SecureHdfs, start: Callable[..., Program], tmp_path: Path
) -> None:
    keytab = str(secure.kdc.keytab)
    program = start(_LOGIN)
    without = program.ask({})
    assert "run kinit" in without["error"]
    assert without["code"] == 2
    missing = program.ask({"principal": "flow", "keytab": str(tmp_path / "none.keytab")})
    assert "no file that can be read" in missing["error"]
    assert "Kerberos refuses nobody with the keytab" in program.ask({"principal": "nobody", "keytab": keytab})["error"]
    assert program.ask({"principal": "flow", "keytab": keytab}) == {"answer": "flow@EXAMPLE.COM"}


def test_tokens_obtained_at_submission_are_all_that_a_container_needs(
    secure: SecureHdfs, start: Callable[..., Program]
) -> None:
    kinds, with_tokens, without = start(_OBTAIN, str(secure.kdc.keytab)).hear()
    assert kinds == ["HDFS_DELEGATION_TOKEN"]
    assert with_tokens == {"answer": "made"}
    assert "cannot authenticate" in without["error"]


@pytest.mark.full
def test_a_master_with_a_keytab_has_good_tokens_for_longer_than_any_token_lives(
    secure: SecureHdfs, start: Callable[..., Program]
) -> None:
    program = start(_RENEW, str(secure.kdc.keytab))
    assert program.hear() == [{"answer": "made"}]

    def outlived() -> bool:
        changed, first, now, age_max_ms, failure = program.ask()
        assert (now, age_max_ms, failure) == ({"answer": "made"}, LIFE_MS // 2, "")
        return changed and "error" in first

    wait_until(outlived, _TIMEOUT_S, "the end of the first tokens' life")
