"""What a check of the cluster finds before a dataflow starts, and how it travels from a container to whoever asked.

The container is an application's own, of one attempt. It ends with what it found as the application's diagnostics:
where Java works there, by registering as the master it is; where it does not, on its standard error, of which YARN
quotes the end. So nothing else needs to be reachable for the answer to arrive.
"""

from __future__ import annotations

import base64
import re
import sys
import threading
import zlib

from pydantic import Field

from scribengin.base.model import Descriptor, JsonObject
from scribengin.base.threads import background
from scribengin.errors import LauncherError, ScribenginError
from scribengin.launcher.yarn.application_master.resource_manager import ApplicationMaster
from scribengin.launcher.yarn.config import YarnConfig

REQUEST_VARIABLE = "SCRIBENGIN_PREFLIGHT"
"""Set by Scribengin: what a preflight on YARN is to look at."""
_REPORT_BYTES_MAX = 3000
"""YARN quotes 4 KiB of a failed container's standard error."""
_HEARTBEAT_S = 1.0
_FOUND_CHARACTERS = (400, 160, 60)
_MARKED = re.compile(r"<scribengin-preflight ([A-Za-z0-9+/=\s]+)>")


class PreflightRequest(Descriptor):
    """What is to be checked: `python` is the version that the submitting process has, as in 3.11, `config` the
    dataflow's, `sent_ms` the time of its clock, `packages` what must be importable."""

    registry: str
    python: str
    config: JsonObject
    packages: list[str]
    sent_ms: int


class PreflightCheck(Descriptor):
    """One thing that a dataflow needs: whether it is there, what was found, and what to do if it is not."""

    name: str
    ok: bool
    found: str
    next_step: str = ""


class PreflightReport(Descriptor):
    """What was found on `host`."""

    host: str
    checks: list[PreflightCheck] = Field(min_length=1)

    @property
    def ok(self) -> bool:
        """Whether a dataflow can run there."""
        return all(check.ok for check in self.checks)


def encoded(value: Descriptor) -> str:
    """A descriptor as one word, for an environment variable or a line of diagnostics."""
    return base64.b64encode(zlib.compress(value.to_bytes(), 9)).decode()


def decoded_request(word: str) -> PreflightRequest:
    """The request of an environment variable. Raises LauncherError."""
    try:
        return PreflightRequest.from_bytes(zlib.decompress(base64.b64decode(word)), path=REQUEST_VARIABLE)
    except (ValueError, zlib.error) as error:
        raise LauncherError(f"{REQUEST_VARIABLE} holds no request: {error}") from error


def marked(report: PreflightReport) -> str:
    """The report as it stands in diagnostics. What was found is cut short where all of it would not fit."""
    for characters in _FOUND_CHARACTERS:
        checks = [check.model_copy(update={"found": check.found[:characters]}) for check in report.checks]
        word = encoded(report.model_copy(update={"checks": checks}))
        if len(word) <= _REPORT_BYTES_MAX:
            break
    return f"<scribengin-preflight {word}>"


def report_in(diagnostics: str) -> PreflightReport | None:
    """The report that an application's diagnostics hold, None when it did not come to make one."""
    found = _MARKED.search(diagnostics)
    if found is None:
        return None
    data = zlib.decompress(base64.b64decode("".join(found[1].split())))
    return PreflightReport.from_bytes(data, path="the application's diagnostics")


class PreflightMaster:
    """The check's own application, seen from its container: registered, and heard of while the checks go on.

    Where Java does not work it is mute: `end` then prints.
    """

    def __init__(self) -> None:
        self._master: ApplicationMaster | None = None
        self._failure = ""
        self._ended = threading.Event()
        self._thread = background("preflight-heartbeat", self._beat)
        try:
            self._master = ApplicationMaster(YarnConfig())
            self._thread.start()
        except ScribenginError as error:
            self._failure = str(error)

    def end(self, report: PreflightReport) -> int:
        """End the application with the report as its diagnostics. Returns the exit code of its process."""
        self._ended.set()
        if self._master is None:
            print(f"{self._failure}\n{marked(report)}", file=sys.stderr, flush=True)
            return 1
        self._thread.join()
        self._master.unregister(succeeded=report.ok, message=marked(report))
        self._master.close()
        return 0

    def _beat(self) -> None:
        assert self._master is not None
        while not self._ended.wait(_HEARTBEAT_S):
            try:
                self._master.heartbeat()
            except LauncherError:
                return  # what that means, `end` finds out
