"""What a NodeManager tells over HTTP: a container's logs while it has them, and whether it still runs there."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from scribengin.errors import LauncherError
from scribengin.launcher.local import output

_TIMEOUT_S = 10.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # nodes are never behind a proxy of the user's
_LENGTH = re.compile(rb"\nLogLength:(\d+)\n")
_CONTENTS = re.compile(rb"\nLogContents:\n")
_END = re.compile(rb"\nEnd of LogType:")


def log_end(web: str, container: str, stream: str, bytes_max: int) -> bytes:
    """The last bytes of `stdout` or `stderr` of a container of that node; nothing when the node does not have them
    (any more) or does not tell."""
    return log_page(web, container, stream, bytes_max)[1] or log_page(web, container, rotated(stream), bytes_max)[1]


def rotated(stream: str) -> str:
    """The file of what stood in `stdout` or `stderr` before it was full."""
    return output.rotated(Path(stream)).name


def asked_log_end(web: str, container: str, stream: str, bytes_max: int) -> bytes:
    """As `log_end`, for whom it matters why there is nothing. Raises LauncherError: the node does not tell."""
    return _log_page(web, container, stream, bytes_max)[1]


def log_page(web: str, container: str, stream: str, bytes_max: int) -> tuple[int, bytes]:
    """How many bytes the whole log has, and its last ones, as `log_end`."""
    try:
        return _log_page(web, container, stream, bytes_max)
    except LauncherError:
        return 0, b""


def _log_page(web: str, container: str, stream: str, bytes_max: int) -> tuple[int, bytes]:
    url = f"http://{web}/ws/v1/node/containers/{container}/logs/{stream}?size=-{bytes_max}"
    try:
        with _DIRECT.open(url, timeout=_TIMEOUT_S) as answer:
            page = answer.read()
    except urllib.error.HTTPError as error:
        if error.code == http.client.NOT_FOUND:
            return 0, b""
        raise LauncherError(f"{web} does not give {stream} of {container}: {error}") from error
    except (OSError, http.client.HTTPException) as error:
        raise LauncherError(f"{web} does not answer: {stream} of {container} is not known: {error}") from error
    length = _LENGTH.search(page)
    return int(length[1]) if length else 0, contents(page)


def contents(answer: bytes) -> bytes:
    """The log itself, of the page that a NodeManager makes of it."""
    parts = _CONTENTS.split(answer, maxsplit=1)
    if len(parts) < 2:
        return b""
    log = b"\n" + parts[1]  # an empty log has no line before its end
    ends = list(_END.finditer(log))
    return log[1 : ends[-1].start() if ends else None]


def attempts(manager: str, application: str) -> list[dict[str, Any]]:
    """What the ResourceManager at `manager` (a URL) tells of the attempts of an application, oldest first. Raises
    LauncherError."""
    url = f"{manager}/ws/v1/cluster/apps/{application}/appattempts"
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    try:
        with _DIRECT.open(request, timeout=_TIMEOUT_S) as answer:
            found = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise LauncherError(f"{manager} does not tell of the attempts of {application}: {error}") from error
    inner = found.get("appAttempts", found) or {}  # some builds of Hadoop leave the root element out
    return sorted(inner.get("appAttempt", []), key=lambda attempt: int(attempt["id"]))


def runs(web: str, container: str) -> bool:
    """Whether the node still has processes of a container. Raises LauncherError: it does not answer."""
    url = f"http://{web}/ws/v1/node/containers/{container}"
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    try:
        with _DIRECT.open(request, timeout=_TIMEOUT_S) as answer:
            found = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        if error.code == http.client.NOT_FOUND:
            return False
        raise LauncherError(f"{web} does not say whether {container} runs: {error}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise LauncherError(f"{web} does not answer, so {container} may still run there: {error}") from error
    inner = found.get("container", found)
    return inner.get("state") not in ("COMPLETE", "DONE", "EXITED_WITH_SUCCESS", "EXITED_WITH_FAILURE")
