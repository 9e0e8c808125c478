"""`scribengin registry`: the nodes themselves, for operators."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scribengin.base.names import DEFAULT_NAMESPACE, ROOT
from scribengin.base.text.counting import many
from scribengin_tools.cli.options import JsonOption, RegistryOption, SecretsOption, connected
from scribengin_tools.rendering.text import byte_count, console, print_json
from scribengin_tools.terminal import visible_bytes_on

if TYPE_CHECKING:
    from rich.tree import Tree

    from scribengin_registry.contract import Node, Registry

app = typer.Typer(help="Look at the registry's nodes, back them up, restore them.", no_args_is_help=True)
PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="A node, as in /scribengin. Names in it stand as they are: /logs/logs/flights/0."
    ),
]
_VALUE_SHOWN_MAX = 60


@app.command("tree")
def tree(
    path: PathArgument = "/",
    depth: Annotated[int, typer.Option("--depth", "-d", min=1, help="How many levels to show.")] = 100,
    secrets: SecretsOption = False,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
) -> None:
    """Show the nodes below PATH. What looks like a secret is shown as ******."""
    from rich.tree import Tree

    from scribengin.base.text.masking import masked

    with connected(registry) as session:
        root = _existing(path, session)
        if as_json:
            found = _nodes(session, root, depth)
            print_json(found if secrets else masked(found))
            return
        drawn = Tree(_plain(root), highlight=False)
        _draw(session, root, depth, drawn, secrets=secrets)
        console().print(drawn)


@app.command("get")
def get(
    path: PathArgument, secrets: SecretsOption = False, as_json: JsonOption = False, registry: RegistryOption = None
) -> None:
    """Print what a node holds. What looks like a secret is shown as ******."""
    from scribengin.base.text.masking import masked_bytes

    with connected(registry) as session:
        found = _existing(path, session)
        node = session.get(found)
    data = node.data if secrets else masked_bytes(node.data)
    if as_json:
        print_json({"path": found, **_facts(node), "data": _value(data)})
        return
    sys.stdout.flush()
    data = visible_bytes_on(sys.stdout, data)
    sys.stdout.buffer.write(data + (b"" if data.endswith(b"\n") or not data else b"\n"))
    sys.stdout.buffer.flush()


@app.command("protect")
def protect(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...",
            help="These nodes, with all below them. Default: /scribengin and /logs; all, with a path in --registry.",
            show_default=False,
        ),
    ] = None,
    registry: RegistryOption = None,
) -> None:
    """Make yours what anybody may change: nodes that were made without a user.

    Whose they become says SCRIBENGIN_REGISTRY_AUTH; masters and workers need the same. Others can still read them.
    """
    with connected(registry, checked=False) as session:
        whole = "/" in session.hosts
        usual = [path for path in (("/",) if whole else (ROOT, DEFAULT_NAMESPACE)) if session.find(path)]
        named = [_existing(path, session) for path in paths] if paths else usual
        count = sum(session.protect(path) for path in named)
    print(f"protected: {many(count, 'node')} that anybody could change" if count else "nothing was open to all")


@app.command("backup")
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to write; it is replaced.", show_default=False)],
    registry: RegistryOption = None,
) -> None:
    """Write all nodes to a file.

    While others work, too: each log is as it was at one moment. For all of it at one moment, pause the dataflows
    first."""
    from scribengin.operations.registry.backup import back_up

    with connected(registry) as session:
        count = back_up(session, file)
    print(f"{many(count, 'node')} of {session.hosts} are in {file}")


@app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `backup` has written.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Delete all nodes there are before.")] = False,
    registry: RegistryOption = None,
) -> None:
    """Make the registry what it was when a backup was written.

    Nobody may be connected, and nobody can connect until it is done. One that was cut short is done again with
    --replace. Afterwards, `log verify --all` of each namespace tells what logs hold that the backup does not know, and
    `log recover` takes it back."""
    from scribengin.operations.registry.backup import restore as restored

    with connected(registry, half_restored=True) as session:
        count = restored(session, file, replace=replace)
    print(f"{many(count, 'node')} restored to {session.hosts}: now `scribengin log verify --all` in each namespace")


def _existing(path: str, session: Registry) -> str:
    """The node that PATH means, as the registry names it. Raises ConfigInvalid."""
    from scribengin.errors import ConfigInvalid

    names = [name for name in path.split("/") if name]
    for count in range(len(names), -1, -1):
        there = _below("/", names[:count], session)
        if there is not None and count == len(names):
            return there
        if there is not None:
            break
    raise ConfigInvalid(
        f"there is no node /{'/'.join(names)} in the registry {session.hosts}: see "
        f"`scribengin registry tree {_plain(there or '/')}`"
    )


def _below(parent: str, names: list[str], session: Registry) -> str | None:
    """The node of these names below `parent`. A name of a log or of a stream may hold slashes, so that it takes several
    of them; the longest one is meant."""
    from scribengin.base.model import node_name

    if not names:
        return parent
    children = set(_children(session, parent, 1))
    for count in range(len(names), 0, -1):
        for child in (node_name("/".join(names[:count])), "/".join(names[:count])):
            found = _below(_child(parent, child), names[count:], session) if child in children else None
            if found is not None:
                return found
    return None


def _plain(path: str) -> str:
    from scribengin.base.model import plain_path

    return plain_path(path)


def _nodes(session: Registry, path: str, depth: int) -> dict[str, Any]:
    """A node and those below it, as one JSON value."""
    node = session.find(path)
    if node is None:
        return {}
    below = {name: _nodes(session, _child(path, name), depth - 1) for name in _children(session, path, depth)}
    return {**_facts(node), "data": _value(node.data), "children": below}


def _draw(session: Registry, path: str, depth: int, branch: Tree, *, secrets: bool) -> None:
    from rich.text import Text

    from scribengin.base.text.masking import masked_bytes

    for name in _children(session, path, depth):
        node = session.find(_child(path, name))
        if node is None:
            continue
        label = Text(_plain(name))
        if node.owner_session:
            label.append(" (ephemeral)", "yellow")
        label.append(f"  {_shown(node.data if secrets else masked_bytes(node.data))}", "dim")
        _draw(session, _child(path, name), depth - 1, branch.add(label), secrets=secrets)


def _children(session: Registry, path: str, depth: int) -> list[str]:
    from scribengin_registry.errors import NodeMissing

    if not depth:
        return []
    try:
        return session.children(path)
    except NodeMissing:
        return []  # it went away meanwhile


def _child(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def _facts(node: Node) -> dict[str, Any]:
    return {
        "version": node.version,
        "created_ms": node.created_ms,
        "modified_ms": node.modified_ms,
        "ephemeral": bool(node.owner_session),
    }


def _value(data: bytes) -> Any:
    """A node's data in JSON: itself if it is JSON, else a string, else base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    try:
        return json.loads(text)
    except ValueError:
        return text


def _shown(data: bytes) -> str:
    """A node's data on one line, or how much it is."""
    if not data:
        return ""
    try:
        line = " ".join(data.decode().split())
    except UnicodeDecodeError:
        return byte_count(len(data))
    return line if len(line) <= _VALUE_SHOWN_MAX and line.isprintable() else byte_count(len(data))
