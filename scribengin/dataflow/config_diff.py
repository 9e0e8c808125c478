"""What differs between two versions of a config, for people; and two edits as one. Pure: JSON values in and out."""

from __future__ import annotations

import copy
import json
from typing import Any

from scribengin.base.text.masking import masked

_SHOWN_MAX = 80
"""Characters of a value in a line of the history."""


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """What differs, as `dotted.field: old -> new`."""
    return [difference(path, a, b) for path, a, b in changed_values(old, new)]


def difference(path: tuple[str, ...], before: Any, after: Any, named: str | None = None) -> str:
    """What differs at one place. What looks like a secret is only said to do so: histories are kept, and shown."""
    was, became = (_without_secret(path, value) for value in (before, after))
    return f"{named or '.'.join(path)}: {shown(was)} -> {shown(became)}"


def _without_secret(path: tuple[str, ...], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    value = masked(value)
    for name in path:
        value = value[name]
    return value


def changed_values(old: Any, new: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any, Any]]:
    """The paths at which two JSON values differ, with both values; None where there is none."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        return [change for key in keys for change in changed_values(old.get(key), new.get(key), (*path, str(key)))]
    return [] if old == new else [(path, old, new)]


def merged(base: dict[str, Any], mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any] | None:
    """Two edits of the JSON value `base` as one; None if both change the same, and not alike."""
    my_paths = {path: after for path, _, after in changed_values(base, mine)}
    both: dict[str, Any] = copy.deepcopy(mine)
    for path, _, after in changed_values(base, theirs):
        if any(path[: len(other)] == other[: len(path)] for other in my_paths) and my_paths.get(path) != after:
            return None
        node = both
        for part in path[:-1]:
            node = node.setdefault(part, {})
        if after is None:
            node.pop(path[-1], None)
        else:
            node[path[-1]] = after
    return both


def shown(value: Any) -> str:
    """A value in a line of the history."""
    if value is None:
        return "default"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]} ..."
