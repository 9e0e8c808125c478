"""Streams that no task reads any more leave few nodes, and whoever comes back goes on where it was read up to.

What matters: a node that is made anew begins at version 0, and must not be taken for the one that was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from scribengin.base.commit_log import CommitLog, Decision, QueryBatch, resolve_prepared
from scribengin.dataflow.registry import gone_streams as gone
from scribengin.dataflow.registry import paths
from scribengin.dataflow.registry.deletion import delete_nodes
from scribengin.dataflow.registry.gone_streams import GoneStreamsPage, gone_streams, put_together
from scribengin.dataflow.registry.view import DataflowView
from scribengin.dataflow.round.commit_logs import TaskCommitLogs
from scribengin.errors import StaleOwner
from scribengin_registry.compare_and_set import TRIES_MAX
from scribengin_registry.contract import Create, Delete, Node, Operation, Registry, Set, Watch
from scribengin_registry.errors import VersionConflict
from tests.contract.dataflow.test_dataflow_numbers import RESOURCE, registered, submitted


@pytest.fixture
def view(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> DataflowView:
    monkeypatch.setattr(gone, "TOGETHER_MIN", 1)
    view = submitted(registry)
    registered(view, "worker-1")
    return view


def owned(view: DataflowView, owner: str, generation: int, stream: str = "P0", task: str = "task-0") -> TaskCommitLogs:
    streams = [view.paths.source_stream("flights", stream), paths.sink_stream(RESOURCE, task)]
    member = view.paths.worker(owner.partition("/")[0])
    ownership = TaskCommitLogs(view.registry, view.dataflow, task, owner, generation, streams, member)
    ownership.take()
    return ownership


def source_log(view: DataflowView, stream: str = "P0") -> str:
    return paths.commit_log(view.paths.source_stream("flights", stream))


def read(
    view: DataflowView, stream: str, generation: int = 1, at: int | str = 5, task: str = "task-0"
) -> TaskCommitLogs:
    """Take the stream, read it up to there, and give it back."""
    owner = owned(view, f"worker-1/e/{generation}", generation, stream, task)
    moved = {path: owner.moved(path, **({"position": {"at": at}} if "sources" in path else {})) for path in owner.logs}
    owner.commit(moved)
    owner.release()
    return owner


def pages(view: DataflowView) -> list[GoneStreamsPage]:
    root = view.paths.gone_streams("flights")
    found = [f"{root}/{child}" for child in sorted(view.registry.children(root))]
    return [GoneStreamsPage.from_bytes(view.registry.get(path).data, path=path) for path in found]


def streams_with_nodes(view: DataflowView) -> list[str]:
    return sorted(view.registry.children(paths.source_streams(view.dataflow, "flights")))


def together(view: DataflowView, *beside: str) -> None:
    put_together(view.registry, view.dataflow, "flights", beside)


def meanwhile(monkeypatch: pytest.MonkeyPatch, registry: Registry, happens: Callable[[], object]) -> None:
    """This happens right before the next transaction that deletes or makes something."""
    commit = type(registry).commit
    left = [happens]

    def late(one: Registry, operations: Sequence[Operation]) -> list[int]:
        if left and any(isinstance(operation, Delete) for operation in operations):
            left.pop()()
        return commit(one, operations)

    monkeypatch.setattr(type(registry), "commit", late)


def test_who_owned_a_stream_before_its_nodes_were_made_anew_changes_nothing(view: DataflowView) -> None:
    stale = owned(view, "worker-1/e/1", 1)
    stale.release()
    together(view)
    owner = owned(view, "worker-1/f/1", 2, task="task-1")
    log = source_log(view)
    assert (stale._versions[log], owner._versions[log]) == (0, 0)
    with pytest.raises(VersionConflict):
        stale.begin({log: {"at": 0}})
    with pytest.raises(VersionConflict):
        stale.commit({path: stale.moved(path) for path in stale.logs})
    with pytest.raises(StaleOwner):
        stale.take()
    owner.begin({log: {"at": 7}})
    assert owner.logs[log].position == {"at": 7}


def test_a_stream_that_is_back_goes_on_where_it_was_read_up_to(view: DataflowView) -> None:
    before = read(view, "P0", at=5)
    together(view)
    assert streams_with_nodes(view) == []
    assert view.commit_log_of("flights", "P0") == before.logs[source_log(view)]
    owner = owned(view, "worker-1/e/2", 2)
    assert owner.logs[source_log(view)].position == {"at": 5}
    assert owner.epoch > before.epoch
    assert owner.round == before.round
    owner.commit({source_log(view): owner.moved(source_log(view), position={"at": 9})})
    assert view.commit_log_of("flights", "P0") == owner.logs[source_log(view)], "and not what the page says still"


def test_an_earlier_generation_takes_no_stream_that_is_gone(view: DataflowView) -> None:
    read(view, "P0", generation=7)
    together(view)
    with pytest.raises(StaleOwner, match="generation 7"):
        owned(view, "worker-1/e/6", 6)
    assert view.registry.find(source_log(view)) is None


def test_many_streams_leave_as_many_nodes_as_pages(view: DataflowView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone, "PAGE_BYTES_MAX", 4_000)
    for number in range(60):
        read(view, f"P{number}", number + 1, at=number)
        if number % 10 == 9:
            together(view)
    assert streams_with_nodes(view) == []
    assert len(pages(view)) == 3
    assert all(len(page.to_bytes()) <= 4_000 for page in pages(view))
    said = gone_streams(view.registry, view.dataflow, "flights")
    assert {name: log.position for name, log in said.items()} == {f"P{n}": {"at": n} for n in range(60)}
    assert sorted(view.streams_read("flights")) == sorted(said)
    assert view.commit_logs_of("flights", ["P7", "P59", "P60"]) == {"P7": said["P7"], "P59": said["P59"]}


def sizes_of_changes(view: DataflowView, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each transaction that deletes something, how many bytes of pages it writes."""
    commit = type(view.registry).commit
    sizes: list[int] = []

    def measured(one: Registry, operations: Sequence[Operation]) -> list[int]:
        if any(isinstance(operation, Delete) for operation in operations):
            sizes.append(sum(len(one.data) for one in operations if isinstance(one, Create | Set)))
        return commit(one, operations)

    monkeypatch.setattr(type(view.registry), "commit", measured)
    return sizes


@pytest.mark.parametrize("others", [0, 3, 9])
def test_what_has_become_too_long_for_its_page_goes_where_there_is_room(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """`others` stand on the page after that: none, so few that there is room, or so many that there is none."""
    monkeypatch.setattr(gone, "PAGE_BYTES_MAX", 3_000)
    monkeypatch.setattr(gone, "_CHANGED_BYTES_MAX", 4_500)
    names = [f"P{number}" for number in range(15 + others)]
    for name in names:
        read(view, name)
        together(view)
    assert [len(page.streams) for page in pages(view)] == [15, others][: 2 if others else 1]
    sizes = sizes_of_changes(view, monkeypatch)
    for generation, name in enumerate(names[:6], start=2):
        read(view, name, generation, at=f"{name:500}")
        together(view)
    assert streams_with_nodes(view) == []
    assert all(len(page.to_bytes()) <= 3_000 for page in pages(view))
    assert sizes
    assert max(sizes) <= 4_500
    assert sorted(name for page in pages(view) for name in page.streams) == sorted(names), "each has one entry"
    said = gone_streams(view.registry, view.dataflow, "flights")
    assert {name: log.position for name, log in said.items()} == {
        name: {"at": f"{name:500}" if name in names[:6] else 5} for name in names
    }


def test_few_streams_keep_their_nodes(view: DataflowView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone, "TOGETHER_MIN", 3)
    for number in range(4):
        read(view, f"P{number}", number + 1)
    together(view, "P0", "P1")
    assert len(streams_with_nodes(view)) == 4
    together(view, "P0")
    assert streams_with_nodes(view) == ["P0"]


def test_what_goes_at_once_fits_into_a_transaction(view: DataflowView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone, "_MOVED_BYTES_MAX", 2_000)
    for number in range(12):
        read(view, f"P{number}", number + 1)
    together(view)
    left = len(streams_with_nodes(view))
    assert 6 <= left <= 11
    for _ in range(12):
        together(view)
    assert streams_with_nodes(view) == []
    assert len(gone_streams(view.registry, view.dataflow, "flights")) == 12


def test_one_that_says_too_much_keeps_its_nodes_and_holds_up_no_other(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken along as the last one, however long it was: that had no end where no transaction took it."""
    monkeypatch.setattr(gone, "PAGE_BYTES_MAX", 3_000)
    monkeypatch.setattr(gone, "_CHANGED_BYTES_MAX", 4_500)
    monkeypatch.setattr(gone, "_MOVED_BYTES_MAX", 2_500)
    names = [f"P{number}" for number in range(10)]
    for name in names:
        read(view, name)
        together(view)
    sizes = sizes_of_changes(view, monkeypatch)
    long = {"P0": "x" * 5_000, "P1": "y" * 1_200, "P2": "z" * 1_200}
    for generation, (name, at) in enumerate(long.items(), start=2):
        read(view, name, generation, at=at)
    for left in (2, 1, 1):
        together(view)
        assert len(streams_with_nodes(view)) == left
    assert streams_with_nodes(view) == ["P0"]
    assert max(sizes) <= 4_500
    said = {name: log.position for name, log in gone_streams(view.registry, view.dataflow, "flights").items()}
    assert said == {name: {"at": long[name] if name in ("P1", "P2") else 5} for name in names}
    owner = owned(view, "worker-1/e/9", 9, "P0")
    assert owner.logs[source_log(view, "P0")].position == {"at": long["P0"]}


def test_a_stream_that_comes_and_goes_has_one_entry(view: DataflowView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone, "PAGE_BYTES_MAX", 400)  # each has a page of its own
    for number in range(3):
        read(view, f"P{number}", number + 1)
        together(view)
    for generation in range(4, 9):
        read(view, "P0", generation, at=generation)
        together(view)
        assert [list(page.streams) for page in pages(view)] == [["P0"], ["P1"], ["P2"]]
        assert pages(view)[0].streams["P0"].position == {"at": generation}


def test_an_owner_that_is_disturbed_goes_on_where_it_stood(view: DataflowView) -> None:
    """Streams that somebody owns are not put together. If they were, nothing would be lost."""
    owner = owned(view, "worker-1/e/1", 1)
    log = source_log(view)
    owner.begin({log: {"at": 3}})
    view.registry.delete(paths.lock(view.paths.source_stream("flights", "P0")))
    together(view)
    assert view.registry.find(log) is None
    with pytest.raises(VersionConflict):
        owner.commit({path: owner.moved(path) for path in owner.logs})
    owner.take()
    assert owner.logs[log].position == {"at": 3}
    owner.commit({path: owner.moved(path) for path in owner.logs})


def test_what_somebody_owns_or_has_prepared_keeps_its_nodes(view: DataflowView) -> None:
    owned(view, "worker-1/e/1", 1, "owned")
    prepared = owned(view, "worker-1/e/2", 2, "prepared", "task-1")
    decision = Decision(coordinator="group", epoch=prepared.epoch, round=1)
    prepared.prepare({path: prepared.moved(path) for path in prepared.logs}, decision)
    prepared.release()
    read(view, "gone", 3, task="task-2")
    together(view)
    assert streams_with_nodes(view) == ["owned", "prepared"]


def test_a_node_without_a_commit_log_goes(view: DataflowView) -> None:
    """An owner died before it had fenced."""
    view.registry.create(view.paths.source_stream("flights", "P0"), parents=True)
    together(view)
    assert streams_with_nodes(view) == []
    assert view.commit_log_of("flights", "P0") is None


def takes(view: DataflowView) -> object:
    return owned(view, "worker-1/f/9", 9)


def begins_another_era(view: DataflowView) -> object:
    return view.registry.commit([view.next_era("flights")])


@pytest.mark.parametrize("happens", [takes, begins_another_era])
def test_what_is_taken_or_rewound_meanwhile_is_not_put_together(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch, happens: Callable[[DataflowView], object]
) -> None:
    read(view, "P0")
    meanwhile(monkeypatch, view.registry, lambda: happens(view))
    together(view)
    assert streams_with_nodes(view) == ["P0"]
    assert gone_streams(view.registry, view.dataflow, "flights") == {}


def begins(view: DataflowView, owner: TaskCommitLogs) -> None:
    owner.begin({source_log(view): {"at": 5}})


def names_a_batch(view: DataflowView, owner: TaskCommitLogs) -> None:
    owner.name_batch(QueryBatch(checkpoint="c"), [source_log(view)])


def commits(view: DataflowView, owner: TaskCommitLogs) -> None:
    log = source_log(view)
    owner.commit({path: owner.moved(path, **({"position": {"at": 5}} if path == log else {})) for path in owner.logs})


def commits_what_is_no_source(_view: DataflowView, owner: TaskCommitLogs) -> None:
    owner.commit({path: owner.moved(path) for path in owner.logs if "/sinks/" in path})


def prepares(view: DataflowView, owner: TaskCommitLogs) -> None:
    decision = Decision(coordinator="group", epoch=owner.epoch, round=1)
    moved = {path: owner.moved(path, position={"at": 5}) for path in [source_log(view)]}
    owner.prepare(moved, decision)


def resolves(view: DataflowView, owner: TaskCommitLogs) -> None:
    last = next(log.prepared.decision for log in owner.logs.values() if log.prepared is not None)
    owner.resolve(resolve_prepared(owner.logs, "group", last))
    assert owner.logs[source_log(view)].position == {"at": 5}


CHANGES = [(begins,), (names_a_batch,), (commits,), (commits_what_is_no_source,), (prepares, resolves)]


@pytest.mark.parametrize("changes", CHANGES)
def test_an_owner_need_not_take_over_again_when_other_streams_are_put_together(
    view: DataflowView, changes: Sequence[Callable[[DataflowView, TaskCommitLogs], None]]
) -> None:
    """A sink without transactions has written its round when the owner commits: once more would be twice."""
    owner = owned(view, "worker-1/e/1", 1)
    for number, change in enumerate(changes):
        read(view, "P1", 2 + number, task="task-1")
        together(view)
        assert streams_with_nodes(view) == ["P0"]
        change(view, owner)
    assert owner.epoch == 1
    assert view.commit_log_of("flights", "P0") == owner.logs[source_log(view)]
    commits(view, owner)
    assert owner.logs[source_log(view)].position == {"at": 5}


def disturbed(monkeypatch: pytest.MonkeyPatch, view: DataflowView, times: int) -> list[int]:
    """From now on so many transactions that move a commit log come right after another era has begun. Returns what
    fills with the lengths of those that were tried."""
    commit, tried = type(view.registry).commit, list[int]()

    def late(one: Registry, operations: Sequence[Operation]) -> list[int]:
        if any(isinstance(operation, Set) and operation.path.endswith("/commit-log") for operation in operations):
            tried.append(len(operations))
            if len(tried) <= times:
                commit(one, [view.next_era("flights")])
        return commit(one, operations)

    monkeypatch.setattr(type(view.registry), "commit", late)
    return tried


def test_one_change_may_be_disturbed_several_times(view: DataflowView, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = owned(view, "worker-1/e/1", 1)
    tried = disturbed(monkeypatch, view, 3)
    commits(view, owner)
    assert tried == [4] * 4
    assert (owner.epoch, owner.round) == (1, 1)
    assert view.commit_log_of("flights", "P0") == owner.logs[source_log(view)]


def test_a_change_that_is_disturbed_for_ever_fails(view: DataflowView, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = owned(view, "worker-1/e/1", 1)
    tried = disturbed(monkeypatch, view, 10_000)
    with pytest.raises(VersionConflict):
        commits(view, owner)
    assert len(tried) == TRIES_MAX
    assert owner.round == 0


def both(view: DataflowView) -> TaskCommitLogs:
    """Owns P0 and P1."""
    streams = [*(view.paths.source_stream("flights", name) for name in ("P0", "P1"))]
    streams.append(paths.sink_stream(RESOURCE, "task-0"))
    owner = TaskCommitLogs(view.registry, view.dataflow, "task-0", "worker-1/e/1", 1, streams)
    owner.take()
    return owner


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_an_owner_that_has_lost_one_stream_commits_nothing_of_another(view: DataflowView, is_made_anew: bool) -> None:
    stale = both(view)
    view.registry.delete(paths.lock(view.paths.source_stream("flights", "P1")))
    together(view)
    assert streams_with_nodes(view) == ["P0"]
    if is_made_anew:
        owner = owned(view, "worker-1/f/1", 2, "P1", "task-1")
        assert owner._versions[source_log(view, "P1")] == stale._versions[source_log(view, "P1")]
    with pytest.raises(VersionConflict):
        begins(view, stale)
    assert view.commit_log_of("flights", "P0") == stale.logs[source_log(view)]


def test_an_owner_whose_stream_was_taken_since_commits_nothing_of_another(view: DataflowView) -> None:
    """Of the stream that does not move only the look says so: nobody checks its version."""
    stale = both(view)
    view.registry.delete(paths.lock(view.paths.source_stream("flights", "P1")))
    owned(view, "worker-1/f/1", 2, "P1", "task-1")
    begins_another_era(view)
    with pytest.raises(VersionConflict):
        commits_what_is_no_source(view, stale)
    with pytest.raises(StaleOwner):
        stale.refuse_if_stale()


def test_an_owner_commits_nothing_after_a_rewind_to_where_its_streams_stand(view: DataflowView) -> None:
    """Its commit log says the same as before. Only the version tells."""
    stale = both(view)
    same = Set(source_log(view, "P1"), stale.logs[source_log(view, "P1")].to_bytes())
    view.registry.commit([same, view.next_era("flights")])
    with pytest.raises(VersionConflict):
        begins(view, stale)


def test_an_owner_that_loses_a_stream_while_it_looks_again_commits_nothing(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after its look at the stream, that goes and is made anew. So the era must be older than the look."""
    stale = both(view)
    find, left = type(view.registry).find, ["once"]

    def loses(one: Registry, path: str, watch: Watch | None = None) -> Node | None:
        found = find(one, path, watch)
        if left and path == source_log(view, "P1"):
            left.clear()
            view.registry.delete(paths.lock(view.paths.source_stream("flights", "P1")))
            together(view)
            owned(view, "worker-1/f/1", 2, "P1", "task-1")
        return found

    begins_another_era(view)
    monkeypatch.setattr(type(view.registry), "find", loses)
    with pytest.raises(VersionConflict):
        begins(view, stale)
    assert not left
    assert view.commit_log_of("flights", "P0") == stale.logs[source_log(view)]


def test_an_owner_whose_commit_log_is_gone_is_stale(view: DataflowView) -> None:
    stale = owned(view, "worker-1/e/1", 1)
    stale.release()
    together(view)
    with pytest.raises(StaleOwner, match="worker-1/e/1"):
        stale.refuse_if_stale()


def test_what_is_of_a_dataflow_that_was_submitted_again_meanwhile_is_not_put_together(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All versions are what they were."""

    def begins_anew() -> None:
        delete_nodes(view)
        again = submitted(view.registry)
        registered(again, "worker-2")
        owner = owned(again, "worker-2/e/1", again.placement_head().value.next_generation)
        commits(again, owner)
        owner.release()

    owner = owned(view, "worker-1/e/1", 1)
    commits(view, owner)
    owner.release()
    meanwhile(monkeypatch, view.registry, begins_anew)
    together(view)
    assert streams_with_nodes(view) == ["P0"]
    assert gone_streams(view.registry, view.dataflow, "flights") == {}


def counted(monkeypatch: pytest.MonkeyPatch, view: DataflowView) -> tuple[list[str], list[int]]:
    """What fills with the pages that are read from now on, and with how many operations transactions have."""
    get, commit = type(view.registry).get, type(view.registry).commit
    pages_read, sent = list[str](), list[int]()

    def counting(one: Registry, path: str, watch: Watch | None = None) -> Node:
        pages_read.extend([path] if "/page-" in path else [])
        return get(one, path, watch)

    def committing(one: Registry, operations: Sequence[Operation]) -> list[int]:
        sent.append(len(operations))
        return commit(one, operations)

    monkeypatch.setattr(type(view.registry), "get", counting)
    monkeypatch.setattr(type(view.registry), "commit", committing)
    return pages_read, sent


def test_streams_are_put_together_with_one_transaction_and_one_look_at_the_pages(
    view: DataflowView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each transaction has all owners of the source look again."""
    monkeypatch.setattr(gone, "PAGE_BYTES_MAX", 400)  # each has a page of its own
    for number in range(3):
        read(view, f"P{number}", number + 1)
        together(view)
    for number, name in enumerate(["P0", "P2", "P3", "P4"]):
        read(view, name, number + 4)
    pages_read, sent = counted(monkeypatch, view)
    together(view)
    assert (len(pages_read), len(sent)) == (3, 1)
    assert streams_with_nodes(view) == ["P0", "P2"], "the most that stand, or will, in one page"
    together(view)
    together(view)
    assert len(sent) == 3
    assert streams_with_nodes(view) == []


def test_streams_that_somebody_owns_keep_no_others_from_being_put_together(view: DataflowView) -> None:
    read(view, "P0", 1)
    together(view)
    read(view, "P0", 2)
    for number in (3, 4):
        owned(view, f"worker-1/e/{number}", number, f"P{number}", f"task-{number}")
    together(view)
    assert streams_with_nodes(view) == ["P3", "P4"]


def looks(view: DataflowView, happens: Callable[[], object]) -> Iterator[TaskCommitLogs]:
    """An owner that takes P0, while this happens between its look at the commit logs and its fence."""
    owner = TaskCommitLogs(
        view.registry,
        view.dataflow,
        "task-1",
        "worker-1/e/9",
        9,
        [view.paths.source_stream("flights", "P0"), paths.sink_stream(RESOURCE, "task-1")],
    )
    real, left = owner._taken, [happens]

    def taken(log: CommitLog | None, epoch: int) -> CommitLog:
        if left:
            left.pop()()
        return real(log, epoch)

    owner._taken = taken  # type: ignore[method-assign]
    owner.take()
    yield owner


def test_who_looked_before_a_stream_was_put_together_does_not_begin_anew(view: DataflowView) -> None:
    """It saw that nobody has read the stream. Somebody reads it, and it is put together, before it makes its nodes."""

    def comes_and_goes() -> None:
        view.registry.delete(paths.lock(view.paths.source_stream("flights", "P0")))
        read(view, "P0", 8, at=5)
        together(view)
        view.registry.create(view.paths.source_stream("flights", "P0"))

    [owner] = looks(view, comes_and_goes)
    assert owner.logs[source_log(view)].position == {"at": 5}


def test_epochs_of_streams_that_are_gone_count_when_the_dataflow_is_deleted(view: DataflowView) -> None:
    for _ in range(4):
        last = read(view, "P0")
    together(view)
    view.registry.delete(paths.commit_log(paths.sink_stream(RESOURCE, "task-0")))
    delete_nodes(view)
    assert submitted(view.registry).placement_head().value.next_generation == last.epoch + 1
    assert gone_streams(view.registry, view.dataflow, "flights") == {}
