"""`scribengin proxy` as a command: what it prints, how it ends, what it refuses; and writing through it."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import trustme

from scribengin.errors import ProxyUnreachable
from scribengin.proxy import ProxyServer
from scribengin.proxy.client.transport import FlightTransport
from scribengin.proxy.config import CA_VARIABLE, TOKEN_VARIABLE
from scribengin.proxy.nodes import ProxyNodes
from scribengin.proxy.wire.bundles import WRITES
from scribengin.proxy.wire.requests import WRITE
from scribengin_registry.contract import Registry
from tests.integration.cli_runner import CommandLine, expect_registry_away


def test_it_writes_for_others_and_hands_its_logs_over_at_its_end(line: CommandLine, registry: Registry) -> None:
    line.ok("log", "create", "a")
    nodes = ProxyNodes(registry, "/logs")
    for number, end in enumerate((signal.SIGTERM, signal.SIGINT)):
        with line.process("proxy", "--namespace", "/logs", "--port", "0", "--advertise", "localhost") as process:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert re.fullmatch(r"grpc://localhost:\d+", address)
            assert [one.address for one in nodes.servers()] == [address]
            line.ok("log", "write", "a", f"record {number}", "--proxy")
            owner = nodes.owner("a")
            assert owner is not None
            assert owner.address == address
            process.send_signal(end)
            out, err = process.communicate(timeout=120)
        assert (process.returncode, out, err) == (0, "", "it writes logs of /logs; Ctrl-C hands them over\n")
        assert (nodes.servers(), nodes.owner("a")) == ([], None)
    line.ok("log", "write", "a", "without one")
    assert line.ok("log", "read", "a").out.splitlines() == ["record 0", "record 1", "without one"]


def test_a_record_that_no_proxy_takes_is_waited_for_as_long_as_is_said(
    line: CommandLine, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = FlightTransport._answers

    def is_deaf_to_records(
        transport: FlightTransport, address: str, kind: str, body: bytes, timeout_s: float
    ) -> Iterator[pa.Buffer]:
        if kind in (WRITE, WRITES):
            raise ProxyUnreachable("the proxy does not answer")
        return asked(transport, address, kind, body, timeout_s)

    monkeypatch.setattr(FlightTransport, "_answers", is_deaf_to_records)
    line.ok("log", "create", "a")
    with ProxyServer("/logs", registry):
        done = line("log", "write", "a", "x", "--proxy", "--patience-s", "0.001", "--wait-s", "60")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "written to a before this: 0 records\nscribengin: the proxy does not answer; given up after 0.001 s "
        "(`patience_s` of the client): nobody knows whether the records are in the log, and they may still come: read "
        "it again once a proxy has taken a later record, or write them with a key that tells duplicates\n"
    )


def test_its_file_says_how_it_runs_and_options_go_over_it(line: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "proxy.yaml"
    file.write_text("advertised_host: from-the-file\nhost: localhost\n")
    uri = f"distributedlog-file://{line.hosts}/logs"
    for options, host in (((), "from-the-file"), (("--advertise", "said"), "said")):
        with line.process("proxy", "--namespace", uri, "--config", str(file), *options) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(f"grpc://{host}:")
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
        assert process.returncode == 0


ACCESS = """callers:
  ingest:
    token: ${file:%s/token}
    logs: {"flights/*": [write]}
"""


def test_it_lets_in_who_has_the_token_and_shows_it_to_nobody(
    line: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    (tmp_path / "access.yaml").write_text(ACCESS % tmp_path)
    (tmp_path / "token").write_text(token := "31fe-the-token-of-ingest-08")
    line.ok("log", "create", "flights/0", "orders")
    both, access = str(tmp_path / "both.pem"), str(tmp_path / "access.yaml")
    monkeypatch.setenv(CA_VARIABLE, str(tmp_path / "ca.pem"))
    options = ("--tls-certificate", both, "--tls-key", both, "--access", access, "--advertise", "localhost")
    written = ("log", "write", "flights/0", "x", "--proxy")
    with line.process("proxy", "--namespace", "/logs", "--host", "0.0.0.0", *options) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("grpc+tls://localhost:")
        for value, log, words in (
            (None, "flights/0", f"none was sent: set {TOKEN_VARIABLE}"),
            ("1234-somebody-else", "flights/0", "the proxy knows no caller by the token that was sent"),
            (token, "orders", "log 'orders': caller 'ingest' may not write it; "),
        ):
            monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
            if value is not None:
                monkeypatch.setenv(TOKEN_VARIABLE, value)
            done = line("log", "write", log, "x", "--proxy")
            assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
            assert words in done.err
            assert value is None or value not in done.err
        monkeypatch.setenv(TOKEN_VARIABLE, f"${{file:{tmp_path}/token}}")
        line.ok(*written)
        trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
        with line.process(*written, "--wait-s", "0") as stranger:
            out, err = stranger.communicate(timeout=120)
        assert (stranger.returncode, out, err.count("\n")) == (1, "", 1), err
        assert "certificate verify failed" in err
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "", "it writes logs of /logs; Ctrl-C hands them over\n")
    assert line.ok("log", "read", "flights/0").out == "x\n"
    assert line.ok("log", "read", "orders").out == ""


def test_commands_of_logs_take_the_uri_of_proxies(line: CommandLine, registry: Registry) -> None:
    """What changes a log or reads it asks them. What needs the store itself says so, and changes nothing."""
    uri = f"distributedlog-proxy://{line.hosts}/logs"
    by_proxy = ("--namespace", uri)
    with ProxyServer("/logs", registry) as server:
        assert line.ok("log", "create", "a", "b", *by_proxy).out == "created a, b\n"
        line.ok("log", "write", "a", "1", "2", "3", *by_proxy)
        assert server.service.logs == ["a"]
        assert line.ok("log", "read", "a", *by_proxy).out == "1\n2\n3\n"
        assert line.ok("log", "tail", "a", "--from", "earliest", "-n", "2", *by_proxy).out == "1\n2\n"
        assert server.service.reads.cached_bytes > 0
        assert line.ok("log", "count", "a", *by_proxy).out == "3\n"
        assert "2 records given up" in line.ok("log", "truncate", "a", "--before", "last", *by_proxy).out
        assert [log["log"] for log in line.ok("log", "list", "--json", *by_proxy).json] == ["a", "b"]
        assert line.ok("log", "info", "a", "--json", *by_proxy).json["records"] == 1
        assert line.ok("log", "dump", "a", *by_proxy).json["payload"] == "3"
        assert line.ok("log", "configure", "a", "--json", *by_proxy).json
        assert line.ok("log", "seal", "b", *by_proxy).out == "sealed b\n"
        for refused in (
            ("purge", "a"),
            ("compress", "a", "--codec", "zstd"),
            ("repair", "a"),
            ("recover", "a"),
            ("inspect", "a"),
            ("verify", "a"),
            ("copy", "b", "--to", uri, "--as", "c"),
            ("seal", "a", "--steal"),
            ("write", "a", "x", "--steal"),
        ):
            done = line("log", *refused, *by_proxy)
            assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), (refused, done)
        assert line.ok("log", "delete", "b", "--force", *by_proxy).out
    assert line.ok("log", "verify", "a").out.startswith("a  ok  ")
    assert line.ok("log", "read", "a").out == "3\n"
    assert [log["log"] for log in line.ok("log", "list", "--json").json] == ["a"]


def test_bad_input_is_one_line(line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- a\n")
    (tmp_path / "unknown.yaml").write_text("prot: 1\n")
    (tmp_path / "access.yaml").write_text(ACCESS % tmp_path)
    (tmp_path / "clear.yaml").write_text((ACCESS % tmp_path).replace("${", "").replace("}\n", "\n", 1))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, arguments in {
            f"cannot listen at 127.0.0.1:{port}": ("--port", port),
            "cannot listen at a..b": ("--host", "a..b", "--insecure"),
            "cannot listen at \u00e9..b: no host is called that": ("--host", "\u00e9..b", "--insecure"),
            "host 0.0.0.0 is reached by other machines": ("--host", "0.0.0.0"),
            "'nowhere' is no namespace": ("--namespace", "nowhere"),
            "is bound to no store": ("--namespace", "/nowhere"),
            "list.yaml holds no mapping": ("--config", str(tmp_path / "list.yaml")),
            "token: a token does not stand in a configuration": ("--access", str(tmp_path / "clear.yaml")),
            f"{tmp_path}/token}} cannot be read": ("--access", str(tmp_path / "access.yaml")),
            "tls.key_file: is missing": ("--tls-certificate", "cert.pem"),
            "cert.pem cannot be read": ("--tls-certificate", "cert.pem", "--tls-key", "key.pem"),
            "prot": ("--config", str(tmp_path / "unknown.yaml")),
            "absent.yaml cannot be read": ("--config", str(tmp_path / "absent.yaml")),
        }.items():
            done = line("proxy", "--namespace", "/logs", *arguments)
            assert (done.code, done.out) == (2, ""), done.err
            assert done.err.count("\n") == 1, done.err
            assert words in done.err
        expect_registry_away(line, "proxy", "--namespace", "/logs")
    done = line("log", "write", "a", "x", "--proxy", "--steal")
    assert (done.code, done.err.count("\n")) == (2, 1)
