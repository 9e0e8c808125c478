"""The routes of the page, and what stands before all of them: host, session, right to change."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_args

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scribengin.base.clock import Clock
from scribengin.base.text.masking import masked_text
from scribengin.base.text.plain_words import in_plain_words
from scribengin.errors import (
    ConfigError,
    ConfigInvalid,
    DataflowBusy,
    DataflowNotFound,
    EditConflict,
    RegistryError,
    ScribenginError,
)
from scribengin.monitoring.overview import DataflowOverview
from scribengin_tools.web.access import Access, Session, host_is_ours, may_change, origin_is_ours
from scribengin_tools.web.actions import WebActions
from scribengin_tools.web.feed import events
from scribengin_tools.web.model.values import TASKS_A_PAGE_MAX, Json, TaskOrder, detail_json, tasks_json
from scribengin_tools.web.model.watcher import Watcher

STATIC = Path(__file__).parent / "static"
CSRF_HEADER = "x-scribengin-csrf"
BODY_BYTES_MAX = 1024 * 1024
WAITING_MAX = 16
"""So many requests of a kind may wait for a master at once; more of that kind wait for them, and nobody else does."""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_STATUS: tuple[tuple[type[ScribenginError], int], ...] = (
    (DataflowNotFound, 404),
    (EditConflict, 409),
    (DataflowBusy, 409),
    (ConfigError, 422),
    (RegistryError, 503),
)

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Page:
    """The page of one registry. `names` are the hosts that it answers as; without `write` it changes nothing."""

    watcher: Watcher
    operator: WebActions
    access: Access
    names: Collection[str]
    cookie: str
    write: bool
    clock: Clock
    verdicts: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(WAITING_MAX))
    starts: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(WAITING_MAX))

    def app(self) -> ASGIApp:
        """The ASGI application."""
        flow = "/api/flows/{name}"
        routes = [
            Route("/", self._index),
            Route("/login", lambda _: FileResponse(STATIC / "login.html")),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._seeing(self._logout), methods=["POST"]),
            Route("/api/session", self._seeing(self._session)),
            Route("/api/events", self._seeing(self._events)),
            Route(flow, self._seeing(self._flow)),
            Route(f"{flow}/tasks", self._seeing(self._tasks)),
            Route(f"{flow}/config", self._seeing(self._config)),
            Route(f"{flow}/versions/{{version:int}}", self._seeing(self._version)),
            Route(f"{flow}/verdict/{{version:int}}", self._seeing(self._verdict)),
            Route(f"{flow}/history", self._seeing(self._history)),
            Route(f"{flow}/logs", self._seeing(self._logs)),
            Route(f"{flow}/check", self._changing(self._check), methods=["POST"]),
            Route(f"{flow}/config", self._changing(self._save), methods=["POST"]),
            Route(f"{flow}/scale", self._changing(self._scale), methods=["POST"]),
            Route(f"{flow}/pause", self._changing(self._pause), methods=["POST"]),
            Route(f"{flow}/resume", self._changing(self._resume), methods=["POST"]),
            Route(f"{flow}/stop", self._changing(self._stop), methods=["POST"]),
            Route(f"{flow}/start", self._changing(self._start), methods=["POST"]),
            Route(f"{flow}/rollback", self._changing(self._roll_back), methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        app = Starlette(routes=routes, exception_handlers={ScribenginError: _told, ClientDisconnect: _told})
        return _Guard(app, self.names)

    # -- who may

    def _seeing(self, handler: Handler) -> Handler:
        """For whoever has shown the token; what is no GET must come from our own page."""

        async def guarded(request: Request) -> Response:
            session = self._session_of(request)
            if session is None:
                return _refusal(401, "log in first")
            if request.method not in ("GET", "HEAD") and not may_change(session, request.headers.get(CSRF_HEADER)):
                return _refusal(403, "this was not asked for by the page itself: load it again")
            request.state.session = session
            return await handler(request)

        return guarded

    def _changing(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            if not self.write:
                return _refusal(403, "this page is read-only: `scribengin web --write` serves one that is not")
            answer = await handler(request)
            self.watcher.look_soon()
            return answer

        return self._seeing(guarded)

    def _session_of(self, request: Request) -> Session | None:
        return self.access.session(request.cookies.get(self.cookie))

    async def _index(self, request: Request) -> Response:
        if self._session_of(request) is None:
            return RedirectResponse("/login", 303)
        return FileResponse(STATIC / "index.html")

    async def _login(self, request: Request) -> Response:
        body = await _body(request)
        cookie = self.access.login(_text(body, "token"), _text(body, "user", ""))
        if cookie is None:
            return _refusal(401, "that is not the token; `scribengin web` prints it, or it stands in its --token-file")
        answer = JSONResponse({})
        answer.set_cookie(self.cookie, cookie, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer

    async def _logout(self, request: Request) -> Response:
        self.access.logout(request.cookies.get(self.cookie))
        answer = JSONResponse({})
        answer.delete_cookie(self.cookie, httponly=True, samesite="strict")
        return answer

    async def _session(self, request: Request) -> Response:
        session: Session = request.state.session
        return JSONResponse(
            {
                "user": session.user,
                "csrf": session.csrf,
                "write": self.write,
                "registry": self.operator.registry.hosts,
            }
        )

    # -- watching

    async def _events(self, request: Request) -> Response:
        stream = events(self.watcher, self.clock.now_ms, lambda: self._session_of(request) is not None)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _flow(self, request: Request) -> Response:
        found = self._picture(request)
        rows = await run_in_threadpool(self.watcher.rows, found.dataflow)
        return JSONResponse({**detail_json(found), "rows": rows})

    async def _tasks(self, request: Request) -> Response:
        query = request.query_params
        order = query.get("order", "task")
        if order not in get_args(TaskOrder):
            raise ConfigInvalid(f"order={order}: tasks are ordered by {', '.join(get_args(TaskOrder))}")
        page = await run_in_threadpool(
            tasks_json,
            self._picture(request),
            order=order,  # type: ignore[arg-type]  # it is one of them
            descending=query.get("descending") == "1",
            words=query.get("words", ""),
            offset=_number(query.get("offset", "0"), "offset"),
            limit=_number(query.get("limit", str(TASKS_A_PAGE_MAX)), "limit"),
        )
        return JSONResponse(page)

    def _picture(self, request: Request) -> DataflowOverview:
        name = request.path_params["name"]
        snapshot = self.watcher.snapshot
        found = snapshot.look.overviews.get(name)
        if found is None:
            why = snapshot.look.unreadable.get(name) or "there is no such dataflow (any more)"
            raise DataflowNotFound(f"'{name}': {why}")
        return found

    # -- the config

    async def _config(self, request: Request) -> Response:
        return await _done(self.operator.config, request.path_params["name"])

    async def _version(self, request: Request) -> Response:
        return await _done(self.operator.version, request.path_params["name"], request.path_params["version"])

    async def _verdict(self, request: Request) -> Response:
        name, version = request.path_params["name"], request.path_params["version"]
        return await _done(self.operator.verdict, name, version, of=self.verdicts)

    async def _history(self, request: Request) -> Response:
        return await _done(self.operator.history, request.path_params["name"])

    async def _logs(self, request: Request) -> Response:
        return await _done(self.operator.logs, request.path_params["name"])

    async def _check(self, request: Request) -> Response:
        body = await _body(request)
        return await _done(
            self.operator.check, request.path_params["name"], _text(body, "text"), _count(body, "version")
        )

    async def _save(self, request: Request) -> Response:
        body = await _body(request)
        edit = (_text(body, "text"), _count(body, "version"))
        return await _done(self.operator.save, request.path_params["name"], *edit, _author(request))

    async def _scale(self, request: Request) -> Response:
        body = await _body(request)
        wanted = {key: _count(body, key) for key in ("workers", "tasks") if key in body}
        if not wanted:
            raise ConfigInvalid("say how many: workers, tasks, or both")
        return await _done(self.operator.scale, request.path_params["name"], wanted, _author(request))

    async def _pause(self, request: Request) -> Response:
        return await _done(self.operator.set_desired, request.path_params["name"], "paused", _author(request))

    async def _resume(self, request: Request) -> Response:
        return await _done(self.operator.set_desired, request.path_params["name"], "running", _author(request))

    async def _stop(self, request: Request) -> Response:
        return await _done(self.operator.set_desired, request.path_params["name"], "stopped", _author(request))

    async def _start(self, request: Request) -> Response:
        return await _done(self.operator.start, request.path_params["name"], _author(request), of=self.starts)

    async def _roll_back(self, request: Request) -> Response:
        version = _count(await _body(request), "version")
        return await _done(self.operator.roll_back, request.path_params["name"], version, _author(request))


class _Guard:
    """Refuses what is meant for another host, or comes from another site's page; says what browsers may do with
    answers."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = headers.get("host")

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if not host_is_ours(host, self._names):
            refused: ASGIApp = PlainTextResponse("not a host of this server; --allow-host adds a name\n", 421)
        elif scope["method"] not in ("GET", "HEAD") and not origin_is_ours(headers.get("origin"), host):
            refused = _refusal(403, "this was asked for by a page of another site")
        else:
            refused = self._app
        await refused(scope, receive, sent)


async def _done(act: Callable[..., Json], *arguments: Any, of: CapacityLimiter | None = None) -> Response:
    """What talks to the registry must not hold up the others; nor may what waits long, which is one `of` so many."""
    return JSONResponse(await run_sync(partial(act, *arguments), limiter=of))


async def _told(_request: Request, error: Exception) -> Response:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    return _refusal(status, masked_text(in_plain_words(error)))


def _refusal(status: int, words: str) -> Response:
    return JSONResponse({"error": words}, status)


async def _body(request: Request) -> Json:
    """A JSON object. Raises ConfigInvalid for anything else, and for what is larger than any config."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise ConfigInvalid("send application/json")
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > BODY_BYTES_MAX:
            raise ConfigInvalid(f"that is more than {BODY_BYTES_MAX:,} bytes")
    try:
        value = json.loads(received or b"{}")
    except (ValueError, RecursionError):
        raise ConfigInvalid("that is no JSON") from None
    if not isinstance(value, dict):
        raise ConfigInvalid("send a JSON object")
    return value


def _text(body: Json, key: str, default: str | None = None) -> str:
    value = body.get(key, default)
    if not isinstance(value, str):
        raise ConfigInvalid(f"{key}: a text is missing")
    return value


def _count(body: Json, key: str) -> int:
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigInvalid(f"{key}: a whole number from 0 on is missing")
    return value


def _number(text: str, key: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise ConfigInvalid(f"{key}={text}: give a whole number")
    return int(text)


def _author(request: Request) -> str:
    session: Session = request.state.session
    return session.author
