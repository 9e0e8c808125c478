"""Merging: committed segments of one stream become final files, each record in exactly one of them.

    write     the segments' own renames are made durable: what is decided on does not become a staged one again
              merging/<merge> is written and made durable, too: nobody looks at it
    decide    the `merge` node names it and its segments, version-checked: this is the merge's commit
    place     it is renamed to part-<stream>-<sequence>: everybody reads it; our own readers leave its segments out
    remove    the segments are deleted, durably: when the node has forgotten them, nobody knows them for remainders
    finish    the node forgets it, version-checked, and says up to where everything is final

A merge takes segments of one partition, the oldest first. Final files never change and are never merged again: a reader
that knows nothing of us may be in the middle of one. So `merge_age_s` decides how small files may get: our own readers
need not wait for it.

A crash after any step leaves a state from which the next master goes on. Two masters may be at it at once: `decide` and
`finish` are compare-and-set, and the steps between can be repeated. `place` precedes `remove`, durably.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass

from scribengin.base.clock import Clock
from scribengin.base.failpoints import failpoint
from scribengin.connectors.files.formats.writing import FileWriting, WrittenFile
from scribengin.connectors.files.sink.segments import (
    AHEAD_MAX,
    MergeDescriptor,
    PendingMerge,
    SegmentKey,
    StreamLayout,
    Waiting,
    abandoned_merges,
    due,
    merge_name,
    segment_keys,
)
from scribengin.errors import DataflowError, ScribenginError
from scribengin.filesystems.contract import DurableFileSystem
from scribengin_registry.contract import Registry
from scribengin_registry.errors import NodeMissing, OutcomeUnknown, VersionConflict


class StreamMerge:
    """The merging of one stream in one process. Used by one thread."""

    def __init__(
        self,
        files: DurableFileSystem,
        layout: StreamLayout,
        writing_of: Callable[[str], FileWriting],
        node: str,
        clock: Clock,
        *,
        merge_bytes: int,
        merge_age_s: float,
    ) -> None:
        """`writing_of` gives the format of files with a suffix, `node` is the registry path of the stream's `merge`
        node."""
        self._files = files
        self._layout = layout
        self._writing_of = writing_of
        self._node = node
        self._clock = clock
        self._merge_bytes = merge_bytes
        self._merge_age_s = merge_age_s
        self._seen: dict[SegmentKey, _Seen] = {}
        self._settled = False
        """Whether what was removed from the committed segments is known to survive a power failure."""
        self._all_done = False
        """Whether nothing was pending and nothing waited at the last look: then only a new segment is work."""

    def run(self, registry: Registry, *, idle: bool) -> None:
        """Merge what is due; with `idle` everything there is. Raises DataflowError and what the registry raises.

        Of a stream that nothing is written to the registry is asked once, and not every time. Of a partition whose
        segments cannot be merged it is said once the others are.
        """
        if self._all_done and not self._files.names(self._layout.committed):
            return
        self._all_done = False
        stuck: dict[str, DataflowError] = {}
        while True:
            node = registry.find(self._node)
            if node is None:
                return  # the dataflow was deleted: what waits is merged under the next one
            state = MergeDescriptor.from_bytes(node.data, path=self._node)
            try:
                if state.pending is not None:
                    self._finish(registry, state, state.pending, node.version)
                    continue
                self._sweep(state, node.version)
                keys = self._due(state, idle=idle, stuck=stuck)
                if not keys and stuck:
                    raise next(iter(stuck.values()))
                if not keys:
                    self._all_done = not self._seen
                    return
                try:
                    self._merge(registry, state, keys, node.version)
                except DataflowError as error:
                    if len(state.ahead) >= AHEAD_MAX:  # no other partition may get ahead of it any more
                        raise
                    stuck[keys[0].partition] = error
            except (VersionConflict, NodeMissing):
                continue  # another master was faster: look again at what is left to do
            except OutcomeUnknown:
                registry.sync(self._node)
            except FileNotFoundError as error:
                raise DataflowError(
                    f"{error.filename or error} is gone; submit the dataflow again to have its directories created"
                ) from None

    def _sweep(self, state: MergeDescriptor, version: int) -> None:
        """Delete what masters wrote and could not decide on any more: they died, or somebody was faster."""
        for name in abandoned_merges(self._files.names(self._layout.merging), state.incarnation, version):
            self._files.remove(f"{self._layout.merging}/{name}")

    def _due(self, state: MergeDescriptor, *, idle: bool, stuck: Container[str]) -> list[SegmentKey]:
        keys = committed_segments(self._files, self._layout)
        for key in keys:
            if state.is_final(key):  # its deletion did not survive a power failure
                self._files.remove(f"{self._layout.committed}/{key.name}")
                self._settled = False
        if not self._settled:  # whoever was at it before may have died between a deletion and its sync
            self._sync_removals()
        now_s = self._clock.monotonic_s()
        waiting = [key for key in keys if not state.is_final(key)]
        self._seen = {key: self._seen.get(key) or _Seen(now_s, self._size(key)) for key in waiting}
        return due(
            [
                Waiting(key, seen.size_bytes, now_s - seen.since_s)
                for key, seen in self._seen.items()
                if key.partition not in stuck
            ],
            merge_bytes=self._merge_bytes,
            merge_age_s=self._merge_age_s,
            idle=idle,
            ahead=len(state.ahead),
        )

    def _sync_removals(self) -> None:
        with suppress(FileNotFoundError):  # the directory is gone, and with it what was in it
            self._files.sync_directory(self._layout.committed)
        self._settled = True

    def _size(self, key: SegmentKey) -> int:
        return self._files.size(f"{self._layout.committed}/{key.name}") or 0

    def _merge(self, registry: Registry, state: MergeDescriptor, keys: list[SegmentKey], version: int) -> None:
        temporary = merge_name(state.incarnation, version, uuid.uuid4().hex[:8])
        paths = [f"{self._layout.committed}/{key.name}" for key in keys]
        # Or a segment that is decided on might be a staged one again.
        self._files.sync_directory(self._layout.committed)
        try:
            contents = [
                WrittenFile(path, _whole(path, blocks, self._seen[key].size_bytes))
                for key, path, blocks in zip(keys, paths, self._files.snapshots(paths), strict=True)
            ]
            with failpoint("files.merge_write"):
                size, taken = self._write(temporary, contents, self._writing_of(keys[0].suffix))
        except FileNotFoundError:
            if all(self._files.size(path) is not None for path in paths):
                raise
            return  # another master has merged them; what was written here is swept
        there = self._layout.final_sequences(self._files.names(self._layout.directory(keys[0].partition)))
        sequence = max([state.sequence, *(number + 1 for number in there)])
        segments = tuple(key.name for key in keys[:taken])
        pending = PendingMerge(
            file=self._layout.final_name(sequence, keys[0]), temporary=temporary, segments=segments, bytes=size
        )
        try:
            with failpoint("files.merge_decide"):
                registry.set(self._node, state.begun(pending, sequence).to_bytes(), version)
        except (VersionConflict, NodeMissing):
            self._files.remove(f"{self._layout.merging}/{temporary}")
            raise

    def _write(self, temporary: str, contents: list[WrittenFile], writing: FileWriting) -> tuple[int, int]:
        """Make one file of the segments, durably: how large it is, and how many of them, from the first, it holds."""
        file = self._files.create(f"{self._layout.merging}/{temporary}")
        size = 0

        def write(data: bytes | memoryview) -> None:
            nonlocal size
            file.append(data)
            size += len(data)

        try:
            taken = writing.join(contents, write)
            file.sync()
            file.close()
            self._files.sync_directory(self._layout.merging)
        except Exception:  # what is said is the first error
            with suppress(ScribenginError):
                file.close()
            with suppress(ScribenginError):
                self._files.remove(f"{self._layout.merging}/{temporary}")  # or each attempt would leave one
            raise
        finally:
            file.close()
        return size, taken

    def _finish(self, registry: Registry, state: MergeDescriptor, pending: PendingMerge, version: int) -> None:
        self._place(pending)
        for name in pending.segments:
            with failpoint("files.merge_remove"):
                self._files.remove(f"{self._layout.committed}/{name}")
        self._sync_removals()  # before the node forgets them: what comes back is another dataflow's to merge once more
        left = [key for key in committed_segments(self._files, self._layout) if not state.holds(key)]
        with failpoint("files.merge_finish"):
            registry.set(self._node, state.finished(min(left, default=None)).to_bytes(), version)

    def _place(self, pending: PendingMerge) -> None:
        """Once the merge is decided, only this step moves its file: where it is gone from `merging`, it was placed.

        Whoever reads final files may have taken it away since.
        """
        temporary, final = f"{self._layout.merging}/{pending.temporary}", f"{self._layout.root}/{pending.file}"
        directory = final.rpartition("/")[0]
        if directory != self._layout.root:
            try:
                self._files.make_directories(directory)
            except FileExistsError:
                raise _foreign(directory) from None
        try:
            with failpoint("files.merge_place"):
                self._files.rename(temporary, final)
        except FileNotFoundError:
            if self._files.size(temporary) is not None:
                raise  # it is the directory that is missing: somebody tidies up while we write
        except FileExistsError:
            if self._files.size(temporary) is not None:
                raise _foreign(final) from None
        with suppress(FileNotFoundError):  # taken away, with the file
            self._files.sync_directory(directory)
        self._files.sync_directory(self._layout.merging)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A committed segment: since when this process knows of it, and its size, which does not change any more."""

    since_s: float
    size_bytes: int


def _foreign(path: str) -> DataflowError:
    return DataflowError(f"{path} is there already, and is not ours: move it away, and the merge will go on")


def _whole(path: str, blocks: Iterator[bytes], size_bytes: int) -> Iterator[bytes]:
    """The blocks of a segment, and an error rather than a final file that lacks some of them.

    A cluster that closes files before their last block is known to be complete shows a size of which it gives less.
    """
    read = 0
    for block in blocks:
        read += len(block)
        yield block
    if read != size_bytes:
        raise DataflowError(
            f"{path} has {size_bytes} bytes, and {read} can be read; it is merged when all of it can be"
        )


def committed_segments(files: DurableFileSystem, layout: StreamLayout) -> list[SegmentKey]:
    """The committed segments, without a gap: no segment is left out that is older than one of them.

    A listing may miss what is renamed into the directory while it is read, and see what comes there later still. What
    is older than something that a first listing saw was there before a second one began.
    """
    first = segment_keys(files.names(layout.committed))
    if not first:
        return []
    return [key for key in segment_keys(files.names(layout.committed)) if key <= first[-1]]


def visible_files(
    files: DurableFileSystem, layout: StreamLayout, registry: Registry, node: str
) -> Iterator[tuple[str, WrittenFile]]:
    """The suffix and contents of each file of a stream as readers see it now: final files, then the segments that no
    final file holds.

    Raises DataflowError when a final file is taken away while it is read.
    """
    finals, segments = _snapshot(files, layout, registry, node)
    for name in finals:
        path = f"{layout.root}/{name}"
        yield name.rpartition("/")[2].partition(".")[2], WrittenFile(path, _final(files, path))
    for key, content in segments:
        yield key.suffix, WrittenFile(f"{layout.committed}/{key.name}", iter([content]))


def _final(files: DurableFileSystem, path: str) -> Iterator[bytes]:
    """The blocks of a final file, which may be taken away before, or while, they are read."""
    try:
        yield from files.snapshots([path])[0]
    except FileNotFoundError:
        raise DataflowError(f"{path} was taken away while the stream was read; read it again") from None


def _finals(files: DurableFileSystem, layout: StreamLayout) -> list[str]:
    """The final files of the stream in all partitions, relative to the sink's path."""
    if not layout.columns:
        return layout.finals(files.names(layout.root))
    try:
        return layout.finals(info.name for info in files.find(layout.root, len(layout.columns) + 1))
    except FileNotFoundError:
        return []


def _snapshot(
    files: DurableFileSystem, layout: StreamLayout, registry: Registry, node: str
) -> tuple[list[str], list[tuple[SegmentKey, bytes]]]:
    """The final files, which never change, and what the segments hold, which may be merged and removed any time."""
    while True:
        before = registry.find(node)
        state = None if before is None else MergeDescriptor.from_bytes(before.data, path=node)
        pending = state.pending if state is not None else None
        # To be asked before the final files are listed: what was placed by then is among them, or was taken away.
        placed = pending is not None and files.size(f"{layout.merging}/{pending.temporary}") is None
        finals = _finals(files, layout)
        placed = placed or (pending is not None and pending.file in finals)
        keys = committed_segments(files, layout)
        if state is not None:
            keys = [key for key in keys if not (state.holds(key) if placed else state.is_final(key))]
        if pending is not None and not placed and (gone := set(pending.segments) - {key.name for key in keys}):
            if files.size(f"{layout.merging}/{pending.temporary}") is not None:  # they are removed once it is placed
                raise DataflowError(
                    f"{layout.committed}/{min(gone)} is gone, and its merge is not made yet; start the dataflow, which "
                    "makes it"
                )
            continue  # it was placed after the final files were listed
        try:
            contents = files.snapshots([f"{layout.committed}/{key.name}" for key in keys])
            held = [(key, b"".join(blocks)) for key, blocks in zip(keys, contents, strict=True)]
        except FileNotFoundError:
            continue  # merged meanwhile
        after = registry.find(node)
        if (after and after.version) == (before and before.version):
            return finals, held
