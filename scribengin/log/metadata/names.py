"""Names of logs and namespaces, under DistributedLog's rules."""

from __future__ import annotations

import re
from dataclasses import dataclass

from scribengin.base.model import node_name
from scribengin.base.names import PROXIED_SCHEME, without_proxies
from scribengin.errors import ConfigInvalid, InvalidLogName, LogError, LogNotFound
from scribengin.log.store.opening import store_kind

WILDCARD = re.compile(r"[*?\[]")
"""What makes a name a pattern, as fnmatch takes it."""
_NODE_NAME_BYTES_MAX = 200
"""A log's name becomes one node and one directory, and file systems take 255 bytes."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_URI = re.compile(r"distributedlog(?:-([a-z]+))?://([^/]+)(/.*)?")


@dataclass(frozen=True, slots=True)
class NamespaceUri:
    """`distributedlog-file://hosts/path`, taken apart. `hosts` is empty if the URI was a bare path; `store` is None
    where it names none."""

    hosts: str
    path: str
    store: str | None = None

    @classmethod
    def parse(cls, uri: str) -> NamespaceUri:
        """Raises ConfigInvalid."""
        if uri.startswith("/"):
            return cls("", _node_path(uri, uri))
        match = _URI.fullmatch(uri)
        if match is None:
            bare = uri.strip("/") if "://" not in uri else ""
            meant = f"did you mean '/{bare}'? Expected" if bare else "expected"
            raise ConfigInvalid(
                f"'{uri}' is no namespace: {meant} a node of the registry, as in /logs, or "
                "distributedlog-file://<zookeeper hosts>/<path>, as in distributedlog-file://localhost:2181/logs"
            )
        store, hosts, path = match[1], match[2], match[3] or "/"
        try:
            if store is not None:
                store_kind(store)
        except ValueError as error:
            raise ConfigInvalid(_no_store(uri, str(error))) from None
        return cls(hosts, _node_path(path, uri), store)


def _no_store(uri: str, why: str) -> str:
    if uri.startswith(PROXIED_SCHEME):
        return (
            f"'{uri}' names the proxies of the namespace {without_proxies(uri)}: name that one here; to read "
            "and write through its proxies, open it with scribengin.proxy.ProxiedNamespace"
        )
    return f"'{uri}': {why}; distributedlog:// leaves that to the namespace"


def check_log_name(name: str) -> str:
    """`name` without a leading slash. Raises InvalidLogName."""
    bare = name.removeprefix("/")
    parts = bare.split("/")
    why = None
    if not bare:
        why = "it is empty"
    elif _SURROGATE.search(bare):
        why = "it holds half of a surrogate pair, which is no text"
    elif any(character.isspace() or ord(character) < 32 for character in bare):
        why = "it has a space or a control character"
    elif any(part in ("", ".", "..") for part in parts):
        why = "one of its parts is empty, '.' or '..'"
    elif bare.startswith("."):
        why = "names that begin with '.' are reserved"
    elif len(node_name(bare)) > _NODE_NAME_BYTES_MAX:
        why = f"it takes more than {_NODE_NAME_BYTES_MAX} bytes"
    if why is not None:
        shown = name.encode(errors="backslashreplace").decode()
        raise InvalidLogName(f"'{shown}' cannot be the name of a log: {why}; use names as in flights/0")
    return bare


def check_reader_name(log: str, reader: str) -> str:
    """The name of a subscriber or registered reader. Raises LogError."""
    if not reader or _SURROGATE.search(reader):
        shown = reader.encode(errors="backslashreplace").decode()
        raise LogError(f"log '{log}': '{shown}' cannot be the name of a reader: give it one, of whole characters")
    return reader


def _node_path(path: str, uri: str) -> str:
    trimmed = "/" + path.strip("/")
    if trimmed == "/" or "//" in trimmed:
        raise ConfigInvalid(f"'{uri}' names no node for the namespace: append a path as in /logs")
    return trimmed


def check_directory(log: str, wanted: str | None, there: str) -> None:
    """Raises LogNotFound for who means another log of that name than the one there is. None: whichever that is."""
    if wanted not in (None, there):
        raise LogNotFound(f"log '{log}' was deleted meanwhile, and another one made in its place: look at that one")
