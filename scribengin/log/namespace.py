"""Namespaces: where logs are created, found, opened, administered and deleted."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.closing import ClosedAtExit
from scribengin.base.commit_log import check_commit_log
from scribengin.base.model import from_node_name
from scribengin.base.names import natural
from scribengin.base.threads import BackgroundWork
from scribengin.errors import (
    ConfigInvalid,
    DescriptorUnreadable,
    EndOfStream,
    LogClosed,
    LogError,
    LogExists,
    LogNotFound,
)
from scribengin.log.config import LogConfig, ReaderConfig
from scribengin.log.format.dlsn import DLSN
from scribengin.log.format.records import LogRecord
from scribengin.log.inspect.info import LogInfo, log_info
from scribengin.log.inspect.log import LogInspection
from scribengin.log.metadata import writer_lock as ownership
from scribengin.log.metadata.binding import BindOptions, NamespaceDescriptor, bind, bound, chosen_store, session_for
from scribengin.log.metadata.lifecycle import configure_log, create_log, delete_log, standing
from scribengin.log.metadata.listener import LogsChanged, NamespaceListener, SegmentListener, SegmentsChanged
from scribengin.log.metadata.names import WILDCARD, check_log_name
from scribengin.log.metadata.segment_list import looking_again
from scribengin.log.metadata.segments import (
    LogDescriptor,
    LogMetadata,
    SegmentDescriptor,
    SegmentsHead,
    WriterEpoch,
)
from scribengin.log.metrics import LogMetrics, ReaderLag
from scribengin.log.read.catalog import LogCatalog
from scribengin.log.read.key_index import positions_of_key
from scribengin.log.read.reader import LogReader, open_reader
from scribengin.log.read.starts import Start
from scribengin.log.retention.compression import Codec, Stopping, compress_segments
from scribengin.log.retention.copying import Copied, LogPlace, copy_log, repair_segments
from scribengin.log.retention.holds import RegisteredReaders, RetentionHold, records_behind
from scribengin.log.retention.maintenance import LogMaintenance
from scribengin.log.retention.offloading import offload_segments
from scribengin.log.retention.truncation import Purged, purge_log, truncate_log
from scribengin.log.scan.recovery import StagedLookup, commit_log_lookup, commit_log_path, recover_unfinished
from scribengin.log.store.contract import SegmentName, SegmentStore
from scribengin.log.store.opening import open_store
from scribengin.log.write.commit_thread import CommitThread
from scribengin.log.write.found_copies import segments_there, take_copies
from scribengin.log.write.limits import WriteLimiter
from scribengin.log.write.restored import Restoration, TakenBack, give_up_missing, sort_out
from scribengin.log.write.segment_chain import SegmentChain
from scribengin.log.write.senders import Senders, read_senders
from scribengin.log.write.writer import LogWriter
from scribengin_registry.contract import Operation, Registry
from scribengin_registry.errors import NodeMissing


class LogNamespace(ClosedAtExit):
    """A set of logs that share a registry node and a store. Thread-safe."""

    def __init__(
        self,
        registry: Registry,
        path: str,
        descriptor: NamespaceDescriptor,
        config: LogConfig,
        clock: Clock,
        *,
        own: bool,
        create_if_missing: bool = False,
        limiter: WriteLimiter | None = None,
        commit_thread: CommitThread | None = None,
        store: SegmentStore | None = None,
    ) -> None:
        self.path = path
        self.descriptor = descriptor
        self.registry = registry
        self._config = config
        self._clock = clock
        self._own_registry = own
        self._create_if_missing = create_if_missing
        self._limiter = limiter
        self._commit_thread = commit_thread
        self._store = store or open_store(descriptor.store, descriptor.location, descriptor.token)
        self._closed = False

    @classmethod
    def bind(
        cls,
        uri: str,
        store_dir: str | Path,
        *,
        registry: Registry | None = None,
        store: str | None = None,
        shared: bool = False,
        moved: bool = False,
    ) -> NamespaceDescriptor:
        """Create the namespace, with its segments in the directory `store_dir`. Idempotent for the same directory.

        With a `store` (or a URI) that names another kind than files, `store_dir` is a place in that. A directory is on
        this machine, and others may not open the namespace, unless it is `shared`: the same mount for all, which keeps
        what docs/guide/log-store.md asks of one. `moved`: it is on this machine alone now, where it was on another.
        Raises ConfigInvalid, RegistryUnreachable, NamespaceNotBound (it is bound to another place), StoreNotMounted (it
        was bound to this one, which is not the same any more), StoreElsewhere (it is on another machine),
        LogWriteFailed.
        """
        kind = chosen_store(uri, store)
        session, path, own = session_for(uri, registry)
        try:
            return bind(session, path, kind, str(store_dir), BindOptions(shared, moved))
        finally:
            if own:
                session.close()

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        registry: Registry | None = None,
        config: LogConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        create_if_missing: bool = False,
        outstanding_writes_max: int | None = None,
        outstanding_dark_mode: bool = False,
        commit_thread: CommitThread | None = None,
    ) -> LogNamespace:
        """Open a namespace that was bound. `config` is what logs are created with that do not say otherwise.

        With `registry`, that session is used and `close` leaves it open; `uri` may be a bare node path then. With
        `create_if_missing`, opening a writer creates the log (DistributedLog's default; not ours, because a mistyped
        name would become a log). `outstanding_writes_max` limits the unacknowledged records of all writers that this
        object opens together; in dark mode they are only counted. With a `commit_thread`, which may be that of other
        namespaces, too, all writers write on it: for very many logs. It is closed by whoever made it, after them.
        Raises ConfigInvalid, RegistryUnreachable, NamespaceNotBound, StoreNotMounted, StoreElsewhere.
        """
        session, path, own = session_for(uri, registry)
        try:
            descriptor = bound(session, path, uri)
            open_store(descriptor.store, descriptor.location, descriptor.token).check_mounted()
        except BaseException:
            if own:
                session.close()
            raise
        what, most = f"the writers of {uri}", outstanding_writes_max
        limiter = None if most is None else WriteLimiter(most, dark_mode=outstanding_dark_mode, what=what)
        return cls(
            session,
            path,
            descriptor,
            config or LogConfig(),
            clock,
            own=own,
            create_if_missing=create_if_missing,
            limiter=limiter,
            commit_thread=commit_thread,
        )

    def why_unwritable(self) -> str | None:
        """Why this user cannot keep logs in the namespace's store, for people; None: nothing is known to be in the
        way."""
        return self._store.why_unwritable()

    @property
    def local_directory(self) -> Path:
        """The directory of a store of files. Raises ConfigInvalid for one that has no directory."""
        directory = self.descriptor.directory
        if directory is None:
            raise ConfigInvalid(
                f"{self.path} keeps its logs in the store '{self.descriptor.store}', which is no directory of this "
                "machine: use a namespace that is bound to one"
            )
        return directory

    def create(self, name: str, config: LogConfig | None = None) -> LogDescriptor:
        """Create a log. Raises InvalidLogName, LogExists, LogWriteFailed, ConfigInvalid (not on this store)."""
        return create_log(self._metadata(name), self._store, config or self._config, self._clock)

    def configure(self, name: str, config: LogConfig, *, version: int | None = None) -> LogDescriptor:
        """Replace a log's configuration. With `version`, only if it still is that one (`LogDescriptor.config_version`).

        Retention obeys from the next purge on, everything else from the next writer on: one that is open keeps what it
        was opened with. Raises LogNotFound, ConfigConflict, ConfigInvalid (not on this store).
        """
        self._store.for_log(config)
        return configure_log(self._metadata(name), config, version)

    def delete(self, name: str, *, force: bool = False, directory: str | None = None) -> None:
        """Delete a log and its segments. With `force` also while it is being written: then its writer is fenced.

        Raises LogNotFound (also where it has another `directory` than that, if one is named), LogBusy, InconsistentLog
        (not with `force`), StoreNotMounted, LogWriteFailed (files are left).
        """
        self._store.check_mounted()  # before the registry forgets where the files are
        delete_log(self._metadata(name), self._store, force=force, directory=directory)

    def exists(self, name: str) -> bool:
        """Whether there is a log of that name. Raises InvalidLogName."""
        found = self._metadata(name).find_descriptor()
        return found is not None and not found[0].deleting

    def names(self, prefix: str = "", known: Container[str] = ()) -> list[str]:
        """The names of all logs that begin with `prefix` and that `exists`, sorted.

        Of each log a node is read, but of those `known`, which somebody has listed before: they count as long as their
        node stands, also while they are being deleted. Raises LogClosed, and what the registry raises.
        """
        self._check_open()
        try:
            nodes = self.registry.children(f"{self.path}/logs")
        except NodeMissing:
            return []
        names = {from_node_name(node): node for node in nodes}
        wanted = sorted(name for name in names if name.startswith(prefix))
        asked = [names[name] for name in wanted if name not in known]
        seen = [name for name in wanted if name in known]
        return sorted(seen + standing(self.registry, f"{self.path}/logs", asked))

    def matching(self, pattern: str, known: Container[str] = ()) -> list[str]:
        """The names of the logs that a name or a pattern of fnmatch means just now, in the order in which people count.

        `known` and errors as `names`. Raises InvalidLogName for a name that no log can have.
        """
        magic = WILDCARD.search(pattern)
        if magic is None:
            return [pattern] if self.exists(pattern) else []
        beginning_alike = self.names(pattern[: magic.start()], known)
        return sorted((name for name in beginning_alike if fnmatchcase(name, pattern)), key=natural)

    def listen(self, callback: LogsChanged, prefix: str = "") -> NamespaceListener:
        """Call `callback(added, removed)` with the logs there are that begin with `prefix`, then with every change.

        Whatever it raises, and what ends the listening, stands in the listener's `error`. Raises LogClosed.
        """
        self._check_open()
        return NamespaceListener(self.registry, f"{self.path}/logs", callback, prefix)

    def listen_segments(self, name: str, callback: SegmentsChanged) -> SegmentListener:
        """Call `callback(segments)` with the segments of a log, then at every change: one begins, is completed,
        compressed or removed. Errors as `listen`; raises LogNotFound."""
        return SegmentListener(self._metadata(name), callback)

    def open_writer(
        self,
        name: str,
        *,
        timeout_s: float = 10.0,
        steal: bool = False,
        commit_log: str | None = None,
        lookup: StagedLookup | None = None,
        create: bool | None = None,
        cancel: threading.Event | None = None,
        senders: bool = False,
    ) -> LogWriter:
        """Become the writer of a log: wait for its lock, or with `steal` take it, and recover what was left unfinished.
        Those who wait get it in the order in which they came. The wait ends early as soon as `cancel` is set.

        A writer that is to stage rounds names the registry path of the `commit_log` that decides about them. `lookup`
        says which staged range of an unfinished segment has committed; without one, the commit log that the segment
        names is fenced and believed. With `senders` the writer takes numbered records (`LogWriter.write_numbered`), and
        stages none. `create` (None: as the namespace was opened) creates a log that is not there.
        Raises LogNotFound, OwnershipAcquireFailed, RecoveryRefused, EndOfStream (the log is sealed), StoreNotMounted,
        LogWriteFailed (the disk refuses recovery), Fenced (somebody took the log meanwhile), SessionLost (while it
        waited), ConfigInvalid (a commit log stands below /scribengin/locks, or below the namespace's node, from where
        it is named without a leading slash; one is named with `senders`), DamagedEntry (with `senders`: what is known
        of them cannot be read), and what else the registry raises.
        """
        check_commit_log(commit_log)
        if senders and commit_log is not None:
            raise ConfigInvalid(f"a writer of log '{name}' takes the numbers of senders, or stages rounds: not both")
        metadata = self._metadata(name)
        if self._create_if_missing if create is None else create:
            self._create_missing(name)
        owner = self._owned(metadata, timeout_s, steal=steal, cancel=cancel)
        try:
            log = metadata.descriptor()  # as it is now: it may have been configured anew while we waited
            lookup = lookup or commit_log_lookup(self.registry, log.name, self.path)
            head = self._take_over(metadata, owner, lookup)
            store = self._store.for_log(log.config)
            known = Senders(log.name, read_senders(metadata, self._store, head)) if senders else None
            chain = SegmentChain(
                metadata, store, owner, log, head, commit_log=commit_log, clock=self._clock, senders=senders
            )
            return LogWriter(
                metadata,
                owner,
                chain,
                log.config,
                stages=commit_log is not None,
                clock=self._clock,
                limiter=self._limiter,
                maintenance=self._maintenance(metadata, log, chain.metrics),
                commit_thread=self._commit_thread,
                senders=known,
            )
        except BaseException as error:
            ownership.give_back(metadata, owner, error)
            raise

    def recover(self, name: str, *, timeout_s: float = 10.0, steal: bool = False) -> TakenBack:
        """Take the log, bring it to the state in which a writer finds it, take back what was set aside, give it back.

        It is for a registry that went back behind the log's files (restored.py). Raises as `open_writer`.
        """
        metadata = self._metadata(name)
        owner = self._owned(metadata, timeout_s, steal=steal, thorough=True)
        with ownership.given_back(metadata, owner):
            lookup = commit_log_lookup(self.registry, name, self.path)
            config = metadata.descriptor().config
            found = take_copies(metadata, self._store, owner, config, self._clock)
            state = metadata.whole()
            present = segments_there(self._store, state.head, config)
            given_up = give_up_missing(metadata, self._store, owner, state, config, present)
            found = replace(found, given_up=given_up)
            if state.head.end_of_stream:
                return found
            self._take_over(metadata, owner, lookup)
            log = metadata.descriptor()
            restoration = Restoration(metadata, self._store.for_log(log.config), owner, log, self._clock, lookup)
            taken = restoration.take_back(metadata.whole())
            return replace(found, segments=taken.segments, refused=taken.refused)

    def open_reader(
        self,
        name: str,
        start: Start = None,
        *,
        subscriber: str | None = None,
        timeout_s: float = 10.0,
        cancel: threading.Event | None = None,
        **options: Any,
    ) -> LogReader:
        """A reader from `start`: the first record at or behind it; None or DLSN.INITIAL: the first that is kept.

        `options` are those of ReaderConfig. Of all readers with the same `subscriber` one reads at a time: the others
        wait here for `timeout_s`, or until `cancel` is set. Raises LogNotFound, ConfigInvalid, PositionTruncated,
        InconsistentLog (the log never had such a position), OwnershipAcquireFailed, ReadCancelled.
        """
        config = ReaderConfig.parse(options, source=f"a reader of log '{name}'")
        return open_reader(
            self._metadata(name),
            self._store,
            start,
            self._clock,
            config,
            subscriber=subscriber,
            timeout_s=timeout_s,
            cancel=cancel,
        )

    def last_record(self, name: str) -> LogRecord | None:
        """The last visible record; None if there is none. Raises LogNotFound, DamagedEntry."""
        with closing(self._catalog(name)) as catalog:

            def last() -> LogRecord | None:
                position = catalog.position_of(catalog.end_sequence() - 1)
                if catalog.end_sequence() == 0 or position < catalog.state().head.first:
                    return None
                records = LogReader(catalog, position, self._clock).read(1)
                return records[0] if records else None

            return catalog.settled(last)

    def first_dlsn(self, name: str) -> DLSN:
        """The position of the first record that is kept (or would be, if there is none yet). Raises LogNotFound."""
        return self._metadata(name).head()[0].first

    def end_dlsn(self, name: str) -> DLSN:
        """The position behind the last visible record. Raises LogNotFound."""
        with closing(self._catalog(name)) as catalog:
            return catalog.end_position()

    def segments(self, name: str) -> tuple[SegmentDescriptor, ...]:
        """All segments, in order. Raises LogNotFound, InconsistentLog."""
        return tuple(self._metadata(name).whole().segments)

    def count(self, name: str, start: DLSN | None = None, end: DLSN | None = None) -> int:
        """How many visible records stand in [start, end); None means the first kept, and all.

        Raises LogNotFound, DamagedEntry, InconsistentLog, PositionTruncated (`start` or `end` was given up).
        """
        with closing(self._catalog(name)) as catalog:

            def counted() -> int:
                first = catalog.sequence_at(catalog.state().head.first if start is None else start)
                return (catalog.end_sequence() if end is None else catalog.sequence_at(end)) - first

            return catalog.settled(counted)

    def positions_of_key(self, name: str, key: bytes, *, newest_first: bool = False) -> Iterator[DLSN]:
        """Where the visible records with that key stand, in order or the newest first: see read/key_index.py. Looks as
        it goes.

        Raises LogNotFound, DamagedEntry (in the way).
        """
        with closing(self._catalog(name)) as catalog:
            yield from positions_of_key(catalog, key, newest_first=newest_first)

    def truncate(self, name: str, before: DLSN, *, force: bool = False, directory: str | None = None) -> bool:
        """Give up the records before `before`, exactly, and return whether that changed anything. Only metadata: disk
        space is freed by `purge`. DLSN.INVALID, as any position that was truncated before, changes nothing.

        Raises LogNotFound (for a `directory` as `delete`), LogWriteFailed, InconsistentLog (the log has no such
        position), ReaderBehind (not with `force`).
        """
        unfinished = self._metadata(name).state().in_progress
        if unfinished is not None and not unfinished.fsync:
            self._store.make_durable(unfinished.file)  # a log must not begin behind what a power failure leaves of it
        return truncate_log(self._metadata(name), lambda: self._catalog(name), before, force=force, directory=directory)

    def purge(self, name: str) -> Purged:
        """Remove the segments that lie wholly before the first record kept, or have become too old (`retention_hours`);
        it stops at the first that is neither. Writers do it after every roll.

        Raises LogNotFound, InconsistentLog, LogWriteFailed.
        """
        metadata = self._metadata(name)

        def purged() -> Purged:
            return purge_log(metadata, self._store, lambda: self._catalog(name), self._clock, metadata.state())

        return looking_again(purged)

    def compress(self, name: str, codec: Codec | None = None, *, stopping: Stopping = lambda: False) -> int:
        """Write a compressed copy of every completed segment that has none, and return how many were written. Writers
        do it after every roll of a log whose configuration says so.

        `codec` is the one to use where the configuration names none; with neither, nothing is done. `stopping` is asked
        now and then whether to end early. Raises LogNotFound, DamagedEntry, LogWriteFailed.
        """
        metadata = self._metadata(name)
        config = metadata.descriptor().config
        codec, store = config.copy_codec or codec, self._store.for_log(config)
        return 0 if codec is None else compress_segments(metadata, store, metadata.whole(), codec, stopping)

    def offload(self, name: str, *, stopping: Stopping = lambda: False) -> int:
        """Copy every completed segment that has no copy there to the cold storage of the log's configuration, if that
        names one, and return how many were copied. Writers do it after every roll. `purge` drops what is old.

        `stopping` as for `compress`. Raises LogNotFound, DamagedEntry, StoreUnreachable, LogWriteFailed.
        """
        metadata = self._metadata(name)
        config = metadata.descriptor().config
        return offload_segments(metadata, self._store, metadata.whole(), config, stopping)

    def repair(self, name: str) -> int:
        """Let segments have all their copies again, where machines are gone: how many had too few. Raises
        StoreUnreachable (too few machines), LogNotFound, LogWriteFailed."""
        return repair_segments(self._metadata(name), self._store)

    def copy(self, name: str, to: LogNamespace, to_name: str | None = None, config: LogConfig | None = None) -> Copied:
        """Copy a log that nobody writes into another namespace (or under another name), with all places as they are.

        `config` is the copy's, where it is given. Raises LogNotFound, LogExists, LogBusy (it is written or unfinished),
        DamagedEntry, LogWriteFailed, ConfigInvalid (not on that store): then nothing was made.
        """
        source = LogPlace(self._metadata(name), self._store)
        return copy_log(source, LogPlace(to._metadata(to_name or name), to._store), config, self._clock)

    def register_reader(
        self, name: str, reader: str, position: DLSN | None = None, *, commit_log: str | None = None
    ) -> DLSN:
        """Keep everything from `position` on for `reader`, until it is registered further ahead: neither truncation nor
        retention goes past it. None: from where it is registered, or the first record kept. Returns where it stands.
        One that is new with the registry path of a `commit_log` moves by itself, with every round that is committed.

        Raises LogNotFound, PositionTruncated, InconsistentLog (no position of this log), LogError (that would be back).
        """
        readers = RegisteredReaders(self._metadata(name))
        return readers.register(lambda: self._catalog(name), reader, position, commit_log)

    def register_hold(self, name: str, hold: RetentionHold, *, commit_log: str | None = None) -> DLSN:
        """As `register_reader`, for a dataflow: the reader is called `hold.reader`. Raises the same."""
        readers = RegisteredReaders(self._metadata(name))
        return readers.register(lambda: self._catalog(name), hold.reader, None, commit_log, hold)

    def reader_goes_back(self, name: str) -> Sequence[Operation]:
        """For a transaction in which a commit log goes back: nothing may be given up meanwhile. Raises LogNotFound."""
        return RegisteredReaders(self._metadata(name)).goes_back()

    def retention_holds(self, name: str) -> dict[RetentionHold, DLSN]:
        """The dataflows that the log is held back for, and where each stands. Raises LogNotFound."""
        return RegisteredReaders(self._metadata(name)).holds()

    def registered_readers(self, name: str) -> dict[str, DLSN]:
        """Where each registered reader stands. Raises LogNotFound."""
        return RegisteredReaders(self._metadata(name)).positions()

    def unregister_reader(self, name: str, reader: str) -> bool:
        """Keep nothing for `reader` any more, and return whether it was registered. Raises LogBusy (it is reading)."""
        return RegisteredReaders(self._metadata(name)).unregister(reader)

    def reader_lags(self) -> list[ReaderLag]:
        """How many records lie before each registered reader of each log: for `metrics.ReaderLagCollector`. A log that
        cannot be read just now is left out."""
        lags: list[ReaderLag] = []
        for name in self.names():
            try:
                lags += [ReaderLag(name, reader, records) for reader, records in self._lags(name).items()]
            except (LogError, DescriptorUnreadable):
                continue
        return lags

    def commit_log_of(self, name: str) -> str | None:
        """The node of the commit log that the next writer asks about what is staged there, or None: the log was left
        finished. As long as there is one, that commit log must stay. Raises LogNotFound, InconsistentLog."""
        segment = self._metadata(name).state().in_progress
        return commit_log_path(segment.commit_log, self.path) if segment and segment.commit_log else None

    def inspect(self, name: str) -> LogInspection:
        """Look at everything a log holds, also at what is wrong. Raises LogNotFound, and what `check_metadata` does."""
        return LogInspection(self._metadata(name), self._store)

    def info(self, name: str) -> LogInfo:
        """What there is to say about a log. Raises LogNotFound, InconsistentLog."""
        with closing(self._catalog(name)) as catalog:
            return log_info(self._metadata(name), catalog)

    def close(self) -> None:
        """End the namespace: every later call raises LogClosed. The registry session ends, too, if `open` made it.
        Readers and writers must be closed before. Idempotent."""
        self._closed = True
        if self._own_registry:
            self.registry.close()

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed(f"the namespace {self.path} is closed; open it again")

    def _metadata(self, name: str) -> LogMetadata:
        self._check_open()
        return LogMetadata(self.registry, self.path, check_log_name(name))

    def _catalog(self, name: str, *, follow: bool = False) -> LogCatalog:
        return self._catalog_of(self._metadata(name), follow=follow)

    def _catalog_of(self, metadata: LogMetadata, *, follow: bool = False) -> LogCatalog:
        return LogCatalog(metadata, self._store, metadata.descriptor(), self._clock, follow=follow)

    def _create_missing(self, name: str) -> None:
        if not self.exists(name):
            with suppress(LogExists, LogNotFound):  # somebody else was faster, or the request was lost
                self.create(name)

    def _maintenance(self, metadata: LogMetadata, log: LogDescriptor, metrics: LogMetrics) -> BackgroundWork:
        work = LogMaintenance(metadata, self._store, lambda: self._catalog_of(metadata), self._clock, metrics)
        maintenance = BackgroundWork(work.run, metrics.maintenance_failed)
        if log.config.copy_codec is not None or log.config.cold_url is not None:
            maintenance.kick()  # the last segment of the writer before has no copy yet
        return maintenance

    def _lags(self, name: str) -> dict[str, int]:
        positions = self.registered_readers(name)
        if not positions:
            return {}
        with closing(self._catalog(name)) as catalog:
            return records_behind(catalog, positions)

    def _take_over(self, metadata: LogMetadata, owner: WriterEpoch, lookup: StagedLookup) -> SegmentsHead:
        state = metadata.state()
        if state.head.end_of_stream:
            raise EndOfStream(f"log '{metadata.log}' was sealed: nothing can be written to it; create another log")
        return recover_unfinished(metadata, self._store, owner, state, self._clock, lookup)

    def _owned(
        self,
        metadata: LogMetadata,
        timeout_s: float,
        *,
        steal: bool,
        cancel: threading.Event | None = None,
        thorough: bool = False,
    ) -> WriterEpoch:
        """The log's lock, its files sorted out, under an epoch that none of them has: a registry that went back gives
        them again."""
        owner = ownership.acquire(metadata, self._clock, timeout_s=timeout_s, steal=steal, cancel=cancel)
        try:
            found = looking_again(lambda: sort_out(metadata, self._store, owner, thorough=thorough))
            higher = owner if owner.epoch > found.epoch else metadata.raise_epoch(owner, found.epoch + 1)
            if found.last_segment is not None:
                self._store.announce(SegmentName(owner.directory, found.last_segment, higher.epoch))
            return higher
        except BaseException as error:
            ownership.give_back(metadata, owner, error)
            raise
