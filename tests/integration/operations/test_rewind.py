"""`rewind`: other positions for a dataflow that is paused or has ended, all or none; without workers or Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from scribengin.base.clock import SYSTEM_CLOCK
from scribengin.base.commit_log import CommitLog, Decision, PreparedRound
from scribengin.connectors import Environment
from scribengin.connectors.contract import RoundLimits, SourceStreamDescriptor, StartAt
from scribengin.dataflow.config import load_config
from scribengin.dataflow.opened import OpenedDataflow
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.paths import STREAM_NODES
from scribengin.dataflow.registry.view import DataflowView
from scribengin.errors import (
    CommitTooLarge,
    ConfigInvalid,
    DataflowBusy,
    ReaderBehind,
    RewindOvertaken,
    ScribenginError,
)
from scribengin.log import DLSN, LogNamespace
from scribengin.operations.rewind import Rewind
from scribengin.testing.failpoints import at_failpoint
from scribengin_registry.contract import Operation, Registry
from tests.integration.cli_runner import CommandLine, whole_tree

STREAMS = ("words/0", "words/1")
ALL = RoundLimits(1000, 1 << 20)
EARLIEST = StartAt("earliest")


@pytest.fixture
def logs(line: CommandLine, registry: Registry) -> Iterator[LogNamespace]:
    """Two logs of ten records each, as two entries, and one that nobody has read."""
    with LogNamespace.open("/logs", registry=registry) as logs:
        for log in (*STREAMS, "lines/0"):
            logs.create(log)
            for first in (0, 5):
                with logs.open_writer(log) as writer:
                    payloads = [str(n).encode() for n in range(first, first + 5)]
                    txids = range(1000 + first, 1005 + first)
                    batch = pa.record_batch(
                        [pa.array(payloads, pa.binary()), pa.array(txids, pa.int64())], names=["payload", "txid"]
                    )
                    writer.write_bulk(batch).result(120)
        yield logs


@pytest.fixture
def view(registry: Registry, logs: LogNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DataflowView:
    """A dataflow that is paused, and has read its first source to the end."""
    monkeypatch.setenv("SCRIBENGIN_HOME", str(tmp_path / "home"))
    config = load_config(
        {
            "name": "flow",
            "sources": {"words": {"kind": "log", "logs": "words/*"}, "lines": {"kind": "log", "logs": "lines/*"}},
            "sinks": {"out": {"kind": "log", "log": "out"}},
            "sql": "SELECT payload FROM words UNION ALL SELECT payload FROM lines",
            "desired_state": "paused",
        }
    )
    view = DataflowView(registry, "flow")
    view.submit(config, ["log:/logs/out"], SYSTEM_CLOCK.now_ms())
    with OpenedDataflow(config, Environment(registry=registry, dataflow="flow", nodes=STREAM_NODES)) as opened:
        view.commit_placement(view.placement_head(), view.creation_of_tasks(opened.tasks()))
        for name in STREAMS:
            stream = SourceStreamDescriptor(source="words", name=name)
            at_end = opened.sources["words"].position_at(stream, StartAt("latest"))
            put(view, "words", name, position=at_end)
    state(view, "paused")
    return view


def put(view: DataflowView, source: str, stream: str, **changes: Any) -> None:
    """A commit log as the last owner left it."""
    log = CommitLog(dataflow="flow", task="task-0", owner="worker-1/executor-1", generation=3, epoch=2, round=7)
    path = commit_log(view, source, stream)
    if view.registry.find(path) is None:
        view.registry.create(path, parents=True)
    view.registry.set(path, log.model_copy(update=changes).to_bytes())


def state(view: DataflowView, name: str) -> None:
    view.set_status(view.status().model_copy(update={"state": name}))


def commit_log(view: DataflowView, source: str, stream: str) -> str:
    return paths.commit_log(view.paths.source_stream(source, stream))


def read_on(view: DataflowView, source: str, stream: str) -> list[bytes]:
    """What the next owner reads there."""
    path = commit_log(view, source, stream)
    position = CommitLog.from_bytes(view.registry.get(path).data, path=path).position
    assert position is not None
    with OpenedDataflow(
        view.config().value, Environment(registry=view.registry, dataflow="flow", nodes=STREAM_NODES)
    ) as opened:
        reader = opened.sources[source].open_reader(SourceStreamDescriptor(source=source, name=stream))
        plan = reader.plan(position, ALL)
        batches = [batch for split in plan.splits for batch in split.read()] if plan is not None else []
        reader.close()
    return [payload for batch in batches for payload in batch.column("payload").to_pylist()]


def numbers(first: int) -> list[bytes]:
    return [str(n).encode() for n in range(first, 10)]


@pytest.mark.parametrize(
    ("at", "first"),
    [
        (EARLIEST, 0),
        (StartAt("latest"), 10),
        (StartAt("dlsn", "1/0/3"), 3),
        (StartAt("dlsn", "2/0/0"), 5),
        (StartAt("time", 0), 0),
    ],
    ids=str,
)
def test_every_stream_is_read_on_from_there(view: DataflowView, at: StartAt, first: int) -> None:
    rewind = Rewind(view, at, None)
    assert [(r.source, r.stream, r.before is None) for r in rewind.streams] == [
        ("words", "words/0", False),
        ("lines", "lines/0", True),
        ("words", "words/1", False),
    ]
    rewind.apply()
    for source, stream in (("words", "words/0"), ("words", "words/1"), ("lines", "lines/0")):
        assert read_on(view, source, stream) == numbers(first)


def test_only_the_position_moves(view: DataflowView) -> None:
    path = commit_log(view, "words", "words/0")
    before = CommitLog.from_bytes(view.registry.get(path).data, path=path)
    Rewind(view, EARLIEST, "words").apply()
    after = CommitLog.from_bytes(view.registry.get(path).data, path=path)
    assert after.model_copy(update={"position": before.position}) == before
    assert view.registry.find(commit_log(view, "lines", "lines/0")) is None, "the other source was not asked for"


def die(_stop: str) -> None:
    raise SystemExit


@pytest.mark.parametrize(
    ("stop", "moved"), [("rewind.create:after", False), ("rewind.commit:before", False), ("rewind.commit:after", True)]
)
def test_a_crash_leaves_all_streams_moved_or_none(view: DataflowView, stop: str, moved: bool) -> None:
    with at_failpoint(stop, die), pytest.raises(SystemExit):
        Rewind(view, EARLIEST, None).apply()
    assert [read_on(view, "words", stream) for stream in STREAMS] == [numbers(0 if moved else 10)] * 2
    assert (view.registry.find(commit_log(view, "lines", "lines/0")) is not None) == moved
    Rewind(view, EARLIEST, None).apply()
    assert [read_on(view, "words", stream) for stream in STREAMS] == [numbers(0)] * 2


def test_an_owner_that_comes_in_between_keeps_everything_as_it_was(view: DataflowView) -> None:
    rewind = Rewind(view, EARLIEST, None)
    put(view, "words", "words/1", epoch=3, position={"segment": 2, "entry": 0, "slot": 1})
    before = whole_tree(view.registry, "/scribengin/locks/sources/flow.words")
    with pytest.raises(DataflowBusy, match="was taken over meanwhile: nothing was rewound"):
        rewind.apply()
    assert whole_tree(view.registry, "/scribengin/locks/sources/flow.words") == before


def test_another_rewind_that_comes_in_between_is_told_as_that(view: DataflowView) -> None:
    rewind = Rewind(view, EARLIEST, "words")
    view.registry.commit([view.next_era("words")])
    before = whole_tree(view.registry, "/scribengin/locks/sources/flow.words")
    with pytest.raises(DataflowBusy, match=r"changed meanwhile by another rewind or by its master: .* try again"):
        rewind.apply()
    assert whole_tree(view.registry, "/scribengin/locks/sources/flow.words") == before


@pytest.mark.parametrize("at", [StartAt("dlsn", "1/0/3"), StartAt("time", 0), StartAt("earliest")], ids=str)
def test_what_retention_takes_before_the_positions_have_moved_keeps_everything_as_it_was(
    view: DataflowView, logs: LogNamespace, at: StartAt
) -> None:
    rewind = Rewind(view, at, None)
    before = whole_tree(view.registry, "/scribengin/locks/sources/flow.words")
    logs.truncate("words/1", DLSN(2, 0, 0))
    logs.purge("words/1")
    with pytest.raises(DataflowBusy, match=r"was not rewound: .* was truncated.*rewind it to a later place"):
        rewind.apply()
    assert whole_tree(view.registry, "/scribengin/locks/sources/flow.words").keys() == before.keys()
    assert [read_on(view, "words", stream) for stream in STREAMS] == [[], []]
    assert view.registry.find(commit_log(view, "lines", "lines/0")) is None


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("at", [StartAt("dlsn", "1/0/3"), EARLIEST], ids=str)
def test_who_looked_before_the_positions_moved_and_would_truncate_after_it_looks_again(
    view: DataflowView, logs: LogNamespace, monkeypatch: pytest.MonkeyPatch, at: StartAt, *, dies: bool
) -> None:
    held(view)
    if dies:
        monkeypatch.setattr(Rewind, "_keep_or_move_back", lambda _self, _versions: die("once it has moved them"))

    def rewound(_stop: str) -> None:
        with suppress(SystemExit):
            Rewind(view, at, "words").apply()

    with at_failpoint("log.metadata:before", rewound), pytest.raises(ReaderBehind):
        logs.truncate("words/1", DLSN(2, 0, 0))
    assert read_on(view, "words", "words/1") == numbers(3 if at.kind == "dlsn" else 0)


def test_a_log_that_two_sources_read_is_rewound_for_both(view: DataflowView) -> None:
    config = view.config().value
    twice = config.model_copy(
        update={"name": "twice", "sources": dict.fromkeys(("once", "again"), config.sources["words"])}
    )
    both = DataflowView(view.registry, "twice")
    both.submit(twice, [], SYSTEM_CLOCK.now_ms())
    with OpenedDataflow(twice, Environment(registry=view.registry, dataflow="twice", nodes=STREAM_NODES)) as opened:
        both.commit_placement(both.placement_head(), both.creation_of_tasks(opened.tasks()))
    state(both, "paused")
    rewind = Rewind(both, StartAt("dlsn", "1/0/3"), None)
    rewind.apply()
    assert len(rewind.streams) == 2 * len(STREAMS)


def test_a_log_that_gets_segments_meanwhile_is_looked_at_again_and_the_others_are_not(
    view: DataflowView, logs: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(view)
    looked: list[str] = []
    real = LogNamespace.reader_goes_back
    monkeypatch.setattr(LogNamespace, "reader_goes_back", lambda self, name: looked.append(name) or real(self, name))

    def writes(_stop: str) -> None:
        if len(looked) == len(STREAMS):
            more(logs, "words/0")

    with at_failpoint("rewind.commit:before", writes):
        Rewind(view, StartAt("dlsn", "1/0/3"), "words").apply()
    assert looked == [*STREAMS, "words/0"]
    assert read_on(view, "words", "words/1") == numbers(3)


def test_logs_that_never_rest_are_told_and_nothing_is_rewound(
    view: DataflowView, logs: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LogNamespace.reader_goes_back

    def outdated(self: LogNamespace, name: str) -> Sequence[Operation]:
        guards = real(self, name)
        more(logs, name)
        return guards

    before = whole_tree(view.registry, "/scribengin/locks/sources/flow.words")
    monkeypatch.setattr(LogNamespace, "reader_goes_back", outdated)
    with pytest.raises(RewindOvertaken, match="kept changing meanwhile, by new segments or old ones given up; try ag"):
        Rewind(view, StartAt("dlsn", "1/0/3"), "words").apply()
    assert whole_tree(view.registry, "/scribengin/locks/sources/flow.words") == before


def test_a_log_that_is_made_anew_meanwhile_keeps_what_it_is(view: DataflowView, logs: LogNamespace) -> None:
    """With the same number of changes, so that its head has the version that the other one's had."""

    def anew(_stop: str) -> None:
        if not made:
            made.append("words/0")
            logs.delete("words/0", force=True)
            logs.create("words/0")
            for _ in range(2):
                more(logs, "words/0")

    made: list[str] = []
    with at_failpoint("rewind.commit:before", anew), pytest.raises(ScribenginError):
        Rewind(view, StartAt("dlsn", "1/0/3"), "words").apply()
    assert made
    assert logs.count("words/0") == 2
    more(logs, "words/0")
    assert logs.count("words/0") == 3
    assert read_on(view, "words", "words/1") == []


@pytest.mark.parametrize("by", ["taken over", "changed by another rewind or by its master"])
def test_what_cannot_be_moved_back_says_that_it_was_moved(
    view: DataflowView, logs: LogNamespace, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """As of a topic, whose readers nobody knows."""
    monkeypatch.setattr(Rewind, "_guard", lambda _self, _guarded: None)

    def taken(_stop: str) -> None:
        logs.truncate("words/1", DLSN(2, 0, 0))
        if by == "taken over":
            put(view, "words", "words/0", epoch=9)
        else:
            view.registry.commit([view.next_era("words")])

    with (
        at_failpoint("rewind.commit:after", taken),
        pytest.raises(DataflowBusy, match=f"{by} before it could be moved back: pause it"),
    ):
        Rewind(view, StartAt("dlsn", "1/0/3"), "words").apply()


def held(view: DataflowView) -> None:
    """The logs are held back for the dataflow, as by its master."""
    environment = Environment(registry=view.registry, dataflow="flow", nodes=STREAM_NODES)
    with OpenedDataflow(view.config().value, environment) as opened:
        opened.sources["words"].retention_hold([SourceStreamDescriptor(source="words", name=name) for name in STREAMS])


def more(logs: LogNamespace, log: str) -> None:
    """One more record, in a segment of its own."""
    with logs.open_writer(log, steal=True) as writer:
        writer.write(b"more").result(120)


def test_a_stream_that_somebody_owns_is_not_moved(view: DataflowView) -> None:
    view.registry.create(paths.lock(view.paths.source_stream("words", "words/0")), b"{}", ephemeral=True)
    with pytest.raises(DataflowBusy, match="words/words/0 of 'flow' is being read"):
        Rewind(view, EARLIEST, None)


def test_a_round_that_is_not_decided_comes_first(view: DataflowView) -> None:
    prepared = PreparedRound(decision=Decision(coordinator="group", epoch=2, round=8))
    put(view, "words", "words/0", prepared=prepared)
    with pytest.raises(DataflowBusy, match="prepared and not decided"):
        Rewind(view, EARLIEST, None)


def test_more_than_a_transaction_takes_is_refused_before_anything_is_written(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scribengin.operations.rewind.TRANSACTION_BYTES_MAX", 500)
    with pytest.raises(CommitTooLarge, match="--source"):
        Rewind(view, EARLIEST, None).apply()
    with pytest.raises(CommitTooLarge, match=r"of 2 streams are .* at most: submit another dataflow that begins there"):
        Rewind(view, EARLIEST, "words").apply()
    assert read_on(view, "words", "words/0") == []


def test_the_command_asks_first_and_tells_the_history(line: CommandLine, view: DataflowView) -> None:
    declined = line.fed("n\n", "rewind", "flow", "--to", "earliest")
    assert declined.code == 130
    assert "Its sinks keep what they have" in declined.err
    assert "2/0/5" in declined.err or "2/1/0" in declined.err
    assert declined.err.endswith("nothing was done\n")
    alone = line.fed("", "rewind", "flow", "--to", "earliest")
    assert alone.code == 2
    assert alone.err.endswith("scribengin: nobody is here to answer, so nothing was done: say --yes to be spared\n")
    assert read_on(view, "words", "words/0") == []
    assert line.fed("y\n", "rewind", "flow", "--to", "1/0/3", "--source", "words").code == 0
    assert read_on(view, "words", "words/0") == numbers(3)
    done = line.ok("rewind", "flow", "--to", "earliest", "--yes")
    assert done.out == "dataflow 'flow' is rewound to earliest (3 streams)\n"
    assert [event.kind for event in view.history().events] == ["rewound", "rewound"]


def test_what_is_purged_while_it_asks_is_not_where_it_lands(
    line: CommandLine, view: DataflowView, logs: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_arguments: object, **_options: object) -> bool:
        """The operator takes a while, and retention is quicker."""
        logs.truncate("words/0", DLSN(2, 0, 0))
        return True

    monkeypatch.setattr("typer.confirm", asked)
    done = line.ok("rewind", "flow", "--to", "earliest", "--source", "words")
    before, _, after = done.err.rpartition("TASK")
    assert ("1/0/0" in before, "2/0/0" in before) == (True, False)
    assert "2/0/0" in after, "it says where it landed"
    assert [read_on(view, "words", stream) for stream in STREAMS] == [numbers(5), numbers(0)]
    assert "words/words/0 from 2/1/0 to 2/0/0" in view.history().events[-1].message


def test_what_is_purged_while_it_is_moved_is_not_where_it_lands(
    line: CommandLine, view: DataflowView, logs: LogNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = Rewind.apply

    def overtaken(rewind: Rewind) -> None:
        """Retention is quicker, once."""
        monkeypatch.setattr(Rewind, "apply", apply)
        logs.truncate("words/0", DLSN(2, 0, 0))
        apply(rewind)

    monkeypatch.setattr(Rewind, "apply", overtaken)
    line.ok("rewind", "flow", "--to", "earliest", "--yes")
    assert read_on(view, "words", "words/0") == numbers(5)
    assert "words/words/0 from 2/1/0 to 2/0/0" in view.history().events[-1].message


def test_one_that_has_ended_can_be_rewound_as_well(line: CommandLine, view: DataflowView) -> None:
    state(view, "killed")
    assert "`scribengin start flow`" in line.ok("rewind", "flow", "--to", "earliest", "--yes").err
    assert read_on(view, "words", "words/0") == numbers(0)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--to", "yesterday"], "--to yesterday: expected earliest"),
        (["--to", "offset:3"], "no offset"),
        (["--to", "9/0/0"], "lies behind its end"),
        (["--to", "earliest", "--source", "other"], "has no source 'other' (it has words, lines)"),
    ],
)
def test_a_place_that_there_is_not_changes_nothing(
    line: CommandLine, view: DataflowView, options: list[str], named: str
) -> None:
    before = whole_tree(view.registry, "/scribengin")
    done = line("rewind", "flow", *options, "--yes")
    assert done.code == 2
    assert named in done.err
    assert len(done.err.splitlines()) == 1
    assert whole_tree(view.registry, "/scribengin") == before


def test_a_place_that_is_still_to_come_is_refused_for_what_comes_before_it_would_be_passed_over(
    view: DataflowView, logs: LogNamespace
) -> None:
    with logs.open_writer("words/0") as first, logs.open_writer("words/1") as second:
        for writer in (first, second):
            writer.write(b"10").result(120)
        with pytest.raises(ConfigInvalid, match="lies behind its end"):
            Rewind(view, StartAt("dlsn", "3/2/0"), "words")
        assert len(Rewind(view, StartAt("dlsn", "3/1/0"), "words").streams) == 2


def test_one_that_runs_is_not_rewound(line: CommandLine, view: DataflowView) -> None:
    state(view, "running")
    done = line("rewind", "flow", "--to", "earliest", "--yes")
    assert (done.code, "`scribengin pause flow` first" in done.err) == (2, True)


def test_a_source_that_knows_no_times_says_so() -> None:
    with pytest.raises(ConfigInvalid, match="cannot be rewound to time 5"):
        of_files().position_at(SourceStreamDescriptor(source="files", name="0"), StartAt("time", 5))
    assert of_files().position_at(SourceStreamDescriptor(source="files", name="0"), EARLIEST)["finished"] == {}


def test_a_rewound_source_of_files_counts_its_folds_on_for_a_stale_owner_sweeps_those_it_knows() -> None:
    before = {"streams": 1, "finished": {"z.txt": 3}, "open": {}, "fold": 7, "nodes": ["000000007-ab"], "dropped": []}
    after = of_files().position_at(SourceStreamDescriptor(source="files", name="0"), EARLIEST, before)
    assert after == {"streams": 1, "finished": {}, "open": {}, "fold": 7, "nodes": [], "dropped": []}


def of_files() -> Any:
    from scribengin.connectors import open_source
    from scribengin.connectors.files import FileSourceConfig

    config = FileSourceConfig(kind="hdfs", path="/nowhere")
    environment = Environment(registry=None, dataflow="flow", nodes=STREAM_NODES)  # type: ignore[arg-type]
    return open_source("files", config, environment)
