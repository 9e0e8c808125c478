"""`stop`, `kill` and `delete` of several: all are looked at before the first is touched, and each has its line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.dataflow.config import load_config
from scribengin.dataflow.registry.descriptors import DataflowState
from scribengin.dataflow.registry.view import DataflowView, SeenDataflow, dataflow_names
from scribengin.errors import ContainerUnreachable, DataflowBusy, ScribenginError, SystemUnreachable
from scribengin.log import LogNamespace
from scribengin.operations import delete as deleting
from scribengin.operations import lifecycle
from scribengin.operations.chain import lifecycle as chains
from scribengin.operations.chain.registry import ChainDescriptor, ChainMember, create_chain
from scribengin.testing.memory.disk import MemoryDisk
from scribengin.testing.memory.registry import MemoryEnsemble, MemoryRegistry
from scribengin.testing.memory.segments import MEMORY_STORE
from scribengin_registry.errors import OutcomeUnknown, RegistryUnreachable, VersionConflict
from scribengin_tools.cli import main as cli
from scribengin_tools.cli.dataflow import end


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MemoryRegistry]:
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path))
    disk = MemoryDisk("several")
    with MemoryEnsemble().connect() as session:
        LogNamespace.bind("/logs", disk.name, registry=session, store=MEMORY_STORE)
        monkeypatch.setattr(end, "connected", lambda _hosts: nullcontext(session))
        yield session


def put(registry: MemoryRegistry, name: str, state: DataflowState, *, led: bool = True) -> DataflowView:
    config = load_config(
        {
            "name": name,
            "sources": {"src": {"kind": "log", "logs": "in/*"}},
            "sinks": {"out": {"kind": "log", "log": f"out-{name}"}},
            "sql": "SELECT payload FROM src",
        }
    )
    view = DataflowView(registry, name)
    view.submit(config, [], SYSTEM_CLOCK.now_ms())
    view.set_status(view.status().model_copy(update={"state": state}))
    if led:
        registry.create(f"{view.paths.master}/somebody", ephemeral=True)
    return view


def put_chain(registry: MemoryRegistry, name: str, *keys: str) -> None:
    """A chain of these dataflows; default: of one."""
    members = tuple(ChainMember(key=key, dataflow=f"{name}-{key}") for key in keys or ("first",))
    for member in members:
        put(registry, member.dataflow, "running")
    create_chain(registry, ChainDescriptor(name=name, members=members, config={}, submitted_ms=0, state="submitted"))


def at_once(monkeypatch: pytest.MonkeyPatch, **states: DataflowState) -> None:
    """The dataflows end as soon as they are asked, as these."""
    asked = lifecycle.set_desired_state

    def ends(view: DataflowView, wanted: str, by: str | None = None) -> bool:
        changed = asked(view, wanted, by)  # type: ignore[arg-type]
        view.set_status(view.status().model_copy(update={"state": states[view.dataflow]}))
        view.registry.delete(f"{view.paths.master}/somebody")
        return changed

    monkeypatch.setattr(lifecycle, "set_desired_state", ends)


def test_each_is_stopped_and_said(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        put(registry, name, "running")
    put(registry, "c", "killed", led=False)
    at_once(monkeypatch, a="stopped", b="finished")
    assert cli.run(["stop", "a", "b", "c"]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "dataflow 'a' is stopped",
        "dataflow 'b' is finished",
        "dataflow 'c' was killed already",
    ]


def test_one_that_fails_keeps_no_other_from_its_end_and_ends_the_command_with_1(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        put(registry, name, "running")
    at_once(monkeypatch, a="failed", b="stopped")
    assert cli.run(["stop", "a", "b"]) == 1
    out, err = capsys.readouterr()
    assert out == "dataflow 'b' is stopped\n"
    assert "dataflow 'a' is failed: see `scribengin history a`" in err


def test_nothing_is_asked_to_stop_where_one_has_nobody_to_stop_it(
    registry: MemoryRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    first = put(registry, "a", "running")
    put(registry, "b", "running", led=False)
    for names, said in ((("a", "b"), "'b' has no master any more"), (("a", "none"), "there is no dataflow 'none'")):
        assert cli.run(["stop", *names]) == 2
        out, err = capsys.readouterr()
        assert (out, said in err) == ("", True)
    assert first.config().version == 0


def test_who_waits_no_longer_hears_of_all_that_go_on_stopping(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        put(registry, name, "running")

    def leave(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lifecycle, "wait_for_state", leave)
    assert cli.run(["stop", "a", "b"]) == 130
    assert "a, b go on stopping; `scribengin list` shows how far they are" in capsys.readouterr().err
    assert [DataflowView(registry, name).config().value.desired_state for name in "ab"] == ["stopped", "stopped"]


def test_none_is_deleted_while_one_runs_or_is_not_there_or_is_named_twice(
    registry: MemoryRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    put(registry, "a", "stopped", led=False)
    put(registry, "b", "running")
    for names, said in (
        (("a", "b"), "dataflow 'b' is running: stop it first"),
        (("a", "none"), "there is no dataflow 'none'"),
        (("a", "a"), "'a' and 'a' mean the same dataflow: name it once"),
    ):
        assert cli.run(["delete", *names]) == 2
        out, err = capsys.readouterr()
        assert (out, said in err) == ("", True)
    assert dataflow_names(registry) == ["a", "b"]
    put(registry, "c", "failed", led=False)
    assert cli.run(["delete", "a", "c"]) == 0
    out, err = capsys.readouterr()
    assert out == "dataflow 'a' is deleted\ndataflow 'c' is deleted\n"
    assert err.count("what they wrote stays where it is") == 1
    assert dataflow_names(registry) == ["b"]


def test_what_is_not_deleted_because_one_before_it_could_not_be_is_named(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c", "d"):
        put(registry, name, "stopped", led=False)
    real = deleting.finish_rounds

    def fails(view: DataflowView, *, seen: SeenDataflow) -> SeenDataflow:
        if view.dataflow == "b":
            raise DataflowBusy("b cannot be finished")
        return real(view, seen=seen)

    monkeypatch.setattr(deleting, "finish_rounds", fails)
    assert cli.run(["delete", "a", "b", "c", "d"]) == 2
    out, err = capsys.readouterr()
    assert out == "dataflow 'a' is deleted\n"
    assert "b cannot be finished" in err
    assert "not deleted either: c, d" in err
    assert dataflow_names(registry) == ["b", "c", "d"]


def test_several_are_killed_though_one_cannot_be(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        put(registry, name, "running", led=False)
    real = lifecycle.kill_dataflow

    def fails(session: MemoryRegistry, name: str, home: Path) -> lifecycle.Killed:
        if name == "a":
            raise ContainerUnreachable("a's machine does not answer")
        return real(session, name, home)

    monkeypatch.setattr(lifecycle, "kill_dataflow", fails)
    assert cli.run(["kill", "a", "b"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("killed dataflow 'b'")
    assert "a's machine does not answer" in err
    assert cli.run(["kill", "b", "none"]) == 2


def test_what_has_no_status_that_anybody_can_read_is_killed_and_neither_stopped_nor_deleted(
    registry: MemoryRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    view = put(registry, "a", "running", led=False)
    put(registry, "b", "stopped", led=False)
    registry.set(view.paths.status, b"{not json")
    for command in ("stop", "delete"):
        assert cli.run([command, "b", "a"]) == 1
        assert "does not hold a DataflowStatus" in capsys.readouterr().err
    assert dataflow_names(registry) == ["a", "b"]
    assert cli.run(["kill", "a"]) == 0
    assert "what could not be read is left as it is: /scribengin/dataflows/a/status" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (SystemUnreachable("the brokers of 'one' do not answer"), 1),
        (VersionConflict("somebody else changed it"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_what_failed_is_told_whatever_comes_after_it(
    registry: MemoryRegistry,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    raised: BaseException,
    code: int,
) -> None:
    put(registry, "a", "running")
    put_chain(registry, "one")
    put_chain(registry, "two")
    at_once(monkeypatch, a="failed")
    stopped: list[str] = []

    def stop_chain(_session: object, chain: ChainDescriptor, *_arguments: object, **_options: object) -> None:
        if chain.name == "one":
            raise raised
        stopped.append(chain.name)

    monkeypatch.setattr(chains, "stop_chain", stop_chain)
    assert cli.run(["stop", "a", "one", "two"]) == code
    err = capsys.readouterr().err
    assert "dataflow 'a' is failed: see `scribengin history a`" in err
    assert str(raised) in err
    if code == 1:
        assert (stopped, "not asked" in err) == (["two"], False)
    else:
        assert "what of chain 'one' was asked to stop goes on stopping" in err
        assert (stopped, err.endswith("; not asked yet: two\n")) == ([], True)


def test_who_leaves_the_first_chain_hears_that_the_second_was_not_asked(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two", "three"):
        put_chain(registry, name)

    def leave(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(chains, "stop_chain", leave)
    assert cli.run(["stop", "one", "two", "three"]) == 130
    err = capsys.readouterr().err
    assert "`scribengin stop one` goes on from there" in err
    assert err.endswith("; not asked yet: two, three\n")


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("raised", [DataflowBusy("keeps changing"), OutcomeUnknown("broke off"), KeyboardInterrupt()])
def test_those_that_were_asked_before_one_could_not_be_are_named(
    registry: MemoryRegistry,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    raised: BaseException,
    wait: bool,
) -> None:
    for name in ("a", "b", "c", "d"):
        put(registry, name, "running")
    asked = lifecycle.set_desired_state

    def fails(view: DataflowView, wanted: str, by: str | None = None) -> bool:
        if view.dataflow == "c":
            raise raised
        return asked(view, wanted, by)  # type: ignore[arg-type]

    monkeypatch.setattr(lifecycle, "set_desired_state", fails)
    assert cli.run(["stop", "a", "b", "c", "d", *([] if wait else ["--no-wait"])]) != 0
    err = capsys.readouterr().err
    assert "a, b go on stopping; `scribengin list` shows how far they are" in err
    assert "not known to be asked: c, d" in err
    assert str(raised) in err


def test_one_that_cannot_be_asked_has_nobody_go_on_stopping(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(registry, "a", "running")

    def fails(*_arguments: object) -> bool:
        raise DataflowBusy("keeps changing")

    monkeypatch.setattr(lifecycle, "set_desired_state", fails)
    assert cli.run(["stop", "a"]) == 2
    assert capsys.readouterr().err == "scribengin: keeps changing\n"


@pytest.mark.parametrize(
    ("raised", "code", "left"),
    [
        (KeyboardInterrupt(), 130, "not killed, or only in part: b, c"),
        (RegistryUnreachable("no server answers"), 1, "not killed, or only in part: b, c"),
        (VersionConflict("somebody else changed it"), 1, ""),
    ],
)
def test_what_is_not_killed_is_said(
    registry: MemoryRegistry,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    raised: BaseException,
    code: int,
    left: str,
) -> None:
    for name in ("a", "b", "c"):
        put(registry, name, "running", led=False)
    real = lifecycle.kill_dataflow

    def fails(session: MemoryRegistry, name: str, home: Path) -> lifecycle.Killed:
        if name == "a":
            raise ContainerUnreachable("a's machine does not answer")
        if name == "b":
            raise raised
        return real(session, name, home)

    monkeypatch.setattr(lifecycle, "kill_dataflow", fails)
    assert cli.run(["kill", "a", "b", "c"]) == code
    out, err = capsys.readouterr()
    assert "a's machine does not answer" in err
    assert str(raised) in err
    assert left in err
    assert ("not killed" in err) == bool(left)
    assert out.startswith("killed dataflow 'c'") == (not left)
    assert not isinstance(raised, ScribenginError) or err.count(str(raised)) == 1


def test_all_of_a_chain_are_killed_though_one_cannot_be(
    registry: MemoryRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    put_chain(registry, "one", "first", "second", "third")
    harmed = DataflowView(registry, "one-second").paths
    for path in (harmed.status, harmed.config_in_force):
        registry.set(path, b"{not json")
    assert cli.run(["kill", "one"]) == 1
    out, err = capsys.readouterr()
    assert [line.split(" (")[0] for line in out.splitlines()] == [
        "killed dataflow 'one-first'",
        "killed dataflow 'one-third'",
    ]
    assert harmed.status in err
    assert [DataflowView(registry, f"one-{key}").status().state for key in ("first", "third")] == ["killed"] * 2


def test_of_a_chain_that_is_killed_in_part_both_parts_are_told(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_chain(registry, "one", "first", "second")
    real = lifecycle.kill_dataflow

    def leaves(session: MemoryRegistry, name: str, home: Path) -> lifecycle.Killed:
        if name == "one-second":
            raise KeyboardInterrupt
        return real(session, name, home)

    monkeypatch.setattr(lifecycle, "kill_dataflow", leaves)
    assert cli.run(["kill", "one"]) == 130
    out, err = capsys.readouterr()
    assert out.startswith("killed dataflow 'one-first'")
    assert "not killed, or only in part: one" in err
