"""A proxy without a network: requests in, answers out, whoever carries them.

It is the writer of the logs that it owns, for all their clients. A writer that fails, for whatever reason, is dropped;
the next request opens another one, which knows what the log holds of every sender. So no client sees a failure below.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeVar

import pyarrow as pa

from scribengin.base.clock import SYSTEM_CLOCK, Clock
from scribengin.base.closing import ClosedAtExit
from scribengin.base.model import JsonObject
from scribengin.base.threads import background
from scribengin.errors import (
    AccessDenied,
    Fenced,
    LogBusy,
    LogClosed,
    LogNotFound,
    LogWriteFailed,
    MessageDamaged,
    MessageInvalid,
    OwnershipAcquireFailed,
    RecordTooLarge,
    RegistryError,
    ScribenginError,
    SenderUnknown,
    StoreNotMounted,
    StoreUnreachable,
    WrittenTooFast,
)
from scribengin.log import DLSN, LOGS_AT_ONCE, LogConfig, LogNamespace, LogWriter
from scribengin.log.metadata.binding import is_still_bound
from scribengin.log.metadata.segments import LogMetadata
from scribengin.proxy.balancing import LogBalancer
from scribengin.proxy.config import ProxyConfig, Right
from scribengin.proxy.nodes import ProxyDescriptor, ProxyNodes
from scribengin.proxy.owned import OwnedLog, OwnedLogs, UnderWay
from scribengin.proxy.reading.segments import SegmentReads
from scribengin.proxy.state.access import ANYBODY, AccessRules, Caller
from scribengin.proxy.state.balance import HandOver, LoadMeter, LogLoad
from scribengin.proxy.state.ownership import LogSight, PutOff, SendTo, Serve, TakeLog, next_step
from scribengin.proxy.state.rates import RateCounts, RateMeter, TooMuch, admit, give_back
from scribengin.proxy.wire.answers import Answer, AskDone, MovedTo, Refused, TryAgain, Written, encode_answer
from scribengin.proxy.wire.bundles import OF_ALL, SEND_ALONE, decode_bundle
from scribengin.proxy.wire.requests import (
    ASK,
    ASK_WITH_DATA,
    WRITE,
    AskRequest,
    WriteRequest,
    decode_ask,
    decode_ask_with_data,
    decode_write,
)
from scribengin.proxy.wire.told_errors import of_a_proxied_log
from scribengin.proxy.writing.segments import SegmentWrites
from scribengin_registry.contract import Registry, SessionState

_PASSING = (Fenced, LogWriteFailed, LogClosed, OwnershipAcquireFailed, RegistryError, MessageDamaged)
"""What another attempt, here or elsewhere, may not meet with."""

_RETRY_S = 0.2
_SWEEP_S = 30.0
_HANDED_S = 10.0
"""So long a log that was given up is left to the proxy that is to have it."""
_TOGETHER_S = 2.0
"""So long a bundle waits for the disk. What is not durable then is sent again, by itself: the others go on."""
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class ProxyService(ClosedAtExit):
    """Takes requests for the logs of a namespace. Thread-safe."""

    def __init__(
        self,
        namespace: LogNamespace,
        registry: Registry,
        proxy: ProxyDescriptor,
        config: ProxyConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        access: AccessRules | None = None,
    ) -> None:
        """`namespace` is opened with a commit thread, best; both it and `registry` are closed by whoever made them.
        Without `access` it is open to anybody."""
        self._namespace = namespace
        self._registry = registry
        self._proxy = proxy
        self._config = config or ProxyConfig()
        self._clock = clock
        self._access = access or AccessRules()
        self._denied = 0
        self._counts = RateCounts()
        self._rates = RateMeter(self._config.service_rates, "this proxy", self._counts)
        self._nodes = ProxyNodes(registry, namespace.path)
        self._lock = threading.Lock()
        self._logs = OwnedLogs(self._config.log_rates, self._counts)
        self._ending = False
        self._announced = 0
        """The session in which clients find it."""
        self._renewing = threading.Event()
        self._handed_over = 0
        self.balancer = LogBalancer(proxy, self._nodes, self._loads, self._hand_over)
        self.reads = SegmentReads(registry, namespace, self._config, clock)
        self.writes = SegmentWrites(namespace, proxy.address, clock)
        self._done_to_logs: dict[str, tuple[tuple[Right, ...], Callable[[AskRequest], Answer]]] = {
            "open": (("write",), self._open),
            "create": (("administer",), self._create),
            "delete": (("administer",), self._delete),
            "truncate": (("administer",), self._truncate),
            "seal": (("administer",), self._seal),
            "release": (("administer",), self._release),
            **{op: (("read",), do) for op, do in self.reads.asked.items()},
            **self.writes.asked,
        }
        """What `ask` may ask for, and which rights to the log it takes."""
        self._told: dict[str, Callable[[AskRequest, Caller], Answer]] = {"names": self._names, "info": self._info}
        """What every caller may ask for, and is told of the logs that it may read."""

    @property
    def logs(self) -> list[str]:
        """The logs that it writes just now: none that it knows to be lost to somebody else."""
        with self._lock:
            return sorted(log.name for log in self._logs.written())

    def announce(self) -> None:
        """Let clients find it, from now on, in whatever session. Raises what the registry raises."""
        self._announced = self._registry.session_id
        self._nodes.announce(self._proxy)
        self._registry.on_session(self._on_session)
        self._on_session(self._registry.state)  # that session may have ended meanwhile
        background("proxy-logs", self._run).start()
        self.writes.start()
        self.reads.start()
        if self._config.balance_s:
            self.balancer.start(self._config.balance_s)

    def handle(self, kind: str, body: pa.Buffer, token: str | None = None) -> list[bytes | pa.Buffer]:
        """The messages of the answer to a request, which is `kind` and `body`, and came with `token`."""
        return encode_answer(self.answer(kind, body, token))

    def answer(self, kind: str, body: pa.Buffer, token: str | None = None) -> Answer:
        """The answer to a request. Nothing is looked at before it is known who asks."""

        def answer() -> Answer:
            caller = self._access.caller(token)
            if kind == WRITE:
                return self.write(decode_write(body), caller)
            if kind == ASK:
                return self.ask(decode_ask(body), caller)
            if kind == ASK_WITH_DATA:
                return self.ask(decode_ask_with_data(body), caller)
            raise MessageInvalid(f"a proxy knows nothing of '{kind}'; use a client of its version")

        return self._answered(answer)

    def answer_bundle(self, body: pa.Buffer, token: str | None = None) -> Iterator[bytes | pa.Buffer]:
        """The answer to each request of a bundle, in order, when it is known. All are begun before the first answer.
        No log holds up the others for long. Nothing is looked at before it is known who asks."""
        opened = self._answered(lambda: (self._access.caller(token), decode_bundle(body)))
        if not isinstance(opened, tuple):
            yield b"".join((OF_ALL, *encode_answer(opened)))
            return
        caller, requests = opened
        until_s = self._together_until_s()
        all_begun = [self._begun(request, caller, until_s) for request in requests]
        until_s = self._together_until_s()
        for begun in all_begun:
            if begun is None:
                yield SEND_ALONE
                continue
            found = self._answered(partial(self._outcome, begun, until_s)) if isinstance(begun, UnderWay) else begun
            yield from encode_answer(found)

    def _together_until_s(self) -> float:
        return self._clock.monotonic_s() + min(_TOGETHER_S, self._config.answer_timeout_s)

    def _begun(self, body: pa.Buffer, caller: Caller, until_s: float) -> Answer | UnderWay | None:
        """A request of a bundle. None: it takes more than to write, or has to wait, so it is to be sent by itself."""

        def begin() -> Answer | UnderWay | None:
            request = decode_write(body)
            caller.check(request.log, "write")
            log = self._log(request.log)
            writer = log.writer
            if writer is None or not self._is_well(log, writer) or _is_other(request.directory, writer):
                return None
            self._admit(log, request)
            try:
                return self._submit(log, writer, request, turn_s=max(0.0, until_s - self._clock.monotonic_s()))
            except ScribenginError as error:
                if isinstance(error, LogBusy) or _has_ended(writer, error):
                    with self._lock:  # it counts when it comes by itself
                        give_back((log.rates, self._rates), request.records.num_rows, request.records.nbytes)
                    return None
                raise

        return self._answered(begin)

    def _answered(self, work: Callable[[], _T]) -> _T | Answer:
        """What that comes to. What is in its way is an answer, too."""
        try:
            return work()
        except _PASSING as error:
            return TryAgain(error)
        except StoreNotMounted as error:
            return Refused(error) if self._is_in_place() else self._left_behind()
        except ScribenginError as error:
            if isinstance(error, AccessDenied):
                with self._lock:
                    self._denied += 1
            return Refused(error)
        except OSError as error:  # as where it may open no more files: another proxy may
            why = StoreUnreachable(f"the proxy {self._proxy.address} cannot do that just now: {error}")
            return TryAgain(why, maybe_written=True)

    def _is_in_place(self) -> bool:
        """Whether the namespace was not moved since this proxy has opened it, for all that is known."""
        with suppress(RegistryError):
            return is_still_bound(self._registry, self._namespace.path, self._namespace.descriptor)
        return True

    def _left_behind(self) -> Answer:
        """What to say once the namespace was moved: other proxies may have the new place, and take the logs."""
        self.balancer.end()  # it tells that this one takes logs
        self._proxy = self._proxy.model_copy(update={"takes_more": False})
        with suppress(RegistryError):
            self._nodes.announce(self._proxy)
        why = f"was started before {self._namespace.path} was moved to another place: start it again"
        return TryAgain(StoreUnreachable(f"the proxy {self._proxy.address} {why}"))

    def write(self, request: WriteRequest, caller: Caller = ANYBODY) -> Answer:
        """Write the records that are not in the log yet, and say where all of them stand. Raises AccessDenied."""
        caller.check(request.log, "write")
        log = self._log(request.log)
        writer = self._writer(log)
        if not isinstance(writer, LogWriter):
            return writer
        if _is_other(request.directory, writer):
            return self._of_another_log(log, writer)
        until_s = self._clock.monotonic_s() + self._config.answer_timeout_s
        self._admit(log, request)
        try:
            begun = self._submit(log, writer, request)
        except ScribenginError as error:
            if not _has_ended(writer, error):
                raise
            self._drop(log, writer)
            return TryAgain(error)
        return self._outcome(begun, until_s, drop=self._drop)

    def _of_another_log(self, log: OwnedLog, writer: LogWriter) -> Answer:
        """What to say to who wants another log of that name than the one that is written here. Raises LogNotFound if
        it is the one that has gone."""
        metadata = LogMetadata(self._registry, self._namespace.path, log.name)
        self._registry.sync(metadata.path)
        if metadata.descriptor().directory == writer.directory:
            raise LogNotFound(
                f"log '{log.name}' was deleted under its writer, and another one made in its place: open a new writer"
            )
        self._drop(log, writer)
        return TryAgain(LogBusy(f"log '{log.name}' was made anew just now; it is taken with the next request"))

    def _submit(self, log: OwnedLog, writer: LogWriter, request: WriteRequest, turn_s: float | None = None) -> UnderWay:
        """Let the log's writer have the records. Raises as `LogWriter.write_numbered`."""
        try:
            future = writer.write_numbered(
                request.records,
                sender=request.sender,
                number=request.number,
                answered=request.answered,
                since=request.since,
                atomic=request.atomic,
                turn_s=turn_s,
            )
        except RecordTooLarge as error:
            raise of_a_proxied_log(error, log.name) from None
        return UnderWay(log, writer, future)

    def _outcome(
        self,
        begun: UnderWay,
        until_s: float,
        drop: Callable[[OwnedLog, LogWriter], object] = lambda _log, _writer: None,
    ) -> Answer:
        """Wait until they are durable. A writer that has failed is dropped, which may take a while."""
        try:
            return Written(begun.future.result(max(0.0, until_s - self._clock.monotonic_s())))
        except FutureTimeout:
            busy = LogBusy(f"log '{begun.log.name}': the disk has not taken records in time")
            return TryAgain(busy, maybe_written=True)
        except SenderUnknown:
            raise
        except ScribenginError as error:
            drop(begun.log, begun.writer)
            return TryAgain(error, maybe_written=True)

    def ask(self, request: AskRequest, caller: Caller = ANYBODY) -> Answer:
        """Do what a client asks for that are no records. Raises AccessDenied."""
        try:
            if (tell := self._told.get(request.op)) is not None:
                return tell(request, caller)
            if request.op not in self._done_to_logs:
                raise MessageInvalid(f"a proxy knows nothing of '{request.op}'; use a client of its version")
            rights, do = self._done_to_logs[request.op]
            for right in rights:
                caller.check(request.log, right)
            try:
                return do(request)
            except _PASSING as error:
                return TryAgain(error, maybe_written=rights != ("read",))  # it may have been half done, or more
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise MessageInvalid(f"'{request.op}' says {request.fields}: {error!r}") from None

    def close(self) -> None:
        """Hand the logs over: each is flushed, completed, and nobody's. Idempotent. Raises what the registry raises."""
        with self._lock:
            if self._ending:
                return
            self._ending = True
            logs = list(self._logs)
        self._registry.off_session(self._on_session)
        self._renewing.set()
        self.balancer.end()
        with ExitStack() as ending:
            ending.callback(self.balancer.close)
            ending.callback(self.reads.close)
            ending.callback(self.writes.close)
            ending.callback(self._abandon_all, logs)  # those that are left where the registry is away
            self._nodes.announce(self._proxy.model_copy(update={"takes_more": False}))
            with ThreadPoolExecutor(LOGS_AT_ONCE, "proxy-hand-over") as threads:  # the store of one may be stalled
                for _ in threads.map(self._hand_on, logs):
                    pass
            self._nodes.withdraw(self._proxy)

    def sweep(self) -> None:
        """Let go of logs that were lost, as by a deletion, and that nobody asks for: their files are open. Forget those
        that it does not write any more."""
        with self._lock:
            self._logs.forget_idle(self._clock.monotonic_s())
            lost = [log for log in self._logs if log.is_lost]
        for log in lost:
            with log.lock, suppress(RegistryError):  # it is away: the node goes with the session
                if log.is_lost:
                    self._abandon(log)
                    self._nodes.release(log.name, self._proxy)

    def _run(self) -> None:
        while not self._renewing.wait(_SWEEP_S):
            self.sweep()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self._registry.session_id != self._announced:
            background("proxy-session", self._announce_again).start()

    def _announce_again(self) -> None:
        """The nodes went with their session. Logs are claimed anew when somebody asks for them."""
        while not self._renewing.is_set() and self._announced != self._registry.session_id:
            session = self._registry.session_id
            try:
                self._nodes.announce(self._proxy)
                self._announced = session
            except RegistryError:
                self._renewing.wait(_RETRY_S)  # it is away again: clients do not find this proxy meanwhile

    def _log(self, name: str) -> OwnedLog:
        with self._lock:
            return self._logs.find(name)

    def _admit(self, log: OwnedLog, request: WriteRequest) -> None:
        """Raises WrittenTooFast."""
        size_bytes = request.records.nbytes
        with self._lock:
            now_s = self._clock.monotonic_s()
            found = admit((log.rates, self._rates), request.records.num_rows, size_bytes, now_s)
            if not isinstance(found, TooMuch):
                log.load.add(size_bytes, now_s)
        if isinstance(found, TooMuch):
            raise WrittenTooFast(f"log '{log.name}' is written too fast: {found.of}; write again in a moment")
        for rate in found.over:
            _log.warning("more is written than the soft limit: %s", rate)

    def _writer(self, log: OwnedLog) -> LogWriter | Answer:
        """The log's writer, taken over if need be; or what to answer instead."""
        writer = log.writer
        if writer is not None and self._is_well(log, writer):
            return writer
        with log.lock:
            owner = None if self._serves(log) else self._nodes.owner(log.name)
            match next_step(self._sight(log, owner)):
                case Serve():
                    assert log.writer is not None
                    return log.writer
                case TakeLog():
                    return self._take(log)
                case SendTo(address):
                    self._give_up(log)
                    return MovedTo(address)
                case PutOff(why):
                    return TryAgain(
                        LogBusy(f"log '{log.name}': the proxy {self._proxy.address} does not take it: {why}")
                    )

    def _sight(self, log: OwnedLog, owner: ProxyDescriptor | None) -> LogSight:
        with self._lock:
            logs = len(self._logs.written())
        others = [one.address for one in self._nodes.servers() if one.takes_more and one.name != self._proxy.name]
        return LogSight(
            us=self._proxy.address,
            serving=self._serves(log),
            owner=None if owner is None else owner.address,
            ending=self._ending,
            logs=logs,
            logs_max=self._config.logs_max,
            others=random.sample(others, len(others)),
            handed_to=log.handed_to if self._clock.monotonic_s() < log.handed_until_s else None,
        )

    def _serves(self, log: OwnedLog) -> bool:
        return log.writer is not None and self._is_well(log, log.writer)

    def _is_well(self, log: OwnedLog, writer: LogWriter) -> bool:
        return not (writer.failed or self._ending) and log.session == self._registry.session_id

    def _take(self, log: OwnedLog) -> LogWriter | Answer:
        """Claim the log, and open its writer. The caller holds its lock."""
        session = self._registry.session_id
        owner = self._nodes.claim(log.name, self._proxy)
        if owner.name != self._proxy.name:
            self._give_up(log)
            return MovedTo(owner.address)
        if log.writer is not None and not log.writer.failed:  # the session went, and nobody has taken the log since
            log.session = session
            return log.writer
        self._abandon(log)
        try:
            log.writer = self._namespace.open_writer(
                log.name, timeout_s=self._config.acquire_timeout_s, senders=True, create=False
            )
            log.session = session
            log.handed_to = None
            log.taken_s = self._clock.monotonic_s()
            log.load = LoadMeter()
            with self._lock:
                self._logs.keep(log)
        except BaseException:
            self._nodes.release(log.name, self._proxy)
            raise
        return log.writer

    def _drop(self, log: OwnedLog, writer: LogWriter) -> None:
        """The writer has failed: the next request opens another one."""
        with log.lock:
            if log.writer is writer:
                self._abandon(log)

    def _abandon_all(self, logs: Iterable[OwnedLog]) -> None:
        for log in logs:
            with log.lock:
                self._abandon(log)

    def _abandon(self, log: OwnedLog) -> None:
        writer = log.writer
        log.writer = None
        if writer is not None:
            with suppress(ScribenginError, OSError):  # it has failed, or another has the log: all that is left is to go
                writer.abort()

    def _give_up(self, log: OwnedLog) -> None:
        """Flush, complete, and let others have the log. The caller holds its lock."""
        writer = log.writer
        log.writer = None
        if writer is None:
            return
        with suppress(ScribenginError, OSError):  # what was not acknowledged is sent again, to who has the log next
            writer.close()
        self._nodes.release(log.name, self._proxy)

    def _hand_on(self, log: OwnedLog) -> None:
        with log.lock:
            self._give_up(log)

    def _loads(self) -> list[LogLoad]:
        """The logs that it writes, with what it does for them."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            return [
                LogLoad(log.name, log.load.load(now_s), settled=now_s - log.taken_s >= self._config.balance_s)
                for log in self._logs.written()
            ]

    def _hand_over(self, move: HandOver) -> None:
        """Give the log up, and send whoever asks for it to the proxy that is to have it."""
        log = self._log(move.log)
        with log.lock:
            if not self._serves(log):
                return
            self._give_up(log)
            log.handed_to = move.to
            log.handed_until_s = self._clock.monotonic_s() + _HANDED_S
        with self._lock:
            self._handed_over += 1
            self._logs.keep(log)

    def _open(self, request: AskRequest) -> Answer:
        """Take the log, so that who opens a writer hears at once what is in the way."""
        found = self._writer(self._log(request.log))
        return AskDone() if isinstance(found, LogWriter) else found

    def _create(self, request: AskRequest) -> Answer:
        config = request.fields.get("config")
        parsed = None if config is None else LogConfig.parse(config, source=f"log '{request.log}'")
        self._namespace.create(request.log, parsed)
        return AskDone()

    def _delete(self, request: AskRequest) -> Answer:
        force, directory = bool(request.fields["force"]), self._directory(request)
        try:
            return self._alone(request, lambda: self._namespace.delete(request.log, force=force, directory=directory))
        except LogWriteFailed as error:
            if isinstance(error, StoreUnreachable):
                raise
            return Refused(error)  # files are left of a log that is gone: who asks again would not hear of them

    def _truncate(self, request: AskRequest) -> Answer:
        before, force = DLSN(*request.fields["before"]), bool(request.fields["force"])
        changed = self._namespace.truncate(request.log, before, force=force, directory=self._directory(request))
        return AskDone({"changed": changed})

    def _seal(self, request: AskRequest) -> Answer:
        log = self._log(request.log)
        writer = self._writer(log)
        if not isinstance(writer, LogWriter):
            return writer
        if _is_other(str(request.fields.get("directory", "")), writer):
            return self._of_another_log(log, writer)
        with log.lock:
            writer.mark_end_of_stream()
            log.writer = None
            self._nodes.release(log.name, self._proxy)
        return AskDone()

    def _release(self, request: AskRequest) -> Answer:
        return self._alone(request, lambda: None)

    def _names(self, request: AskRequest, caller: Caller) -> Answer:
        names = self._namespace.names(str(request.fields["prefix"]))
        return AskDone({"names": [name for name in names if caller.may_read(name)]})

    def _info(self, _request: AskRequest, caller: Caller) -> Answer:
        logs = [log for log in self.logs if caller.may_read(log)]
        said: JsonObject = {"name": self._proxy.name, "address": self._proxy.address, "logs": logs}
        with self._lock:
            said["requests_over_soft"] = self._counts.requests_over_soft
            said["requests_refused"] = self._counts.requests_refused
            said["requests_denied"] = self._denied
            said["logs_handed_over"] = self._handed_over
        return AskDone(said)

    def _directory(self, request: AskRequest) -> str | None:
        """Of the log that is meant; None: of whichever has that name. The registry tells of that log from here on."""
        self._registry.sync(self._namespace.path)  # our server of it may be behind that of who asks
        return str(request.fields.get("directory", "")) or None

    def _alone(self, request: AskRequest, work: Callable[[], object]) -> Answer:
        """Do that once no proxy writes the log. Another proxy's log is given up by that one."""
        log = self._log(request.log)
        with log.lock:
            owner = self._nodes.owner(log.name)
            if owner is not None and owner.name != self._proxy.name:
                return MovedTo(owner.address)
            self._give_up(log)
            work()
        return AskDone()


def _is_other(directory: str, writer: LogWriter) -> bool:
    """Whether who names that directory of a log means another one than the writer has."""
    return directory not in ("", writer.directory)


def _has_ended(writer: LogWriter, error: ScribenginError) -> bool:
    """Whether the writer refuses records since it is closed or has failed, and not for what they are."""
    return writer.failed or isinstance(error, LogClosed)
