"""What a browser's scripts send to `scribengin web`, without a browser: requests by hand, and the stream of events."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from scribengin_tools.web.app import CSRF_HEADER
from scribengin_tools.web.server import WebServer

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def json(self) -> Any:
        """Its body."""
        return json.loads(self.text)


@dataclass
class Client:
    """Somebody who talks to one server; nobody, until they log in."""

    url: str
    cookie: str = ""
    csrf: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Answer:
        """A GET."""
        return self._sent("GET", path, None, headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        """A POST of JSON; `headers` are named with _ for -."""
        return self._sent("POST", path, json.dumps({} if body is None else body).encode(), headers)

    def login(self, server: WebServer, user: str = "") -> Client:
        """With the right token."""
        answer = self.post("/login", {"token": server.token, "user": user})
        assert answer.status == 200, answer.text
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        self.csrf = self.get("/api/session").json["csrf"]
        return self

    def _sent(self, method: str, path: str, body: bytes | None, more: dict[str, str]) -> Answer:
        connection = self._connection()
        try:
            connection.request(method, path, body, self._headers(body is not None, more))
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode())
        finally:
            connection.close()

    @contextmanager
    def events(self) -> Iterator[Iterator[Any]]:
        """The stream of events, each as its JSON."""
        connection = self._connection()
        try:
            connection.request("GET", "/api/events", None, self._headers(False, {}))
            answer = connection.getresponse()
            assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
            yield (json.loads(line[6:]) for line in answer if line.startswith(b"data: "))
        finally:
            connection.close()

    def _headers(self, sends: bool, more: dict[str, str]) -> dict[str, str]:
        headers = {"cookie": self.cookie, **self.headers}
        if sends:
            headers |= {"content-type": "application/json", CSRF_HEADER: self.csrf}
        return headers | {name.replace("_", "-").lower(): value for name, value in more.items()}

    def _connection(self) -> http.client.HTTPConnection:
        at = urlsplit(self.url)
        return http.client.HTTPConnection(at.hostname or "", at.port, timeout=TIMEOUT_S)
