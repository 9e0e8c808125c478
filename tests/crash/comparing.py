"""What came out of the crash flow, held against an undisturbed run's output."""

from __future__ import annotations

import json
from collections import Counter

from scribengin_registry.contract import Registry
from tests.crash.flow import PADDING, Place, TopicReader, expected, lines_of_files, of_brokers, outputs


def wrong(place: Place, registry: Registry, case: object, read_topic: TopicReader = of_brokers) -> list[str]:
    """What is not as in an undisturbed run: empty when everything is there once and in order."""
    found = {name: [numbered(row) for row in rows] for name, rows in outputs(registry, place, read_topic).items()}
    wanted = {name: [numbered(row) for row in rows] for name, rows in expected(place).items()}
    problems = [f"{case}: {name} holds {found.get(name)}" for name, rows in wanted.items() if found.get(name) != rows]
    if place.bootstrap:
        return problems
    lines = Counter(row for name, rows in wanted.items() if name.startswith("odd/") for row in rows)
    seen = Counter(numbered(json.loads(line)) for line in lines_of_files(place))
    if seen != lines:
        problems.append(f"{case}: the final files hold {seen}")
    return problems


def numbered(row: dict[str, object]) -> str:
    """A record in short, for messages; the padding is the same in all."""
    return f"{row['log']}:{row['n']}" + ("" if row["padding"] == PADDING else " damaged")
