"""`scribengin registry`: the nodes themselves, for operators."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scribengin_tools.commands.options import JsonOption, RegistryOption, connected
from scribengin_tools.render import byte_count, console, print_json

if TYPE_CHECKING:
    from rich.tree import Tree

    from scribengin.errors import ConfigInvalid
    from scribengin_registry.contract import Node, Registry

app = typer.Typer(help="Look at the registry's nodes.", no_args_is_help=True)
PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="A node, as in /scribengin.")]
_VALUE_SHOWN_MAX = 60


@app.command("tree")
def tree(
    path: PathArgument = "/",
    depth: Annotated[int, typer.Option("--depth", "-d", min=1, help="How many levels to show.")] = 100,
    as_json: JsonOption = False,
    registry: RegistryOption = None,
) -> None:
    """Show the nodes below PATH."""
    from rich.tree import Tree

    with connected(registry) as session:
        root = _absolute(path)
        if session.find(root) is None:
            raise _missing(root, session)
        if as_json:
            print_json(_nodes(session, root, depth))
            return
        drawn = Tree(root, highlight=False)
        _draw(session, root, depth, drawn)
        console().print(drawn)


@app.command("get")
def get(path: PathArgument, as_json: JsonOption = False, registry: RegistryOption = None) -> None:
    """Print what a node holds."""
    with connected(registry) as session:
        node = session.find(_absolute(path))
        if node is None:
            raise _missing(_absolute(path), session)
    if as_json:
        print_json({"path": _absolute(path), **_facts(node), "data": _value(node.data)})
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(node.data + (b"" if node.data.endswith(b"\n") or not node.data else b"\n"))
    sys.stdout.buffer.flush()


def _missing(path: str, session: Registry) -> ConfigInvalid:
    from scribengin.errors import ConfigInvalid

    there = path
    while there != "/" and session.find(there) is None:
        there = there.rpartition("/")[0] or "/"
    return ConfigInvalid(
        f"there is no node {path} in the registry {session.hosts}: see `scribengin registry tree {there}`"
    )


def _absolute(path: str) -> str:
    return "/" + path.strip("/")


def _nodes(session: Registry, path: str, depth: int) -> dict[str, Any]:
    """A node and those below it, as one JSON value."""
    node = session.find(path)
    if node is None:
        return {}
    below = {name: _nodes(session, _child(path, name), depth - 1) for name in _children(session, path, depth)}
    return {**_facts(node), "data": _value(node.data), "children": below}


def _draw(session: Registry, path: str, depth: int, branch: Tree) -> None:
    from rich.text import Text

    for name in _children(session, path, depth):
        node = session.find(_child(path, name))
        if node is None:
            continue
        label = Text(name)
        if node.owner_session:
            label.append(" (ephemeral)", "yellow")
        label.append(f"  {_shown(node.data)}", "dim")
        _draw(session, _child(path, name), depth - 1, branch.add(label))


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
