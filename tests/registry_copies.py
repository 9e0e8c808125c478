"""A registry that goes back to what it was, as after a backup was restored."""

from __future__ import annotations

from scribengin_registry.contract import Registry


def saved(registry: Registry, path: str = "/logs") -> dict[str, bytes]:
    """Every node from `path` on that outlives its session."""
    node = registry.get(path)
    found = {} if node.owner_session else {path: node.data}
    for child in registry.children(path):
        found |= saved(registry, f"{path}/{child}")
    return found


def restore(registry: Registry, nodes: dict[str, bytes]) -> None:
    """Bring back what was saved, in place of what is there now."""
    registry.delete(next(iter(nodes)), recursive=True)
    for path, data in nodes.items():
        registry.create(path, data)
