"""What a registry holds, and one that goes back to what it was, as after a backup was restored."""

from __future__ import annotations

from collections.abc import Iterator

from scribengin_registry.contract import Node, Registry


def nodes(registry: Registry) -> dict[str, bytes]:
    """Every node."""
    return {path: node.data for path, node in _walk(registry, "/")}


def saved(registry: Registry, path: str = "/logs") -> dict[str, bytes]:
    """Every node from `path` on that outlives its session."""
    return {path: node.data for path, node in _walk(registry, path) if not node.owner_session}


def _walk(registry: Registry, path: str) -> Iterator[tuple[str, Node]]:
    yield path, registry.get(path)
    for child in registry.children(path):
        yield from _walk(registry, f"{path.rstrip('/')}/{child}")


def restore(registry: Registry, nodes: dict[str, bytes]) -> None:
    """Bring back what was saved, in place of what is there now."""
    registry.delete(next(iter(nodes)), recursive=True)
    for path, data in nodes.items():
        registry.create(path, data)
