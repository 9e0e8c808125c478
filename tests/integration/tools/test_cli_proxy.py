"""`scribengin proxy` as a command: what it prints, how it ends, what it refuses; and writing through it."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

from scribengin.proxy.nodes import ProxyNodes
from scribengin_registry.contract import Registry
from tests.integration.cli_runner import CommandLine


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


def test_bad_input_is_one_line(line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- a\n")
    (tmp_path / "unknown.yaml").write_text("prot: 1\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, arguments in {
            f"cannot listen at 127.0.0.1:{port}": ("--port", port),
            "host 0.0.0.0 is reached by other machines": ("--host", "0.0.0.0"),
            "'nowhere' is no namespace": ("--namespace", "nowhere"),
            "is bound to no store": ("--namespace", "/nowhere"),
            "list.yaml holds no mapping": ("--config", str(tmp_path / "list.yaml")),
            "prot": ("--config", str(tmp_path / "unknown.yaml")),
            "absent.yaml cannot be read": ("--config", str(tmp_path / "absent.yaml")),
            "no ZooKeeper server answered": ("--registry", "127.0.0.1:1"),
        }.items():
            done = line("proxy", "--namespace", "/logs", *arguments)
            assert (done.code, done.out) == (2, ""), done.err
            assert done.err.count("\n") == 1, done.err
            assert words in done.err
    done = line("log", "write", "a", "x", "--proxy", "--steal")
    assert (done.code, done.err.count("\n")) == (2, 1)
